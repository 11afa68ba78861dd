"""A tenant's metrics as Prometheus scrapes them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import yaml
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from controlplane.clusters.models import Health, NameServer, Replica
from controlplane.insight.models import ClusterFigures
from controlplane.insight.prometheus import METRICS
from deploy.local.layout import REPOSITORY
from tests.controlplane.billing_world import lag_window
from tests.controlplane.world import Json, World, make_cluster

METRICS_PATH = "/api/v1/tenants/acme/metrics/"


def scraped(client: Json) -> dict[tuple[str, tuple[str, ...]], float]:
    """Values by name and the values of the labels in their order, as Prometheus' own parser reads them."""
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
