"""What a tenant may have: counted when it is asked for, shown with its use, changed by an operator."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from brokerd.config import load_config
from controlplane.accounts.models import User
from controlplane.alerts import channels, deliveries, services
from controlplane.alerts.channels import channel_create, channel_list
from controlplane.alerts.deliveries import channel_test
from controlplane.alerts.models import AlertChannel
from controlplane.alerts.services import silence_create
from controlplane.clusters import limits
from controlplane.clusters.credential_services import credential_create
from controlplane.clusters.limits import BrokerUse, broker_quota_keys
from controlplane.clusters.models import Cluster, Replica
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.clusters.services import cluster_create, cluster_grow
from controlplane.common.errors import Conflict, LimitReached
from controlplane.common.models import AuditEvent
from controlplane.console.views import limits as page
from controlplane.provisioning.processes import replica_daemons
from controlplane.tenants.models import Tenant
from controlplane.tenants.services import tenant_create
from controlplane.topics.services import topic_create
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import Json, World

pytestmark = pytest.mark.django_db


def allow(tenant: Tenant, **values: int) -> None:
    tenant.limits = values
    tenant.save()


def test_one_cluster_more_than_the_limit_is_refused_and_leaves_no_row(world: World) -> None:
    allow(world.acme, clusters=1)
    with pytest.raises(LimitReached, match="at most 1"):
        cluster_create(actor=world.alice, tenant=world.acme, slug="second")
    assert Cluster.objects.filter(tenant=world.acme).count() == 1


def test_brokers_are_counted_over_all_clusters(world: World) -> None:
    allow(world.acme, brokers=Replica.objects.filter(group__cluster=world.cluster).count() + 2)
    with pytest.raises(LimitReached, match="brokers"):
        cluster_create(actor=world.alice, tenant=world.acme, slug="second", mode="dledger")
    cluster_create(actor=world.alice, tenant=world.acme, slug="second", mode="async")


def test_what_all_brokers_of_a_tenant_may_store_is_limited(world: World) -> None:
    brokers = Replica.objects.filter(group__cluster=world.cluster).count()
    allow(world.acme, stored_bytes=5 * 1024**3, stored_gib=5 * (brokers + 2))
    with pytest.raises(LimitReached, match="all brokers together") as refused:
        cluster_create(actor=world.alice, tenant=world.acme, slug="second", mode="dledger")
    assert refused.value.extra == {"limit": "stored_gib", "at_most": 5 * (brokers + 2)}
    cluster_create(actor=world.alice, tenant=world.acme, slug="second", mode="async")
    Cluster.objects.filter(pk=world.cluster.pk).update(mode="async")
    world.cluster.refresh_from_db()
    with pytest.raises(LimitReached, match="all brokers together"):
        cluster_grow(actor=world.alice, cluster=world.cluster, by="group")
    allow(world.acme, stored_bytes=3 * 1024**3, stored_gib=5 * (brokers + 2))  # less of each is another way out
    world.cluster.refresh_from_db()
    cluster_grow(actor=world.alice, cluster=world.cluster, by="group")


def test_a_tenant_sees_what_its_brokers_may_store(world: World, api: Callable[..., Json]) -> None:
    brokers = Replica.objects.filter(group__cluster__tenant=world.acme).count()
    (shown,) = [
        one
        for one in api(world.bob).call("GET", "/api/v1/tenants/acme/limits/").json()["limits"]
        if one["name"] == "stored_gib"
    ]
    assert (shown["used"], shown["limit"]) == (40 * brokers, 1200)


def test_one_tenants_limit_is_not_anothers(world: World) -> None:
    allow(world.acme, clusters=1)
    cluster_create(actor=world.charlie, tenant=world.globex, slug="first")


def test_topics_and_keys_of_a_cluster_are_limited(world: World) -> None:
    keys = world.cluster.credentials.filter(is_control=False).count()
    allow(world.acme, topics_per_cluster=0, credentials_per_cluster=keys)
    world.cluster.tenant.refresh_from_db()
    with pytest.raises(LimitReached), CaptureQueriesContext(connection) as topic_queries:
        topic_create(actor=world.alice, cluster=world.cluster, name="fresh")
    with pytest.raises(LimitReached), CaptureQueriesContext(connection) as key_queries:
        credential_create(actor=world.alice, cluster=world.cluster, name="another")
    for asked in (topic_queries, key_queries):
        assert_counted_under_a_lock(asked)


def assert_counted_under_a_lock(asked: CaptureQueriesContext) -> None:
    """Two requests at once are counted one after the other."""
    statements = [one["sql"] for one in asked.captured_queries]
    locks = [place for place, sql in enumerate(statements) if "FOR UPDATE" in sql or "FOR NO KEY UPDATE" in sql]
    assert locks
    assert any("COUNT(" in sql for sql in statements[locks[0] :])


def test_what_a_tenant_may_have_few_of_is_counted_one_request_after_the_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def test() -> object:
        return channel_test(actor=world.alice, channel=channel)

    def silence() -> object:
        return silence_create(
            actor=world.alice, tenant=world.acme, until=timezone.now() + timedelta(hours=1), reason="work"
        )

    def make() -> tuple[AlertChannel, str]:
        return channel_create(
            actor=world.alice, tenant=world.acme, kind="webhook", name="two", address="https://example.com/"
        )

    channel = channel_list(world.acme)[0]
    monkeypatch.setattr(deliveries, "ASKED_FOR_MAX", 0)
    monkeypatch.setattr(services, "SILENCES_MAX", 0)
    monkeypatch.setattr(channels, "CHANNELS_MAX", 1)
    for act in (test, silence, make):
        with pytest.raises((LimitReached, Conflict)), CaptureQueriesContext(connection) as asked:
            act()
        assert_counted_under_a_lock(asked)


@override_settings(HIGHWATER_TENANTS_PER_USER=2)
def test_a_user_owns_a_bounded_number_of_tenants(world: World) -> None:
    tenant_create(actor=world.alice, slug="second", name="")
    with pytest.raises(LimitReached, match="You own 2 tenants"):
        tenant_create(actor=world.alice, slug="third", name="")


def test_the_api_says_which_limit_and_what_to_do(world: World, api: Callable[..., Json]) -> None:
    allow(world.acme, clusters=1)
    answer = api(world.alice).call("POST", "/api/v1/tenants/acme/clusters/", {"slug": "second"})
    body = answer.json()
    assert (answer.status_code, body["code"], body["limit"], body["at_most"]) == (409, "over_limit", "clusters", 1)
    assert "operator" in body["hint"]


def test_brokers_get_the_tenants_limits_and_do_not_restart_for_them(world: World, driver: DriverTwin) -> None:
    before = [daemon.process.configuration for daemon in replica_daemons(world.cluster, driver)]
    allow(world.cluster.tenant, messages_per_second=7)
    daemons = replica_daemons(world.cluster, driver)
    text = next(text for path, text in daemons[0].files.items() if path.endswith("broker.conf"))
    assert "quotaCredentialMessagesPerSecond=7\n" in text
    assert "quotaTopicMessagesPerSecond=7\n" in text
    assert [daemon.process.configuration for daemon in daemons] == before


def test_a_broker_reads_the_limits_that_it_is_given(world: World, driver: DriverTwin, tmp_path: Path) -> None:
    (daemon,) = replica_daemons(world.cluster, driver)
    conf = tmp_path / "broker.conf"
    conf.write_text(next(text for path, text in daemon.files.items() if path.endswith("broker.conf")))
    warnings: list[str] = []
    config = load_config(str(conf), environ={}, warn=warnings.append)
    assert (config.quota_stored_bytes, warnings) == (40 * 1024**3, [])


def test_an_operator_changes_a_limit_and_it_is_audited(world: World) -> None:
    call_command("set_limit", "acme", "messages_per_second", "9")
    tenant = Tenant.objects.get(slug="acme")
    assert broker_quota_keys(tenant)["quotaCredentialMessagesPerSecond"] == 9
    event = AuditEvent.objects.get(action="tenant.limit")
    assert event.details == {
        "limit": "messages_per_second",
        "before": 50_000,
        "after": 9,
        "reason": "set by hand",
    }
    call_command("set_limit", "acme", "messages_per_second", "default")
    assert Tenant.objects.get(slug="acme").limits == {}


def test_an_operator_raises_a_limit_with_a_reason_by_api_and_takes_it_back_on_the_page(
    world: World, api: Callable[..., Json]
) -> None:
    olga = User.objects.create_user("olga@example.com", is_staff=True)
    path = "/api/v1/operator/tenants/acme/limits/"
    answer = api(olga).call("PUT", f"{path}clusters/", {"value": 25, "reason": "They asked."})
    (clusters, *_) = answer.json()["limits"]
    assert (clusters["limit"], clusters["platform"], clusters["is_own"], clusters["used"]) == (25, 10, True, 1)
    operators = api(olga)
    assert "its own" in operators.get("/operator/limits/acme/").content.decode()
    given = {"name": "clusters", "value": "", "reason": "Enough."}
    assert operators.post("/operator/limits/acme/", given).status_code == 302
    assert Tenant.objects.get(slug="acme").limits == {}
    reasons = AuditEvent.objects.filter(action="tenant.limit").values_list("details__reason", flat=True)
    assert sorted(reasons) == ["Enough.", "They asked."]


def test_an_operator_lists_the_tenants_with_their_own_limits(world: World, api: Callable[..., Json]) -> None:
    Tenant.objects.filter(slug="acme").update(limits={"clusters": 25})
    olga = User.objects.create_user("olga@example.com", is_staff=True)
    found = api(olga).call("GET", "/api/v1/operator/tenants/?find=cm").json()["results"]
    assert [(one["slug"], one["limits"]) for one in found] == [("acme", {"clusters": 25})]


def test_a_limit_is_not_changed_without_a_reason_nor_by_the_tenants_owner(
    world: World, api: Callable[..., Json]
) -> None:
    olga = User.objects.create_user("olga@example.com", is_staff=True)
    path = "/api/v1/operator/tenants/acme/limits/clusters/"
    assert api(olga).call("PUT", path, {"value": 25, "reason": ""}).status_code == 400
    assert api(world.alice).call("PUT", path, {"value": 25, "reason": "more"}).status_code == 404
    assert Tenant.objects.get(slug="acme").limits == {}


def test_use_and_limit_are_shown_and_a_silent_broker_is_not_drawn_as_idle(
    world: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    quota = BrokerQuota("quotaTopicStoredBytes", "orders", 1_234_567, 20_000_000)
    uses = [
        BrokerUse(world.cluster, "broker-a, replica 0", (quota,)),
        BrokerUse(world.cluster, "broker-b, replica 0", None),
    ]
    monkeypatch.setattr(page, "broker_uses", lambda tenant: uses)
    text = api(world.bob).get("/t/acme/limits/").content.decode()
    assert "1.2 MiB" in text
    assert "19.1 MiB" in text
    assert "does not answer, so its use is not known" in text


def test_an_outsider_sees_no_limits(world: World, api: Callable[..., Json]) -> None:
    assert api(world.charlie).call("GET", "/api/v1/tenants/acme/limits/").status_code == 404


def test_the_api_lists_limits_with_their_use(
    world: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "broker_quotas", lambda brokers: [None for _ in brokers])
    body = api(world.bob).call("GET", "/api/v1/tenants/acme/limits/").json()
    assert next(limit for limit in body["limits"] if limit["name"] == "clusters")["used"] == 1
    assert body["brokers"]
    assert all(broker["quotas"] is None for broker in body["brokers"])
