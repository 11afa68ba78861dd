"""Two requests change one thing at once: each has read it before the other wrote. Both changes stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controlplane.accounts.models import ApiToken
from controlplane.alerts.channels import channel_create, channel_delete, channel_get, channel_list, channel_update
from controlplane.alerts.deliveries import channel_test
from controlplane.alerts.models import AlertChannel
from controlplane.clusters import credential_services
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_services import (
    credential_create,
    credential_delete,
    credential_rotate,
    credentials_end,
)
from controlplane.clusters.models import Cluster, Credential, CredentialState
from controlplane.common.errors import BrokerUnreachable, Conflict, FactorNeeded, NotAllowed, NotFound
from controlplane.tenants.models import Tenant
from controlplane.tenants.service_account_services import (
    service_account_create,
    service_account_delete,
    service_account_get,
    service_account_update,
)
from controlplane.tenants.services import tenant_update
from controlplane.tenants.token_services import api_token_issue
from controlplane.topics import services as topic_services
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.services import TopicOptions, topic_update
from tests.controlplane.world import SYSTEM, World

pytestmark = pytest.mark.django_db


def tenant() -> Tenant:
    return Tenant.objects.get(slug="acme")


def test_a_name_that_is_given_meanwhile_does_not_turn_the_second_factor_off(world: World) -> None:
    before = tenant()
    tenant_update(actor=SYSTEM, tenant=tenant(), requires_second_factor=True, time_zone="Asia/Shanghai")
    changed = tenant_update(actor=world.alice, tenant=before, name="Acme")
    assert [(one.name, one.time_zone, one.requires_second_factor) for one in (tenant(), changed)] == [
        ("Acme", "Asia/Shanghai", True)
    ] * 2


def test_a_factor_that_was_demanded_meanwhile_is_not_turned_off_unasked(world: World) -> None:
    before = tenant()
    tenant_update(actor=SYSTEM, tenant=tenant(), requires_second_factor=True)
    with pytest.raises(FactorNeeded):
        tenant_update(actor=world.alice, tenant=before, requires_second_factor=False)
    assert tenant().requires_second_factor


def test_limits_of_a_topic_that_are_set_at_once_both_stay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_services, "topic_apply", lambda topic, **_: None)
    row = Topic.objects.create(cluster=world.cluster, name="jobs", state=TopicState.ACTIVE)
    first, second = (Topic.objects.select_related("cluster__tenant").get(pk=row.pk) for _ in range(2))
    topic_update(actor=world.alice, topic=first, options=TopicOptions(retention_hours=5))
    topic_update(actor=world.alice, topic=second, options=TopicOptions(description="What is to be done", perm=4))
    row.refresh_from_db()
    assert (row.retention_hours, row.description, row.perm) == (5, "What is to be done", 4)


def webhook(world: World) -> AlertChannel:
    made, _ = channel_create(
        actor=world.alice, tenant=world.acme, kind="webhook", name="pager", address="https://example.com/hook"
    )
    return made


def test_a_channel_that_is_switched_twice_at_once_is_as_both_said(world: World) -> None:
    made = webhook(world)
    first, second = (channel_get(world.acme, made.pk) for _ in range(2))
    channel_update(actor=world.alice, channel=first, is_on=False)
    changed = channel_update(actor=world.alice, channel=second, critical_only=True)
    assert (changed.is_on, changed.critical_only) == (False, True)


def test_a_channel_that_was_deleted_meanwhile_is_not_found(world: World) -> None:
    made = webhook(world)
    late = channel_get(world.acme, made.pk)
    channel_delete(actor=world.alice, channel=made)
    with pytest.raises(NotFound):
        channel_update(actor=world.alice, channel=late, is_on=False)
    with pytest.raises(NotFound):
        channel_test(actor=world.alice, channel=late)
    assert channel_list(world.acme).count() == 1  # e-mail


class Daemons:
    """`meanwhile` is done once, while the first request waits for them."""

    def __init__(self, meanwhile: Callable[[], object], *, are_silent: bool) -> None:
        self.meanwhile: Callable[[], object] | None = meanwhile
        self.are_silent = are_silent

    def distribute(self, cluster: Cluster) -> Distribution:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        if self.are_silent:
            raise BrokerUnreachable("No daemon answers.")
        return Distribution(confirmed=1, missing=())


def key(**which: object) -> Credential:
    found: Credential = Credential.objects.select_related("cluster__tenant").get(**which)
    return found


def rotate_in_vain(world: World, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Credential], object]) -> str:
    """Return the old key's state after a rotation that reached no daemon."""
    old = world.cluster.credentials.get(is_control=False)
    Credential.objects.filter(pk=old.pk).update(state=CredentialState.ACTIVE)
    daemons = Daemons(lambda: meanwhile(key(pk=old.pk)), are_silent=True)
    monkeypatch.setattr(credential_services, "accounts_distribute", daemons.distribute)
    with pytest.raises(BrokerUnreachable):
        credential_rotate(actor=world.alice, credential=old, overlap_hours=0)
    old.refresh_from_db()
    assert old.ends_at is None
    return str(old.state)


