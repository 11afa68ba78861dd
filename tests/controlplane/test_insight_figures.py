"""What flows through a cluster: summed over its leaders, kept for a day, and unknown where a leader does not say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, Replica
from controlplane.failover.models import ReplicaSample
from controlplane.insight import figures as insight_figures
from controlplane.insight.figures import (
    POINTS_MAX,
    Figures,
    figures_expire,
    figures_history,
    figures_latest,
    figures_of,
)
from controlplane.insight.models import ClusterFigures, ClusterGroups
from tests.controlplane.world import Json, World
from tests.failover.replicated import make_replicated

FIGURES = "/api/v1/tenants/acme/clusters/orders/figures/"


def leader(**changes: str) -> dict[str, str]:
    """The runtime information of one leader."""
    return {
        "putTps": "9.00 4.50 1.00",
        "getTransferredTps": "8.00 4.00 1.00",
        "consumerLagMessages": "7",
        "commitLogMinOffset": "100",
        "commitLogMaxOffset": "1100",
        "commitLogDiskRatio": "0.25",
        "clientConnections": "5",
        "deadLetterMessages": "3",
        "quotas": '[{"quota": "quotaStoredBytes", "name": "", "used": 30, "limit": 100},'
        ' {"quota": "quotaTopicMessagesPerSecond", "name": "a", "used": 99, "limit": 100}]',
        "consumerGroupsAway": '["billing"]',
        "putBytesPerSecond": "900.00 450.00 1.00",
        "getBytesPerSecond": "800.00 400.00 1.00",
        "sendLatency": "[[1.0,99],[8.0,1]]",
        **changes,
    }


def make_figures(world: World, *, age: timedelta = timedelta(), **values: Any) -> ClusterFigures:
    return ClusterFigures.objects.create(cluster=world.cluster, sampled_at=timezone.now() - age, **values)


def test_figures_are_summed_over_the_leaders_and_the_fullest_disk_counts() -> None:
    found = figures_of([leader(), leader(commitLogDiskRatio="0.5")], groups=2)
    assert found == Figures(
        in_per_second=9.0,
        out_per_second=8.0,
        backlog_messages=14,
        stored_bytes=2000,
        disk_used=0.5,
        connections=10,
        dead_letters=6,
        quota_used=0.3,
        groups_away=["billing"],
        groups_away_count=1,
        in_bytes_per_second=900.0,
        out_bytes_per_second=800.0,
        send_p50_ms=1.0,
        send_p99_ms=1.0,
    )


@pytest.mark.parametrize("quota", ["quotaConnections", "quotaHeldPulls", "quota.held.pulls", "quotaMessagesPerSecond"])
def test_what_is_meant_to_be_used_up_is_not_the_fullest_quota(quota: str) -> None:
    found = figures_of([leader(quotas=f'[{{"quota": "{quota}", "name": "a", "used": 9, "limit": 9}}]')], groups=1)
    assert found.quota_used == 0


def test_a_group_that_is_away_from_one_leader_is_away_and_the_fullest_quota_counts() -> None:
    found = figures_of(
        [
            leader(consumerGroupsAway='["shipping"]'),
            leader(consumerGroupsAway='["billing"]', quotas='[{"quota": "quotaStoredBytes", "used": 9, "limit": 10}]'),
        ],
        groups=2,
    )
    assert (found.groups_away, found.quota_used) == (["billing", "shipping"], 0.9)


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ({"putTps": "  "}, "in_per_second"),
        ({"putTps": ""}, "in_per_second"),
        ({"getTransferredTps": "1.00  "}, "out_per_second"),
        ({"consumerLagMessages": ""}, "backlog_messages"),
        ({"commitLogMaxOffset": "x"}, "stored_bytes"),
        ({"commitLogDiskRatio": ""}, "disk_used"),
        ({"clientConnections": ""}, "connections"),
        ({"deadLetterMessages": ""}, "dead_letters"),
        ({"quotas": ""}, "quota_used"),
        ({"consumerGroupsAway": ""}, "groups_away"),
        ({"putBytesPerSecond": "1.00  "}, "in_bytes_per_second"),
        ({"getBytesPerSecond": ""}, "out_bytes_per_second"),
    ],
)
def test_a_value_that_one_leader_does_not_report_is_unknown(changes: dict[str, str], unknown: str) -> None:
    found = figures_of([leader(), leader(**changes)], groups=2)
    assert getattr(found, unknown) is None
    measured_by_us = {"answer_ms", "replica_gap_bytes"}
    reported = [
        name for name in Figures.__slots__ if not name.startswith("groups_away_") and name not in measured_by_us
    ]
    assert sum(getattr(found, name) is None for name in reported) == 1


def test_what_sends_took_is_counted_over_all_leaders() -> None:
    slow = leader(sendLatency="[[1.0,90],[8.0,20]]")
    found = figures_of([leader(), slow], groups=2)
    assert (found.send_p50_ms, found.send_p99_ms) == (1.0, 8.0)


@pytest.mark.parametrize("reported", ["", "[]"])
def test_what_no_send_took_or_a_leader_of_before_does_not_report_is_not_known(reported: str) -> None:
    found = figures_of([leader(sendLatency=reported)], groups=1)
    assert (found.send_p50_ms, found.send_p99_ms) == (None, None)


def test_what_sends_took_is_not_known_of_a_cluster_of_which_one_leader_does_not_report_it() -> None:
    found = figures_of([leader(), leader(sendLatency="")], groups=2)
    assert (found.send_p50_ms, found.send_p99_ms) == (None, None)


def test_past_the_name_that_a_leader_cuts_its_groups_at_nothing_is_known_of_the_others() -> None:
    cut = leader(consumerGroupsAway='["a", "m"]', consumerGroupsAwayCount="170")
    whole = leader(consumerGroupsAway='["z"]', consumerGroupsAwayCount="1")
    found = figures_of([cut, whole], groups=2)
    assert (found.groups_away, found.groups_away_known_to, found.groups_away_count) == (["a", "m", "z"], "m", 170)


class ClusterTwin:
    """A cluster of one leader, which takes 2 ms of a clock's to answer a small request."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def cluster_info(self) -> ClusterTwin:
        return self

    def master_addresses(self, cluster: str) -> list[str]:
        return ["127.0.0.1:10911"]

    def broker_runtime_info(self, address: str) -> dict[str, str]:
        return leader(consumerGroupsAway="[]")

    def broker_config(self, address: str) -> dict[str, str]:
        self.now_s += 0.002
        return {}


