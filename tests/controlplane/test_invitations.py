"""Invitations: a person becomes a member by accepting one, with the account of the address that was invited."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.contrib.sessions.models import Session
from django.core import mail
from django.test import Client
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.common import throttling
from controlplane.common.errors import Conflict, LimitReached, NotAllowed, NotFound
from controlplane.common.logging import loggable_path
from controlplane.common.models import AuditEvent
from controlplane.tenants import invitation_services
from controlplane.tenants.invitation_services import (
    IssuedInvitation,
    invitation_accept,
    invitation_create,
    invitation_mail,
    invitation_revoke,
    invitations_mail,
)
from controlplane.tenants.models import Invitation, Membership, Role
from controlplane.tenants.services import membership_remove
from tests.controlplane.world import Json, World

BACKEND = "django.contrib.auth.backends.ModelBackend"


@pytest.fixture
def issued(world: World) -> IssuedInvitation:
    return invitation_create(actor=world.alice, tenant=world.acme, email=" Charlie@Example.COM ", role=Role.VIEWER)


def secret_of(issued: IssuedInvitation) -> str:
    return issued.link.rstrip("/").rpartition("/")[2]


def is_member(world: World, user: User) -> bool:
    return Membership.objects.filter(tenant=world.acme, user=user).exists()


def test_an_invited_person_is_no_member_until_they_accept(world: World, issued: IssuedInvitation) -> None:
    assert not is_member(world, world.charlie)
    assert invitation_accept(user=world.charlie, secret=secret_of(issued)).role == Role.VIEWER


def test_a_link_works_once(world: World, issued: IssuedInvitation) -> None:
    membership = invitation_accept(user=world.charlie, secret=secret_of(issued))
    membership_remove(actor=world.alice, membership=membership)
    with pytest.raises(NotFound):
        invitation_accept(user=world.charlie, secret=secret_of(issued))


def test_a_link_works_for_the_invited_address_only(world: World, issued: IssuedInvitation) -> None:
    stranger = User.objects.create_user("dora@example.com")
    with pytest.raises(NotAllowed):
        invitation_accept(user=stranger, secret=secret_of(issued))
    assert not is_member(world, stranger)


@pytest.mark.parametrize("end", ["revoked", "expired", "replaced", "its maker left", "its maker is deactivated"])
def test_a_link_that_ended_is_refused(world: World, issued: IssuedInvitation, end: str) -> None:
    match end:
        case "revoked":
            invitation_revoke(actor=world.alice, invitation=issued.invitation)
        case "expired":
            Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        case "replaced":
            invitation_create(actor=world.alice, tenant=world.acme, email="charlie@example.com", role=Role.DEVELOPER)
        case "its maker left":
            Membership.objects.filter(user=world.bob).update(role=Role.OWNER)
            membership_remove(actor=world.bob, membership=world.alice.memberships.get())
            assert Invitation.objects.get().ended_at is not None
        case _:
            User.objects.filter(pk=world.alice.pk).update(is_active=False)
    with pytest.raises(NotFound):
        invitation_accept(user=world.charlie, secret=secret_of(issued))
    assert not is_member(world, world.charlie)


def test_an_invitation_changes_no_role_that_its_person_has_meanwhile(world: World, issued: IssuedInvitation) -> None:
    Membership.objects.create(tenant=world.acme, user=world.charlie, role=Role.OPERATOR)
    assert invitation_accept(user=world.charlie, secret=secret_of(issued)).role == Role.OPERATOR


def test_a_member_is_not_invited_again(world: World) -> None:
    with pytest.raises(Conflict):
        invitation_create(actor=world.alice, tenant=world.acme, email="BOB@example.com", role=Role.VIEWER)


def test_a_person_invites_so_many_in_a_day_even_if_they_revoke_them(world: World) -> None:
    with patch.object(invitation_services, "DAILY_MAX", 2):
        for name in ("x", "y"):
            made = invitation_create(actor=world.alice, tenant=world.acme, email=f"{name}@example.com", role="viewer")
            invitation_revoke(actor=world.alice, invitation=made.invitation)
        with pytest.raises(LimitReached):
            invitation_create(actor=world.alice, tenant=world.acme, email="z@example.com", role=Role.VIEWER)


def test_the_mail_has_the_link_and_none_of_the_owners_free_text(world: World, issued: IssuedInvitation) -> None:
    world.acme.name = "You won! https://evil.example"
    world.acme.save()
    assert [invitation_mail(issued.invitation.pk) for _ in range(2)] == [True, False]
    (message,) = mail.outbox
    assert (message.to, issued.link in message.body) == (["charlie@example.com"], True)
    assert "evil" not in f"{message.subject} {message.body}"


def test_a_stranger_is_invited_in_the_inviters_language_and_a_user_in_their_own(world: World) -> None:
    world.alice.language = "zh-hans"
    world.alice.save()
    for email in ("stranger@example.com", "charlie@example.com"):
        made = invitation_create(actor=world.alice, tenant=world.acme, email=email, role=Role.VIEWER)
        invitation_mail(made.invitation.pk)
    assert [message.subject for message in mail.outbox] == [
        "[Highwater] 您受邀加入 acme",
        "[Highwater] You are invited to acme",
    ]
    assert "alice@example.com 邀请您以" in mail.outbox[0].body


def test_a_mail_that_no_server_took_is_sent_later(world: World, issued: IssuedInvitation) -> None:
    with (
        patch.object(invitation_services, "mail_each", side_effect=ConnectionRefusedError),
        pytest.raises(ConnectionRefusedError),
    ):
        invitation_mail(issued.invitation.pk)
    assert invitations_mail() == 1
    assert invitation_mail(issued.invitation.pk)
    assert invitations_mail() == 0


def test_only_a_hash_of_the_link_is_kept_once_it_was_mailed(world: World, issued: IssuedInvitation) -> None:
    invitation_mail(issued.invitation.pk)
    row = Invitation.objects.values().get()
    assert (bytes(row["sealed_secret"]), secret_of(issued) in str(row)) == (b"", False)


def test_the_api_answers_an_address_with_and_without_an_account_alike(world: World, api: Callable[..., Json]) -> None:
    answers = [
        api(world.alice).call("POST", "/api/v1/tenants/acme/invitations/", {"email": email})
        for email in ("charlie@example.com", "nobody@example.com")
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json().keys() == answers[1].json().keys()
    assert "link" not in api(world.alice).get(answers[0].headers["Location"]).json()


def test_the_api_accepts_and_declines_for_the_invited_person(world: World, api: Callable[..., Json]) -> None:
    links = [
        invitation_create(actor=world.alice, tenant=world.acme, email=email, role=Role.DEVELOPER)
        for email in ("charlie@example.com", "dora@example.com")
    ]
    body = [{"secret": secret_of(link)} for link in links]
    accepted = api(world.charlie).call("POST", "/api/v1/invitations/accept/", body[0])
    assert (accepted.status_code, accepted.json()["email"]) == (201, "charlie@example.com")
    assert api(world.charlie).call("POST", "/api/v1/invitations/decline/", body[1]).status_code == 403
    dora = User.objects.create_user("dora@example.com")
    assert api(dora).call("POST", "/api/v1/invitations/decline/", body[1]).status_code == 204
    assert api(dora).call("POST", "/api/v1/invitations/accept/", body[1]).status_code == 404


def test_a_token_answers_no_invitation(
    issued: IssuedInvitation, token: Callable[..., str], api: Callable[..., Json]
) -> None:
    answer = api(token=token()).call("POST", "/api/v1/invitations/accept/", {"secret": secret_of(issued)})
    assert answer.status_code == 403


def test_what_happens_to_an_invitation_is_in_the_audit_trail(world: World, issued: IssuedInvitation) -> None:
    invitation_accept(user=world.charlie, secret=secret_of(issued))
    events = AuditEvent.objects.filter(tenant_id=world.acme.pk).order_by("created_at")
    assert [(event.actor, event.action) for event in events] == [
        ("alice@example.com", "invitation.create"),
        ("charlie@example.com", "member.join"),
    ]
    assert secret_of(issued) not in str(list(events.values()))


def test_the_secret_of_a_link_is_in_no_log() -> None:
    assert loggable_path("/invitations/abc-DEF_123/") == "/invitations/…/"


def test_an_owner_invites_sees_the_link_once_and_revokes_it_in_the_console(world: World) -> None:
    client = Client()
    client.force_login(world.alice, backend=BACKEND)
    made = client.post("/t/acme/members/", {"email": "dora@example.com", "role": "viewer"})
    assert (made.status_code, made.headers["Cache-Control"]) == (200, "no-store, private")
    assert re.search(r"/invitations/[\w-]{43}/", made.content.decode())
    page = client.get("/t/acme/members/").content.decode()
    assert "dora@example.com" in page
    assert not re.search(r"/invitations/[\w-]{43}/", page)
    client.post(f"/t/acme/invitations/{Invitation.objects.get().pk}/revoke/")
    assert "dora@example.com" not in client.get("/t/acme/members/").content.decode().partition("Open invitations")[2]
    assert Invitation.objects.get().ended_at is not None


def test_a_member_sees_no_invitations_in_the_console(world: World, issued: IssuedInvitation) -> None:
    client = Client()
    client.force_login(world.bob, backend=BACKEND)
    assert "charlie@example.com" not in client.get("/t/acme/members/").content.decode()


def test_a_new_user_opens_the_link_signs_up_and_joins(world: World) -> None:
    link = invitation_create(actor=world.alice, tenant=world.acme, email="dora@example.com", role=Role.DEVELOPER).link
    browser = Client()
    opened = browser.get(link[link.index("/invitations/") :], follow=True)
    assert opened.redirect_chain == [("/invitations/", 302)]
    assert "Create an account" in opened.content.decode()
    password = "correct horse battery staple"
    signed_up = browser.post(
        "/signup/",
        {"email": "dora@example.com", "password1": password, "password2": password, "next": "/invitations/"},
        follow=True,
    )
    assert "Accept" in signed_up.content.decode()
    joined = browser.post("/invitations/", {"answer": "accept"}, follow=True)
    assert joined.redirect_chain[-1][0] == "/t/acme/"
    assert "You are a member of Acme now." in joined.content.decode()


def test_whoever_opened_a_link_before_the_log_in_comes_back_to_it(world: World, issued: IssuedInvitation) -> None:
    browser = Client()
    browser.get(f"/invitations/{secret_of(issued)}/")
    browser.force_login(world.charlie, backend=BACKEND)
    assert browser.get("/").headers["Location"] == "/invitations/"
    browser.post("/invitations/", {"answer": "decline"})
    assert not is_member(world, world.charlie)
    assert browser.get("/invitations/").status_code == 404


def test_another_account_reads_whose_invitation_it_is_and_can_not_take_it(
    world: World, issued: IssuedInvitation
) -> None:
    browser = Client()
    browser.force_login(world.bob, backend=BACKEND)
    page = browser.get(f"/invitations/{secret_of(issued)}/", follow=True).content.decode()
    assert "You are logged in as <strong>bob@example.com</strong>" in page
    assert browser.post("/invitations/", {"answer": "accept"}).status_code == 422
    assert Invitation.objects.get().accepted_at is None


def test_a_wrong_link_says_what_to_do(db: None) -> None:
    answer = Client().get("/invitations/nonsense/", follow=True)
    assert answer.status_code == 404
    assert "Ask the person who invited you for another one." in answer.content.decode()


def test_who_makes_links_up_leaves_no_session_behind(world: World, issued: IssuedInvitation) -> None:
    """Each would be a row, of any length, for a request that needs no log-in."""
    for made_up in ("nonsense", "x" * 43, "x" * 20_000):
        answer = Client().get(f"/invitations/{made_up}/")
        assert answer.status_code == 404
        assert "no-store" in answer.headers["Cache-Control"]
    assert not Session.objects.exists()
    browser = Client()
    browser.get(f"/invitations/{secret_of(issued)}/")
    assert browser.get("/invitations/nonsense/").status_code == 404
    assert browser.get("/invitations/").status_code == 200  # the right one is still open


def test_one_address_opens_a_bounded_number_of_links_a_minute(
    world: World, issued: IssuedInvitation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "STRANGER_PAGES_A_MINUTE", 3)
    with patch("controlplane.common.throttling.time.time", lambda: 61e6):
        statuses = [Client().get(f"/invitations/{secret_of(issued)}/").status_code for _ in range(4)]
    assert statuses == [302, 302, 302, 429]
