"""A tenant's metrics as Prometheus scrapes them."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from controlplane.clusters.models import BrokerGroup, Cluster, ClusterMode, Health, NameServer, Replica
from controlplane.failover.models import ReplicaSample
from controlplane.failover.role_map import group_rows
from controlplane.insight import prometheus
from controlplane.insight.models import ClusterFigures, ClusterGroups
from controlplane.insight.prometheus import ALIASES, METRICS
from deploy.local.layout import REPOSITORY
from tests.controlplane.billing_world import lag_window
from tests.controlplane.world import Json, World, make_cluster

METRICS_PATH = "/api/v1/tenants/acme/metrics/"


def scraped(client: Json) -> dict[tuple[str, tuple[str, ...]], float]:
    """Values by name and the values of the labels by their names' order, as Prometheus' own parser reads them."""
    answer = client.call("GET", METRICS_PATH, Accept="application/openmetrics-text;q=0.8,text/plain;q=0.5,*/*;q=0.1")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = text_string_to_metric_families(answer.content.decode())
    return {(one.name, tuple(one.labels.values())): one.value for family in families for one in family.samples}


def test_figures_and_lag_are_reported_with_their_labels(world: World, api: Callable[..., Json]) -> None:
    ClusterFigures.objects.create(cluster=world.cluster, sampled_at=timezone.now(), in_per_second=4.5, stored_bytes=7)
    lag_window(world.cluster, timezone.now() - timedelta(minutes=5), lag=12, lag_ms=1500)
    found = scraped(api(world.bob))
    assert found["highwater_cluster_in_messages_per_second", ("orders",)] == 4.5
    assert found["highwater_cluster_stored_bytes", ("orders",)] == 7
    assert found["highwater_consumer_lag_messages", ("orders", "billing", "payments")] == 12
    assert found["highwater_consumer_lag_seconds", ("orders", "billing", "payments")] == 1.5


def test_connections_the_answer_time_and_the_largest_gap_are_reported(world: World, api: Callable[..., Json]) -> None:
    ClusterFigures.objects.create(
        cluster=world.cluster, sampled_at=timezone.now(), connections=3, answer_ms=12.5, replica_gap_bytes=4096
    )
    found = scraped(api(world.bob))
    assert found["highwater_cluster_connections", ("orders",)] == 3
    assert found["highwater_cluster_answer_seconds", ("orders",)] == 0.0125
    assert found["highwater_cluster_replica_gap_bytes", ("orders",)] == 4096


def test_bytes_a_second_and_what_sends_took_are_reported(world: World, api: Callable[..., Json]) -> None:
    ClusterFigures.objects.create(
        cluster=world.cluster, sampled_at=timezone.now(), in_bytes_per_second=2048.0, send_p50_ms=1.0, send_p99_ms=8.0
    )
    found = scraped(api(world.bob))
    assert found["highwater_cluster_in_bytes_per_second", ("orders",)] == 2048
    assert ("highwater_cluster_out_bytes_per_second", ("orders",)) not in found
    assert found["highwater_cluster_send_seconds", ("orders", "0.5")] == 0.001
    assert found["highwater_cluster_send_seconds", ("orders", "0.99")] == 0.008


def test_daemons_are_counted_and_those_that_are_down(world: World, api: Callable[..., Json]) -> None:
    cluster = world.cluster
    answered = {"health": Health.HEALTHY, "sampled_at": timezone.now()}
    NameServer.objects.filter(cluster=cluster).update(**answered)
    Replica.objects.filter(group__cluster=cluster).update(**answered | {"health": Health.DOWN})
    servers, brokers = cluster.name_servers.count(), Replica.objects.filter(group__cluster=cluster).count()
    found = scraped(api(world.bob))
    assert found["highwater_cluster_daemons", ("orders",)] == servers + brokers
    assert found["highwater_cluster_daemons_down", ("orders",)] == brokers > 0


def test_what_is_not_known_has_no_sample(world: World, api: Callable[..., Json]) -> None:
    ClusterFigures.objects.create(cluster=world.cluster, sampled_at=timezone.now(), in_per_second=4.5)
    lag_window(world.cluster, timezone.now() - timedelta(minutes=5), lag=12, lag_ms=None)
    found = scraped(api(world.bob))
    assert ("highwater_cluster_disk_used_ratio", ("orders",)) not in found
    assert ("highwater_cluster_answer_seconds", ("orders",)) not in found
    assert ("highwater_cluster_healthy", ("orders",)) not in found
    assert ("highwater_cluster_daemons_down", ("orders",)) not in found
    assert ("highwater_consumer_lag_seconds", ("orders", "billing", "payments")) not in found


def test_other_tenants_clusters_are_not_reported(world: World, api: Callable[..., Json]) -> None:
    cluster = make_cluster(world.globex, "secret")
    ClusterFigures.objects.create(cluster=cluster, sampled_at=timezone.now(), in_per_second=1.0)
    assert not [labels for _, labels in scraped(api(world.bob)) if "secret" in labels]


def test_a_token_that_may_only_read_is_enough(
    world: World, api: Callable[..., Json], token: Callable[..., str]
) -> None:
    assert scraped(api(token=token(role="viewer", scopes=("read",)))) is not None


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (REPOSITORY / "web" / "static" / "grafana" / "highwater.json").read_text("utf-8")
    )
    return found


def test_the_dashboard_asks_only_for_metrics_and_labels_that_exist() -> None:
    dashboard = _dashboard()
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    for expression in asked:
        names = re.findall(r"highwater_\w+", expression)
        labels = {"cluster", *(label for name in names for label in METRICS[name][1])}
        (used,) = re.findall(r"by \(([^)]*)\)", expression) or [""]
        assert names, expression
        assert {label.strip() for label in used.split(",") if label} <= labels, expression


def test_each_panel_of_the_dashboard_has_its_own_id_a_place_and_the_chosen_source() -> None:
    panels = _dashboard()["panels"]
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in panels]
    assert len({panel["id"] for panel in panels}) == len(set(places)) == len(panels)
    assert all(x + width <= 24 for x, _, width, _ in places)
    assert {panel["datasource"]["uid"] for panel in panels} == {"${source}"}


def test_the_page_of_channels_has_the_configuration_that_scrapes_this_tenant(
    world: World, api: Callable[..., Json]
) -> None:
    page = api(world.alice).get("/t/acme/alerts/channels/").content.decode()
    (text,) = re.findall(r'<code id="scrape-config">(.*?)</code>', page, re.DOTALL)
    (job,) = yaml.safe_load(html.unescape(text))["scrape_configs"]
    assert (job["metrics_path"], job["scheme"], job["static_configs"]) == (
        METRICS_PATH,
        "http",
        [{"targets": ["testserver"]}],
    )


def full_world(world: World) -> None:
    """Rows of which every metric has a sample."""
    now = timezone.now()
    answered = {"health": Health.HEALTHY, "sampled_at": now}
    NameServer.objects.filter(cluster=world.cluster).update(**answered)
    Replica.objects.filter(group__cluster=world.cluster).update(**answered)
    Cluster.objects.filter(pk=world.cluster.pk).update(mode=ClusterMode.SYNC)
    group = BrokerGroup.objects.get(cluster=world.cluster)
    master = group.replicas.get()
    slave = Replica.objects.create(group=group, broker_id=1, host="127.0.0.9", port=3, **answered)
    for replica, role in ((master, "master"), (slave, "slave")):
        ReplicaSample.objects.create(
            replica=replica, sampled_at=now, last_seen_at=now, role=role, epoch=1, gap_bytes=7, accepts_sends=True,
            claims=role == "master", end_offset=9, held_offset=9, in_sync=True,
        )  # fmt: skip
    ClusterFigures.objects.create(
        cluster=world.cluster, sampled_at=now, in_per_second=4.5, out_per_second=3.5, backlog_messages=12, stored_bytes=7,
        disk_used=0.5, connections=3, answer_ms=12.5, replica_gap_bytes=7, in_bytes_per_second=9, out_bytes_per_second=8,
        send_p50_ms=1, send_p99_ms=2,
    )  # fmt: skip
    lag_window(world.cluster, now - timedelta(minutes=5), lag=12, lag_ms=1500)
    lag_window(world.cluster, now - timedelta(minutes=5), topic="%RETRY%billing", lag=3, lag_ms=900)


def test_rocketmqs_own_names_have_the_same_values_in_their_units(world: World, api: Callable[..., Json]) -> None:
    full_world(world)
    found = scraped(api(world.bob))
    assert {name: value for name, value in found.items() if name[0].startswith("rocketmq_")} == {
        ("rocketmq_consumer_lag_messages", ("orders", "billing", "payments")): 12,
        ("rocketmq_consumer_lag_messages", ("orders", "billing", "%RETRY%billing")): 3,
        ("rocketmq_consumer_lag_latency", ("orders", "billing", "payments")): 1500,
        ("rocketmq_consumer_lag_latency", ("orders", "billing", "%RETRY%billing")): 900,
        ("rocketmq_storage_size", ("orders",)): 7,
        ("rocketmq_broker_tps", ("broker-a", "orders")): 4.5,
        ("rocketmq_broker_qps", ("broker-a", "orders")): 3.5,
        ("rocketmq_group_diff", ("orders", "billing", "payments")): 12,
        ("rocketmq_group_retrydiff", ("orders", "billing", "%RETRY%billing")): 3,
        ("rocketmq_group_get_latency_by_storetime", ("orders", "billing", "payments")): 1500,
        ("rocketmq_group_get_latency_by_storetime", ("orders", "billing", "%RETRY%billing")): 900,
        ("rocketmq_ha_replica_gap_bytes", ("broker-a", "orders", "0")): 7,
        ("rocketmq_ha_replica_gap_bytes", ("broker-a", "orders", "1")): 7,
        ("rocketmq_ha_role", ("broker-a", "orders", "0")): 1,
        ("rocketmq_ha_role", ("broker-a", "orders", "1")): 0,
    }


def test_the_endpoint_really_has_each_metric_that_is_promised(world: World, api: Callable[..., Json]) -> None:
    full_world(world)
    exposed = {name for name, _labels in scraped(api(world.bob))}
    assert exposed == {*METRICS, *ALIASES} - {"highwater_consumer_lag_series_left_out"}


def test_with_two_broker_groups_the_rate_is_of_the_cluster_and_no_brokers(
    world: World, api: Callable[..., Json]
) -> None:
    BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    ClusterFigures.objects.create(cluster=world.cluster, sampled_at=timezone.now(), in_per_second=4.5)
    assert scraped(api(world.bob))["rocketmq_broker_tps", ("", "orders")] == 4.5


@pytest.mark.parametrize("health", Health.values)
@pytest.mark.parametrize("age", [timedelta(0), timedelta(minutes=5)])
def test_a_broker_that_stands_alone_is_as_the_role_map_has_it(
    world: World, api: Callable[..., Json], health: str, age: timedelta
) -> None:
    at = timezone.now() - age
    Replica.objects.filter(group__cluster=world.cluster).update(health=health, sampled_at=at, health_since=at)
    (row,) = group_rows(world.cluster)
    (replica,) = row.replicas
    seen = replica.unreachable_since is not None or replica.last_seen_at is not None
    found = scraped(api(world.bob))
    up = found.get(("highwater_replica_up", ("broker-a", "orders", "0")))
    has_master = found.get(("highwater_broker_group_has_master", ("broker-a", "orders")))
    assert up == (int(replica.unreachable_since is None) if seen else None)
    assert has_master == (None if row.sampled_at is None else int(row.master_id is not None))
    assert ("rocketmq_ha_role", ("broker-a", "orders", "0")) in found or row.master_id is None


def test_one_cluster_is_scraped_by_its_name(world: World, api: Callable[..., Json]) -> None:
    make_cluster(world.acme, "second")
    client = api(world.bob)
    one = client.call("GET", f"{METRICS_PATH}?cluster=second").content.decode()
    assert set(re.findall(r'cluster="([^"]*)"', one)) == {"second"}
    assert client.call("GET", f"{METRICS_PATH}?cluster=none").status_code == 404


def test_the_series_of_lag_are_bounded_and_the_rest_is_counted(
    world: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "LAG_SERIES_MAX", 2)
    for number, lag in enumerate((5, 90, 7)):
        lag_window(world.cluster, timezone.now() - timedelta(minutes=5), consumer_group=f"g{number}", lag=lag)
    found = scraped(api(world.bob))
    groups = {labels[1] for name, labels in found if name == "highwater_consumer_lag_messages"}
    assert groups == {"g1", "g2"}
    assert found["highwater_consumer_lag_series_left_out", ("orders",)] == 1


def test_more_clusters_with_a_broker_each_take_no_more_questions(world: World, api: Callable[..., Json]) -> None:
    client = api(world.bob)
    with CaptureQueriesContext(connection) as of_one:
        scraped(client)
    for number in range(20):
        lag_window(make_cluster(world.acme, f"more-{number}"), timezone.now() - timedelta(minutes=5), lag=1)
    with CaptureQueriesContext(connection) as of_all:
        found = {labels[0] for name, labels in scraped(client) if name == "highwater_consumer_lag_messages"}
    assert len(found) == 20
    assert len(of_all) <= len(of_one)


def test_a_scrape_is_compressed_for_who_takes_it_so(world: World, api: Callable[..., Json]) -> None:
    for number in range(100):
        lag_window(world.cluster, timezone.now() - timedelta(minutes=5), consumer_group=f"group-{number}", lag=1)
    plain = api(world.bob).call("GET", METRICS_PATH)
    packed = api(world.bob).call("GET", METRICS_PATH, Accept_Encoding="gzip")
    assert packed["Content-Encoding"] == "gzip"
    assert len(packed.content) * 5 < len(plain.content)
    assert gzip.decompress(packed.content).decode() == plain.content.decode()
    refused = api(world.bob).call("GET", f"{METRICS_PATH}?cluster=none", Accept_Encoding="gzip")
    assert (refused.json()["status"], refused.has_header("Content-Encoding")) == (404, False)


@pytest.mark.parametrize(
    ("names", "topics", "age", "is_there"),
    [
        (["billing"], ["payments"], timedelta(0), True),
        (["billing"], None, timedelta(0), True),
        ([], ["payments"], timedelta(0), False),
        (["billing"], [], timedelta(0), False),
        ([], [], timedelta(minutes=20), True),  # it may have come after that
    ],
    ids=["known", "topics unknown", "group deleted", "topic deleted", "old list"],
)
def test_a_group_or_topic_that_was_deleted_has_no_series(
    world: World,
    api: Callable[..., Json],
    names: list[str],
    topics: list[str] | None,
    age: timedelta,
    is_there: bool,
) -> None:
    now = timezone.now()
    lag_window(world.cluster, now - timedelta(minutes=10), lag=12)
    ClusterGroups.objects.create(cluster=world.cluster, names=names, topics=topics, sampled_at=now - age)
    found = scraped(api(world.bob))
    assert (("highwater_consumer_lag_messages", ("orders", "billing", "payments")) in found) is is_there
