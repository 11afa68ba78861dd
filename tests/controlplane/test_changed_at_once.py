"""Two requests change one thing at once: each has read it before the other wrote. Both changes stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controlplane.alerts.channels import channel_create, channel_delete, channel_get, channel_list, channel_update
from controlplane.alerts.deliveries import channel_test
from controlplane.alerts.models import AlertChannel
from controlplane.clusters import credential_services
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.credential_services import credential_delete, credential_rotate, credentials_end
from controlplane.clusters.models import Cluster, Credential, CredentialState
from controlplane.common.errors import BrokerUnreachable, FactorNeeded, NotFound
from controlplane.tenants.models import Tenant
from controlplane.tenants.services import tenant_update
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
    """They don't answer; `meanwhile` is done once, while the first request waits for them."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile: Callable[[], object] | None = meanwhile

    def distribute(self, cluster: Cluster) -> Distribution:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        raise BrokerUnreachable("No daemon answers.")


def rotate_in_vain(world: World, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Credential], object]) -> str:
    """Return the old key's state after a rotation that reached no daemon."""
    old = world.cluster.credentials.get(is_control=False)
    Credential.objects.filter(pk=old.pk).update(state=CredentialState.ACTIVE)
    daemons = Daemons(lambda: meanwhile(Credential.objects.select_related("cluster__tenant").get(pk=old.pk)))
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
