"""Lag: sentences as tables, history by the API, and what is said when the brokers don't answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster
from controlplane.insight import live as insight_live
from controlplane.insight import thresholds
from controlplane.insight.live import GroupLag, QueueLag, group_is_system
from controlplane.insight.models import Job, LagThreshold, LagWindow
from controlplane.insight.words import (
    DEFAULT_THRESHOLDS,
    drain_words,
    is_uneven,
    keeps_up,
    length_words,
    loss_foretold,
    trend_words,
    warnings_of,
)
from controlplane.topics.selectors import LiveState
from highwater import ConsumerProgress, MessageQueue, QueueProgress
from mqwire.names import AGE_LOOK_GROUP
from tests.controlplane.billing_world import lag_window, make_run
from tests.controlplane.world import Json, World, make_cluster

NOW = datetime.now(UTC).replace(microsecond=0)
LAG = "/api/v1/tenants/acme/clusters/orders/lag/"


def window(**values: Any) -> LagWindow:
    """A window that ends now."""
    length = {"window_start": NOW - timedelta(minutes=5), "window_seconds": 300}
    return LagWindow(**{"lag_messages_last": 1000, "drain_state": "draining", "stuck": False, **length, **values})


@pytest.mark.parametrize(
    ("values", "codes", "words"),
    [
        ({}, [], ""),
        ({"drain_state": "never", "trend_per_second": 3.0}, ["never_drains"], "never catches up"),
        ({"drain_state": "never", "trend_per_second": 3.0, "lag_messages_last": 1}, [], ""),
        ({"drain_state": "never", "trend_per_second": 0.01}, [], ""),
        ({"stuck": True, "drain_state": "never"}, ["stuck"], "The group is stuck"),
        ({"skew": 4.0}, ["skewed"], "4.0 times the average"),
        ({"skew": 4.0, "lag_messages_last": 9}, [], ""),
        (
            {"loses_data_at": NOW + timedelta(minutes=45)},
            ["loses_data"],
            f"will lose messages at about {NOW + timedelta(minutes=45):%Y-%m-%d %H:%M} UTC, in 45 min",
        ),
        ({"loses_data_at": NOW - timedelta(minutes=1)}, ["loses_data"], "The group is losing messages"),
        ({"loses_data_at": NOW, "stuck": True, "skew": 9.0}, ["loses_data", "stuck", "skewed"], "stuck"),
    ],
)
def test_warnings_come_in_words(values: dict[str, Any], codes: list[str], words: str) -> None:
    found = warnings_of([window(**values)], NOW)
    assert [warning.code for warning in found] == codes
    assert words in " ".join(warning.sentence for warning in found)


@pytest.mark.parametrize(
    ("skew", "lag", "uneven"), [(3.0, 100, True), (4.0, 8, False), (2.9, 9999, False), (None, None, False)]
)
def test_a_few_messages_on_one_queue_are_not_called_uneven(skew: float | None, lag: int | None, uneven: bool) -> None:
    assert is_uneven(skew, lag) is uneven


@pytest.mark.parametrize(
    ("lag", "stuck", "is_so"),
    [(8, False, True), (99, False, True), (100, False, False), (8, True, False), (0, False, False)],
)
def test_a_small_backlog_is_that_of_a_group_that_keeps_up(lag: int, stuck: bool, is_so: bool) -> None:
    assert keeps_up(window(lag_messages_last=lag, stuck=stuck, drain_state="never"), DEFAULT_THRESHOLDS) is is_so


@pytest.mark.parametrize(
    ("foretold", "hours_ahead", "is_said"),
    [
        ("x", 0.8, True),
        ("x", 0.9, False),
        ("xx", 1.6, True),
        ("xx", 60, False),
        ("xxxxx", 60, False),
        ("xxxxxx", 60, True),
        ("xxx-xxx", 60, False),
        ("xxxxxxx-", 60, False),
        ("-x", 0, True),
        ("xxxxxx", -1, True),
    ],
)
def test_a_loss_is_foretold_from_a_trend_that_has_lasted(foretold: str, hours_ahead: float, is_said: bool) -> None:
    """A letter is a window of five minutes: `x` foretells a loss, `-` none."""
    at = NOW + timedelta(hours=hours_ahead)
    windows = [
        window(window_start=NOW - timedelta(minutes=5 * back), loses_data_at=at if letter == "x" else None)
        for back, letter in zip(range(len(foretold), 0, -1), foretold, strict=True)
    ]
    assert loss_foretold(windows) == (at if is_said else None)


@pytest.mark.parametrize(
    ("per_second", "words"),
    [
        (None, ""),
        (0.0, "steady"),
        (-0.004, "steady"),
        (0.5, "grows by 0.50 messages/s"),
        (-3.217, "shrinks by 3.22 messages/s"),
        (12345.6, "grows by 12,346 messages/s"),
    ],
)
def test_a_trend_in_words(per_second: float | None, words: str) -> None:
    assert trend_words(per_second) == words


@pytest.mark.parametrize(
    ("state", "seconds", "words"),
    [
        ("drained", 0.0, "caught up"),
        ("draining", 310.0, "in about 5 min"),
        ("never", None, "not at this rate"),
        ("unknown", None, ""),
        ("draining", None, ""),
        ("draining", 8.4e18, "not at this rate"),
    ],
)
def test_when_a_lag_is_gone_in_words(state: str, seconds: float | None, words: str) -> None:
    assert drain_words(state, seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_a_length_of_time_in_words(seconds: float, words: str) -> None:
    assert length_words(timedelta(seconds=seconds)) == words


def live(*lags: tuple[int, int | None]) -> GroupLag:
    queues = tuple(QueueLag("payments", "broker-a", place, 0, lag, age) for place, (lag, age) in enumerate(lags))
    return GroupLag("billing", LiveState.LIVE, NOW, queues)


@pytest.mark.parametrize(
    ("group", "messages", "age", "skew"),
    [
        (live(), 0, 0, None),
        (live((0, 0), (0, 0)), 0, 0, None),
        (live((10, 500), (0, 0)), 10, 500, 2.0),
        (live((10, 500), (10, 900)), 20, 900, 1.0),
        (live((10, None), (0, 0)), 10, None, 2.0),
        (GroupLag("billing", LiveState.UNREACHABLE, NOW), None, None, None),
    ],
)
def test_a_groups_lag_is_its_queues_and_unknown_stays_unknown(
    group: GroupLag, messages: int | None, age: int | None, skew: float | None
) -> None:
    assert (group.lag_messages, group.lag_ms, group.skew) == (messages, age, skew)


@pytest.mark.parametrize(
    ("name", "is_system"),
    [
        ("billing", False),
        ("TOOLS_CONSUMER", True),
        ("CID_RMQ_SYS_TRANS", True),
        ("CID_ONS-HTTP-PROXY", True),
        ("CID_SYS_RMQ_TRANS", True),
        ("HIGHWATER_CONSOLE", True),
    ],
)
def test_groups_of_rocketmqs_own_are_left_out(name: str, is_system: bool) -> None:
    assert group_is_system(name) is is_system


def test_brokers_that_do_not_answer_are_said_so(world: World, api: Callable[..., Json]) -> None:
    answer = api(world.bob).call("GET", LAG)
    assert (answer.status_code, answer.json()["code"]) == (503, "broker_unreachable")
    found = api(world.bob).call("GET", f"{LAG}billing/").json()
    assert (found["state"], found["lag_messages"], found["lag_ms"], found["queues"]) == (
        "unreachable",
        None,
        None,
        None,
    )
    assert "does not answer" in found["message"]


def test_the_newest_window_of_each_topic_comes_with_its_warnings(world: World, api: Callable[..., Json]) -> None:
    for topic in ("payments", "refunds"):
        for minutes in (10, 5):
            lag_window(
                world.cluster,
                NOW - timedelta(minutes=minutes),
                topic=topic,
                lag=minutes * 100,
                stuck=topic == "refunds",
                drain_state="never",
                trend_per_second=2.0,
            )
    lag_window(world.cluster, NOW - timedelta(hours=3), topic="old", lag=7)
    outlook = api(world.bob).call("GET", f"{LAG}billing/").json()["outlook"]
    assert [(one["topic"], one["lag_messages_last"]) for one in outlook] == [("payments", "500"), ("refunds", "500")]
    assert [[warning["code"] for warning in one["warnings"]] for one in outlook] == [["never_drains"], ["stuck"]]


def test_a_loss_days_ahead_is_said_when_half_an_hour_foretold_it(world: World, api: Callable[..., Json]) -> None:
    for topic, lasting in (("payments", 6), ("refunds", 5)):
        for back in range(8, 0, -1):
            lag_window(
                world.cluster,
                NOW - timedelta(minutes=5 * back),
                topic=topic,
                lag=5000,
                loses_data_at=NOW + timedelta(days=2) if back <= lasting else None,
            )
    outlook = api(world.bob).call("GET", f"{LAG}billing/").json()["outlook"]
    assert [(one["topic"], [warning["code"] for warning in one["warnings"]]) for one in outlook] == [
        ("payments", ["loses_data"]),
        ("refunds", []),
    ]


def test_a_group_has_its_own_thresholds(world: World, api: Callable[..., Json]) -> None:
    lag_window(world.cluster, NOW - timedelta(minutes=5), lag=500, drain_state="never", trend_per_second=2.0)
    path = f"{LAG}billing/thresholds/"

    def warned() -> list[str]:
        (one,) = api(world.bob).call("GET", f"{LAG}billing/").json()["outlook"]
        return [warning["code"] for warning in one["warnings"]]

    assert api(world.bob).call("GET", path).json() == {"lag_messages": 100, "growth_per_second": 0.1}
    assert warned() == ["never_drains"]
    for values in (
        {"lag_messages": 501, "growth_per_second": "2"},
        {"lag_messages": 500, "growth_per_second": "2.001"},
    ):
        assert api(world.bob).call("PUT", path, values).status_code == 200
        assert warned() == []
    assert api(world.bob).call("PUT", path, {"lag_messages": 500, "growth_per_second": "2"}).status_code == 200
    assert warned() == ["never_drains"]


@pytest.mark.parametrize("values", [{"lag_messages": -1, "growth_per_second": 1}, {"lag_messages": 1}])
def test_thresholds_that_are_none_are_refused(world: World, api: Callable[..., Json], values: dict[str, int]) -> None:
    answer = api(world.bob).call("PUT", f"{LAG}billing/thresholds/", values)
    assert (answer.status_code, bool(answer.json()["errors"])) == (400, True)


def test_no_more_groups_than_a_thousand_have_thresholds_and_the_defaults_take_none(
    world: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group need not exist to be given some."""
    monkeypatch.setattr(thresholds, "GROUPS_MAX", 2)

    def put(group: str, lag_messages: int, growth: str = "0.1") -> tuple[int, str]:
        body = {"lag_messages": lag_messages, "growth_per_second": growth}
        answer = api(world.bob).call("PUT", f"{LAG}{group}/thresholds/", body)
        return answer.status_code, answer.json().get("code", "")

    assert [put("one", 7), put("two", 7), put("three", 7)] == [(200, ""), (200, ""), (409, "over_limit")]
    assert put("one", 8) == (200, "")
    assert put("one", 100) == (200, "")
    assert put("three", 100) == (200, "")
    assert set(LagThreshold.objects.values_list("consumer_group", flat=True)) == {"two"}
    assert put("three", 7) == (200, "")


