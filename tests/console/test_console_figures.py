"""A cluster's live figures on its page and in the list, and the page that says how to connect."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from controlplane.clusters.models import ClusterState
from controlplane.insight.models import ClusterFigures
from tests.console.browser import LogIn, assert_drawn, look_at
from tests.console.world import World, make_cluster, make_topic


def flow(world: World, minutes: int = 0) -> None:
    """Figures each half minute, the newest now, with a hole of five minutes."""
    now = timezone.now()
    ClusterFigures.objects.bulk_create(
        ClusterFigures(
            cluster=world.cluster,
            sampled_at=now - timedelta(seconds=30 * place),
            in_per_second=1234.4 + 90 * (place % 7),
            out_per_second=3.94 + 60 * (place % 5),
            backlog_messages=56_789 + 500 * place,
            stored_bytes=3 * 2**30,
            disk_used=0.374,
            connections=12 + place % 3,
            answer_ms=1.4 + place % 4,
            replica_gap_bytes=4096 * (place % 5),
            in_bytes_per_second=1_264_000.0 + 90_000 * (place % 7),
            out_bytes_per_second=4096.0 + 61_000 * (place % 5),
            send_p50_ms=0.8 + place % 2,
            send_p99_ms=3.2 + place % 6,
        )
        for place in range(2 * minutes + 1)
        if not 20 <= place < 30
    )


def text(page: str) -> str:
    """A page's words alone."""
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))


def test_the_list_shows_mode_rates_and_backlog(world: World) -> None:
    flow(world)
    page = text(world.client(world.victor).get(world.path()).content.decode())
    assert "Single 1 234/s 3.9/s 56 789" in page


def test_the_list_shows_figures_that_are_not_known_as_unknown(world: World) -> None:
    page = text(world.client(world.victor).get(world.path()).content.decode())
    assert "Single – – –" in page


def test_the_list_asks_for_the_figures_of_all_clusters_at_once(world: World) -> None:
    make_cluster(world.tenant, "another")
    client = world.client(world.victor)
    with CaptureQueriesContext(connection) as queries:
        client.get(world.path())
    assert sum("insight_cluster_figures" in query["sql"] for query in queries) == 1


def test_the_page_shows_live_figures(world: World) -> None:
    flow(world)
    page = text(world.client(world.victor).get(world.cluster_path()).content.decode())
    for words in ("In 1 234/s", "Out 3.9/s", "Backlog 56 789", "Stored 3.0 GiB disk 37 % full"):
        assert words in page


@pytest.mark.parametrize(("age", "words"), [(None, "have not reported yet"), (300, "have not reported since")])
def test_figures_that_are_missing_are_said_to_be_and_never_0(world: World, age: int | None, words: str) -> None:
    if age is not None:
        moment = timezone.now() - timedelta(seconds=age)
        ClusterFigures.objects.create(cluster=world.cluster, sampled_at=moment, backlog_messages=7)
    part = world.client(world.victor).get(world.cluster_path("figures/")).content.decode()
    assert 'data-state="unknown"' in part
    assert words in part
    assert "Backlog –" in text(part)


def test_a_hole_in_the_samples_is_a_gap_in_the_curve(world: World) -> None:
    flow(world, minutes=30)
    charts = world.client(world.victor).get(world.cluster_path("curves/")).context["charts"]
    values = json.loads(charts[0].json)["series"][0]["values"]
    assert values.count(None) == 1
    assert values.index(None) == len(values) - 1 - 20


def test_what_a_cluster_never_reports_has_no_curve(world: World) -> None:
    flow(world)
    ClusterFigures.objects.update(replica_gap_bytes=None)
    charts = world.client(world.victor).get(world.cluster_path("curves/")).context["charts"]
    assert [chart.id for chart in charts[2:]] == [
        "figures-bytes",
        "figures-sends",
        "figures-answer",
        "figures-connections",
        "figures-disk",
    ]


def test_the_programs_are_on_the_page_connect_and_not_on_the_clusters(world: World) -> None:
    make_topic(world.cluster, "payments")
    client = world.client(world.victor)
    overview = client.get(world.cluster_path()).content.decode()
    connect = client.get(world.cluster_path("connect/")).content.decode()
    assert "Your first program" not in overview
    assert f'href="{world.cluster_path("connect/")}"' in overview
    assert "Your first program" in connect
    assert "payments" in connect


def test_a_cluster_without_an_address_says_when_programs_can_connect(world: World) -> None:
    cluster = make_cluster(world.tenant, "staging", ClusterState.REQUESTED)
    cluster.name_servers.all().delete()
    page = world.client(world.victor).get(world.path("clusters/staging/connect/")).content.decode()
    assert "No address yet" in page


def test_curves_are_drawn_and_drawn_again_without_closing_the_table(
    page: Page, live_server: LiveServer, world: World, log_in: LogIn
) -> None:
    flow(world, minutes=50)
    log_in(world.alice)
    page.clock.install()
    page.goto(live_server.url + world.cluster_path())
    assert_drawn(page, "figures-rates")
    for chart in (
        "figures-backlog",
        "figures-bytes",
        "figures-sends",
        "figures-answer",
        "figures-connections",
        "figures-disk",
        "figures-gap",
    ):
        assert_drawn(page, chart)
    look_at(page, "cluster figures")
    page.locator("figure", has_text="Backlog in messages").locator("summary").click()
    ClusterFigures.objects.create(
        cluster=world.cluster, sampled_at=timezone.now(), in_per_second=1, out_per_second=1, backlog_messages=987_654
    )
    page.clock.run_for(16_000)
    expect(page.locator("[data-twin=figures-backlog] tbody tr").last).to_contain_text("987\u202f654")
    expect(page.locator("[data-twin=figures-backlog]")).to_be_visible()
    assert_drawn(page, "figures-backlog")