def test_a_sample_has_the_answer_time_of_the_leaders_and_the_largest_gap_of_a_follower(world: World) -> None:
    cluster = make_replicated(world.acme, "pair", "async")
    for replica, gap_bytes in zip(Replica.objects.filter(group__cluster=cluster), (0, 4096), strict=True):
        ReplicaSample.objects.create(replica=replica, sampled_at=timezone.now(), gap_bytes=gap_bytes)
    twin = ClusterTwin()
    with (
        patch.object(insight_figures, "cluster_admin", lambda _: nullcontext(twin)),
        patch.object(insight_figures, "time", twin),
    ):
        assert insight_figures.cluster_figures_sample(cluster.pk)
    found = ClusterFigures.objects.get(cluster=cluster)
    assert (found.answer_ms, found.replica_gap_bytes, found.connections) == (2.0, 4096, 5)


class GroupsTwin:
    """A cluster whose brokers know two groups and a topic."""

    asked = 0

    def group_list(self, *, cluster: str) -> tuple[str, ...]:
        self.asked += 1
        return ("billing", "shipping")

    def topic_list(self, *, cluster: str) -> tuple[str, ...]:
        return ("payments",)


def sample(cluster: Cluster, admin: GroupsTwin, *away: str, all_lead: bool = True) -> None:
    found = Figures(groups_away=list(away))
    insight_figures._groups_sample(cluster, admin, found, all_lead=all_lead)  # type: ignore[arg-type]  # a twin