def test_history_is_by_queue_and_broker_oldest_first(world: World, api: Callable[..., Json]) -> None:
    make_run(job=Job.LAG_ANALYTICS, until=NOW)
    for minutes in (10, 5):
        start = NOW - timedelta(minutes=minutes)
        lag_window(world.cluster, start, lag=minutes)
        for broker in ("broker-a", "broker-b"):
            lag_window(world.cluster, start, broker=broker, queue_id=0, lag=minutes, lag_ms=None)
    lag_window(world.cluster, NOW - timedelta(minutes=5), consumer_group="other")
    lag_window(make_cluster(world.globex, "orders"), NOW - timedelta(minutes=5), lag=99)
    found = api(world.bob).call("GET", f"{LAG}billing/history/?topic=payments").json()
    assert [one["lag_messages_max"] for one in found["windows"]] == ["10", "5"]
    assert [(queue["broker"], queue["queue_id"], len(queue["windows"])) for queue in found["queues"]] == [
        ("broker-a", 0, 2),
        ("broker-b", 0, 2),
    ]
    assert found["queues"][0]["windows"][0]["lag_ms_max"] is None
    assert datetime.fromisoformat(found["counted_until"]) == NOW


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "topic"),
        ("topic=x&since=yesterday", "since"),
        ("topic=x&since=2026-11-02T00:00:00Z&until=2026-11-01T00:00:00Z", "until"),
        ("topic=x&since=2026-01-01T00:00:00Z&until=2026-11-01T00:00:00Z", "since"),
    ],
)
def test_a_bad_range_is_reported_beside_its_field(
    world: World, api: Callable[..., Json], query: str, field: str
) -> None:
    answer = api(world.bob).call("GET", f"{LAG}billing/history/?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)


def test_a_history_with_too_many_windows_is_asked_for_in_parts(
    world: World, api: Callable[..., Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.insight.selectors.HISTORY_WINDOWS_MAX", 2)
    for minutes in (5, 10, 15):
        lag_window(world.cluster, NOW - timedelta(minutes=minutes))
    answer = api(world.bob).call("GET", f"{LAG}billing/history/?topic=payments")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "too_long")


class _Progress:
    """Administration that knows one group, with one message waiting in each of two queues, stored so long ago."""

    def __init__(self, *ages_s: float) -> None:
        self.ages_s = ages_s

    @contextmanager
    def admin(self, _cluster: Cluster) -> Iterator[_Progress]:
        yield self

    def consumer_progress(self, group: str) -> ConsumerProgress:
        queues = (MessageQueue("payments", "broker-a", number) for number in range(len(self.ages_s)))
        return ConsumerProgress(group, tuple(QueueProgress(queue, 5, 4, 4, None) for queue in queues), 1.0)

    def pull(self, queue: MessageQueue, _offset: int, _count: int, *, group: str) -> list[Any]:
        assert group == AGE_LOOK_GROUP, "else the tenant would pay for each look"
        stored_at = timezone.now() - timedelta(seconds=self.ages_s[queue.queue_id])
        return [SimpleNamespace(store_timestamp_ms=round(stored_at.timestamp() * 1000))]


@pytest.mark.parametrize(
    ("ages_s", "known", "is_noted"),
    [((30, 60), True, False), ((30, -1), True, False), ((30, -3600), False, True)],
)
def test_where_a_brokers_clock_is_ahead_no_age_is_known_and_the_page_says_why(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    api: Callable[..., Json],
    ages_s: tuple[float, ...],
    known: bool,
    is_noted: bool,
) -> None:
    monkeypatch.setattr(insight_live, "cluster_admin", _Progress(*ages_s).admin)
    (found,) = insight_live.groups_live(world.cluster, ["billing"])
    assert (found.lag_ms is not None) is known
    assert bool(found.clock_note) is is_noted
    page = api(world.alice).get("/t/acme/clusters/orders/lag/billing/").content.decode()
    assert ('data-note="clock"' in page) is is_noted


def test_a_week_of_history_without_a_gap_is_one_answer(world: World, api: Callable[..., Json]) -> None:
    """The longest span that the console offers."""
    end = NOW.replace(second=0, minute=NOW.minute // 5 * 5)
    first = lag_window(world.cluster, end - timedelta(days=7))
    values = {field.name: getattr(first, field.name) for field in LagWindow._meta.fields if field.name != "id"}
    LagWindow.objects.bulk_create(
        LagWindow(**{**values, "window_start": first.window_start + number * timedelta(minutes=5)})
        for number in range(1, 7 * 24 * 12)
    )
    query = f"topic=payments&since={first.window_start:%Y-%m-%dT%H:%M:%SZ}&until={end:%Y-%m-%dT%H:%M:%SZ}"
    answer = api(world.bob).call("GET", f"{LAG}billing/history/?{query}")
    assert answer.status_code == 200, answer.content
    assert len(answer.json()["windows"]) == 7 * 24 * 12