def test_a_key_that_is_deleted_while_its_rotation_fails_stays_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def delete(old: Credential) -> None:
        with pytest.raises(BrokerUnreachable):
            credential_delete(actor=world.alice, credential=old)

    assert rotate_in_vain(world, monkeypatch, delete) == CredentialState.DELETING


def test_a_key_whose_time_is_over_while_its_rotation_fails_works_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rotate_in_vain(world, monkeypatch, lambda old: credentials_end(old.cluster)) == CredentialState.ACTIVE


def test_a_key_that_was_deleted_meanwhile_is_not_found_to_be_replaced(world: World) -> None:
    old = key(cluster=world.cluster, is_control=False)
    Credential.objects.filter(pk=old.pk).delete()
    with pytest.raises(NotFound):
        credential_rotate(actor=world.alice, credential=old, overlap_hours=24)


def deletes_the_new_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first key that is new deleted while its daemons are asked."""
    known = set(Credential.objects.values_list("pk", flat=True))

    def delete() -> None:
        (new,) = Credential.objects.select_related("cluster__tenant").exclude(pk__in=known)
        credential_delete(actor=world.alice, credential=new)

    monkeypatch.setattr(credential_services, "accounts_distribute", Daemons(delete, are_silent=False).distribute)


def test_a_new_key_that_is_deleted_meanwhile_was_made_for_no_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deletes_the_new_key(world, monkeypatch)
    with pytest.raises(Conflict) as raised:
        credential_create(actor=world.alice, cluster=world.cluster, name="ci")
    assert raised.value.code == "credential_deleted"


def test_an_old_key_works_on_when_the_one_that_was_to_replace_it_is_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = key(cluster=world.cluster, is_control=False)
    deletes_the_new_key(world, monkeypatch)
    with pytest.raises(Conflict):
        credential_rotate(actor=world.alice, credential=old, overlap_hours=24)
    old.refresh_from_db()
    assert (old.ends_at, old.state != CredentialState.DELETING) == (None, True)


@pytest.mark.django_db(transaction=True)
def test_no_token_is_issued_for_a_service_account_that_was_deleted_meanwhile(world: World) -> None:
    account = service_account_create(actor=SYSTEM, tenant=world.acme, name="ci", role="operator")
    late = service_account_get(world.acme, account.pk)
    service_account_delete(actor=SYSTEM, account=account)
    with pytest.raises(NotFound):
        api_token_issue(actor=world.alice, tenant=world.acme, name="t", role="viewer", service_account=late)
    assert not ApiToken.objects.exists()


def test_a_token_is_no_stronger_than_the_account_has_become_meanwhile(world: World) -> None:
    account = service_account_create(actor=SYSTEM, tenant=world.acme, name="ci", role="operator")
    late = service_account_get(world.acme, account.pk)
    service_account_update(actor=SYSTEM, account=account, role="viewer")
    with pytest.raises(NotAllowed):
        api_token_issue(actor=world.alice, tenant=world.acme, name="t", role="operator", service_account=late)
