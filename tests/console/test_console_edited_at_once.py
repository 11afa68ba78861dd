"""Two people have the same form open: who saves last changes what they changed, and takes back nothing of the other's."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from controlplane.alerts.selectors import rule_get
from controlplane.alerts.services import rule_set
from controlplane.clusters.credential_quotas import credential_update
from controlplane.clusters.models import ClusterState
from controlplane.tenants.models import Tenant
from controlplane.tenants.service_account_services import service_account_create, service_account_update
from controlplane.tenants.services import tenant_update
from controlplane.topics import services
from controlplane.topics.models import Topic
from controlplane.topics.services import TopicOptions, topic_update
from tests.console.world import World, make_topic
from tests.controlplane.world import SYSTEM

pytestmark = pytest.mark.django_db

Act = Callable[[], object]


def save(client: Client, address: str, typed: dict[str, Any], meanwhile: Act) -> None:
    """Open the form, have something else changed meanwhile, and send it: of `typed`, one field is not as it was shown."""
    (shown,) = re.findall(r'name="((?:account-)?shown)" value="([^"]*)"', client.get(address).content.decode())
    meanwhile()
    answer = client.post(address, {**typed, shown[0]: html.unescape(shown[1])})
    assert answer.status_code == 302


@pytest.fixture
def alice(world: World) -> Client:
    return world.client(world.alice)


def test_a_new_name_does_not_turn_off_the_factor_that_another_owner_demanded(alice: Client, world: World) -> None:
    save(
        alice,
        world.path("settings/"),
        {"name": "Acme Ltd", "time_zone": "UTC"},
        lambda: tenant_update(actor=SYSTEM, tenant=Tenant.objects.get(pk=world.tenant.pk), wants_second_factor=True),
    )
    tenant = Tenant.objects.get(pk=world.tenant.pk)
    assert (tenant.name, tenant.wants_second_factor) == ("Acme Ltd", True)


def test_a_topics_limit_and_its_description_are_changed_by_two(
    alice: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "topic_apply", lambda topic, **_: None)
    topic = make_topic(world.cluster, "payments")
    save(
        alice,
        world.cluster_path("topics/payments/change/"),
        {"read_queue_nums": "8", "write_queue_nums": "8", "perm": "6", "description": "What was paid"},
        lambda: topic_update(
            actor=SYSTEM, topic=Topic.objects.get(pk=topic.pk), options=TopicOptions(quota_stored_bytes=2**30, perm=4)
        ),
    )
    topic.refresh_from_db()
    assert (topic.description, topic.quota_stored_bytes, topic.perm) == ("What was paid", 2**30, 4)


def test_a_service_account_keeps_the_lower_role_that_it_got_meanwhile(alice: Client, world: World) -> None:
    account = service_account_create(actor=SYSTEM, tenant=world.tenant, name="ci", role="operator")
    save(
        alice,
        world.path(f"service-accounts/{account.pk}/"),
        {"what": "account", "account-name": "ci", "account-role": "operator", "account-description": "Builds"},
        lambda: service_account_update(actor=SYSTEM, account=account, role="viewer"),
    )
    account.refresh_from_db()
    assert (account.description, account.role) == ("Builds", "viewer")


def test_quotas_of_a_key_that_two_change_both_stay(alice: Client, world: World) -> None:
    world.cluster.state = ClusterState.SUSPENDED
    world.cluster.save()
    key = world.cluster.credentials.get(is_control=False)
    save(
        alice,
        world.cluster_path(f"credentials/{key.access_key}/quotas/"),
        {"quota_connections": "7", "quota_bytes_per_second": ""},
        lambda: credential_update(actor=SYSTEM, credential=key, quotas={"quota_bytes_per_second": 2**20}),
    )
    key.refresh_from_db()
    assert (key.quota_connections, key.quota_bytes_per_second) == (7, 2**20)


def test_a_rule_that_is_switched_off_meanwhile_stays_off(alice: Client, world: World) -> None:
    before = rule_get(world.cluster, "disk_used")
    save(
        alice,
        world.cluster_path("alerts/disk_used/"),
        {"is_on": "on", "threshold": f"{before.threshold:g}", "duration_s": "77"},
        lambda: rule_set(
            actor=SYSTEM, cluster=world.cluster, kind="disk_used", is_on=False, threshold=before.threshold + 1
        ),
    )
    rule = rule_get(world.cluster, "disk_used")
    assert (rule.is_on, rule.threshold, rule.duration_s) == (False, before.threshold + 1, 77)


def test_a_form_that_does_not_say_what_it_showed_changes_all(alice: Client, world: World) -> None:
    tenant_update(actor=SYSTEM, tenant=world.tenant, time_zone="Asia/Shanghai")
    for shown in ({}, {"shown": "["}, {"shown": "[]"}, {"shown": "[" * 100_000}):
        typed = {"name": "Acme Ltd", "time_zone": "UTC", **shown}
        assert alice.post(world.path("settings/"), typed).status_code == 302
        tenant = Tenant.objects.get(pk=world.tenant.pk)
        assert (tenant.name, tenant.time_zone) == ("Acme Ltd", "UTC")
        tenant_update(actor=SYSTEM, tenant=tenant, time_zone="Asia/Shanghai")


def test_a_form_that_is_refused_keeps_what_it_showed_first(alice: Client, world: World) -> None:
    shown = '{"name": "before", "time_zone": "UTC"}'
    page = alice.post(world.path("settings/"), {"name": "", "time_zone": "UTC", "shown": shown}).content.decode()
    assert f'name="shown" value="{html.escape(shown)}"' in page
