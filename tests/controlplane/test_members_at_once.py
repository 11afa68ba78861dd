"""Rights that are given and taken at the same moment: who may do what is asked after the other's change is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from controlplane.accounts.actors import TokenActor
from controlplane.accounts.models import ApiToken
from controlplane.common.errors import NotAllowed, NotFound
from controlplane.tenants.invitation_services import invitation_accept, invitation_create
from controlplane.tenants.models import Invitation, Membership, Role
from controlplane.tenants.services import membership_remove, membership_update
from controlplane.tenants.token_services import api_token_issue, api_token_revoke
from tests.controlplane.world import World

WAIT_S = 30.0


@contextmanager
def begun_before_the_commit(act: Callable[[], object]) -> Iterator[list[Exception]]:
    """Run `act` in a thread when the block, a transaction, has done its work, and commit once `act` waits or has ended.

    Gives the list that holds what `act` raised after the block.
    """
    raised: list[Exception] = []

    def run() -> None:
        try:
            act()
        except (NotAllowed, NotFound) as error:
            raised.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    with transaction.atomic():
        yield raised
        thread.start()
        until = time.monotonic() + WAIT_S
        while thread.is_alive() and not _someone_waits() and time.monotonic() < until:
            time.sleep(0.02)
    thread.join(WAIT_S)
    assert not thread.is_alive()


def _someone_waits() -> bool:
    with connection.cursor() as cursor:
        # Within a transaction PostgreSQL shows the sessions as they were at the first look.
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        (waiting,) = cursor.fetchone()
    return bool(waiting)


@pytest.mark.django_db(transaction=True)
def test_who_is_being_removed_issues_no_token_that_stays(world: World) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.OPERATOR)
    with begun_before_the_commit(lambda: api_token_issue(actor=world.bob, tenant=world.acme, name="last")) as raised:
        membership_remove(actor=world.alice, membership=world.bob.memberships.get())
    assert [type(error) for error in raised] == [NotAllowed]
    assert not ApiToken.objects.filter(issuer=world.bob, revoked_at=None).exists()


@pytest.mark.django_db(transaction=True)
def test_a_token_that_is_being_revoked_issues_no_other(world: World) -> None:
    issued = api_token_issue(actor=world.alice, tenant=world.acme, name="ci", role=Role.OWNER)
    actor = TokenActor(issued.token)
    with begun_before_the_commit(lambda: api_token_issue(actor=actor, tenant=world.acme, name="more")) as raised:
        api_token_revoke(actor=world.alice, token=issued.token)
    assert [getattr(error, "code", None) for error in raised] == ["token_revoked"]
    assert not ApiToken.objects.filter(revoked_at=None).exists()


@pytest.mark.django_db(transaction=True)
def test_an_admin_who_is_being_demoted_leaves_no_open_invitation(world: World) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.ADMIN)

    def invite() -> None:
        invitation_create(actor=world.bob, tenant=world.acme, email="friend@example.com", role=Role.ADMIN)

    with begun_before_the_commit(invite) as raised:
        membership_update(actor=world.alice, membership=world.bob.memberships.get(), role=Role.VIEWER)
    assert [type(error) for error in raised] == [NotAllowed]
    assert not Invitation.objects.filter(ended_at=None).exists()


@pytest.mark.django_db(transaction=True)
def test_an_invitation_is_not_accepted_after_its_inviter_was_removed(world: World) -> None:
    Membership.objects.filter(user=world.bob).update(role=Role.ADMIN)
    offered = invitation_create(actor=world.bob, tenant=world.acme, email=world.charlie.email, role=Role.ADMIN)
    secret = offered.link.rstrip("/").rsplit("/", 1)[1]
    with begun_before_the_commit(lambda: invitation_accept(user=world.charlie, secret=secret)) as raised:
        membership_remove(actor=world.alice, membership=world.bob.memberships.get())
    assert [type(error) for error in raised] == [NotFound]
    assert not world.acme.memberships.filter(user=world.charlie).exists()


def test_an_admin_with_an_old_page_does_not_lower_who_became_an_owner(world: World) -> None:
    admin = Membership.objects.create(tenant=world.acme, user=world.charlie, role=Role.ADMIN)
    as_seen = world.bob.memberships.get()
    membership_update(actor=world.alice, membership=world.bob.memberships.get(), role=Role.OWNER)
    with pytest.raises(NotAllowed):
        membership_update(actor=admin.user, membership=as_seen, role=Role.VIEWER)
    with pytest.raises(NotAllowed):
        membership_remove(actor=admin.user, membership=as_seen)


def test_a_member_who_left_meanwhile_is_not_found(world: World) -> None:
    as_seen = world.bob.memberships.get()
    membership_remove(actor=world.alice, membership=world.bob.memberships.get())
    with pytest.raises(NotFound):
        membership_update(actor=world.alice, membership=as_seen, role=Role.VIEWER)