def test_the_groups_that_brokers_know_are_asked_for_once_a_minute_where_one_is_away(world: World) -> None:
    admin = GroupsTwin()
    sample(world.cluster, admin)
    assert admin.asked == 0
    for _ in range(2):
        sample(world.cluster, admin, "gone")
    assert admin.asked == 1
    assert ClusterGroups.objects.get(cluster=world.cluster).names == ["billing", "shipping"]


@pytest.mark.parametrize(("all_lead", "topics"), [(True, ["payments"]), (False, None)])
def test_topics_are_known_while_every_group_has_its_leader(
    world: World, all_lead: bool, topics: list[str] | None
) -> None:
    sample(world.cluster, GroupsTwin(), "gone", all_lead=all_lead)
    assert ClusterGroups.objects.get(cluster=world.cluster).topics == topics


@pytest.mark.parametrize("leaders", [[], [leader()]])
def test_without_the_leader_of_a_group_nothing_is_known(leaders: list[dict[str, str]]) -> None:
    assert figures_of(leaders, groups=2) == Figures()


def test_old_figures_are_not_called_the_newest(world: World) -> None:
    make_figures(world, age=timedelta(seconds=61), backlog_messages=1)
    assert figures_latest([world.cluster]) == {}
    newest = make_figures(world, age=timedelta(seconds=30), backlog_messages=2)
    assert figures_latest([world.cluster]) == {world.cluster.pk: newest}


def test_a_long_history_is_thinned_out_and_keeps_the_newest(world: World) -> None:
    now = timezone.now()
    moments = [now - timedelta(seconds=15 * place) for place in range(3 * POINTS_MAX)]
    ClusterFigures.objects.bulk_create(ClusterFigures(cluster=world.cluster, sampled_at=moment) for moment in moments)
    found = figures_history(world.cluster, now - timedelta(days=1), now + timedelta(seconds=1))
    assert len(found) == POINTS_MAX
    assert found[-1].sampled_at == now
    assert found == sorted(found, key=lambda row: row.sampled_at)


def test_figures_are_kept_for_a_day(world: World) -> None:
    make_figures(world, age=timedelta(hours=25))
    kept = make_figures(world, age=timedelta(hours=23))
    assert figures_expire() == 1
    assert list(ClusterFigures.objects.all()) == [kept]


def test_the_api_returns_figures_now_and_of_the_last_hour(world: World, api: Callable[..., Json]) -> None:
    make_figures(world, age=timedelta(minutes=90), backlog_messages=1)
    make_figures(world, age=timedelta(minutes=30), backlog_messages=2)
    make_figures(world, in_per_second=0.0, backlog_messages=2**60)
    answer = api(world.bob).call("GET", FIGURES).json()
    assert answer["now"]["backlog_messages"] == str(2**60)
    assert answer["now"]["in_per_second"] == 0.0
    assert answer["now"]["out_per_second"] is None
    assert [sample["backlog_messages"] for sample in answer["samples"]] == ["2", str(2**60)]


def test_the_api_says_null_when_the_figures_are_old(world: World, api: Callable[..., Json]) -> None:
    make_figures(world, age=timedelta(minutes=2), backlog_messages=1)
    assert api(world.bob).call("GET", FIGURES).json()["now"] is None


def test_a_span_that_ends_before_it_begins_is_refused(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.bob).call("GET", f"{FIGURES}?since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "since"


@pytest.mark.parametrize("path", [f"{FIGURES}?", FIGURES.replace("figures/", "lag/billing/history/?topic=invoices&")])
@pytest.mark.parametrize("year", ["0001", "9999"])
def test_a_span_at_the_calendars_end_is_refused(world: World, api: Callable[..., Json], path: str, year: str) -> None:
    answer = api(world.bob).call("GET", f"{path}until={year}-01-01T00:00:00Z")
    assert [error["field"] for error in answer.json()["errors"]] == ["until"], answer.json()


def test_an_outsider_sees_no_figures(world: World, api: Callable[..., Json]) -> None:
    assert api(world.charlie).call("GET", FIGURES).status_code == 404
