"""How long sends took, as the broker counts and reports it."""

from __future__ import annotations

import pytest

from brokerd.send_latency import SendLatency, distribution
from brokerd.services.acknowledgement import PendingAcknowledgements
from mqwire.bodies import KVTable
from mqwire.codes import RequestCode
from mqwire.latency import BOUNDS_MS, latency_from_json, latency_quantile_ms, latency_sum, latency_to_json
from tests.brokerd.broker_under_test import BrokerUnderTest, ManualClock, RecordingPeer
from tests.brokerd.metered_broker import send

SECOND_SAMPLE_S = 10.0


def observed(*times_s: float) -> list[int]:
    """The counts of sends that took so long, as a broker that has just started reports them."""
    latency = SendLatency()
    latency.sample(0.0)
    for took_s in times_s:
        latency.observe(took_s, 1)
    latency.sample(SECOND_SAMPLE_S)
    counts = latency.last_minute()
    assert counts is not None
    return counts


def quantile_ms(counts: list[int], share: float) -> float | None:
    return latency_quantile_ms(latency_from_json(latency_to_json(counts)) or {}, share)


@pytest.mark.parametrize("took_ms", [0.001, 0.1, 0.11, 1.0, 7.5, 250.0, 10_000.0])
def test_a_quantile_is_at_most_a_fifth_above_what_was_seen(took_ms: float) -> None:
    found = quantile_ms(observed(took_ms / 1000), 0.99)
    assert found is not None
    assert max(took_ms, BOUNDS_MS[0]) <= found <= max(took_ms * 1.2, BOUNDS_MS[0])


def test_one_slow_send_of_a_hundred_is_not_in_the_ninety_ninth_hundredth() -> None:
    counts = observed(*[0.001] * 99, 1.0)
    median_ms, p99_ms, most_ms = (quantile_ms(counts, share) for share in (0.5, 0.99, 1))
    assert median_ms == p99_ms
    assert p99_ms is not None
    assert p99_ms < 2
    assert most_ms is not None
    assert most_ms > 999


def test_what_took_longer_than_every_bound_is_the_last_bound() -> None:
    assert quantile_ms(observed(1000.0), 0.99) == BOUNDS_MS[-1]


def test_without_a_send_there_is_no_quantile() -> None:
    assert quantile_ms(observed(), 0.99) is None


def test_nothing_is_said_before_the_second_sample() -> None:
    latency = SendLatency()
    latency.observe(0.001, 5)
    latency.sample(0.0)
    assert latency.last_minute() is None


def test_sends_of_more_than_a_minute_ago_are_not_counted() -> None:
    latency = SendLatency()
    latency.sample(0.0)
    latency.observe(5.0, 7)
    for now_s in range(10, 80, 10):
        latency.sample(float(now_s))
    counts = latency.last_minute()
    assert counts is not None
    assert sum(counts) == 0


def test_the_counts_of_two_brokers_add_up() -> None:
    both = latency_sum([{1.0: 99}, {1.0: 1, float("inf"): 1}])
    assert both == {1.0: 100, float("inf"): 1}


@pytest.mark.parametrize("text", [None, "", "x", "3", '{"a": 1}', "[[1, 2, 3]]"])
def test_what_is_no_count_is_not_known(text: str | None) -> None:
    assert latency_from_json(text) is None


def test_rocketmqs_places_hold_whole_milliseconds() -> None:
    shown = distribution(observed(0.0004, 0.005, 0.03, 0.7, 20.0)).split(" ")
    assert [place for place in shown if not place.endswith(":0")] == [
        "[<=0ms]:1",
        "[0~10ms]:1",
        "[10~50ms]:1",
        "[500ms~1s]:1",
        "[10s~]:1",
    ]


def test_a_send_that_waits_for_its_flush_takes_until_that_is_done() -> None:
    latency = SendLatency()
    latency.sample(0.0)
    pending = PendingAcknowledgements(latency, timeout_s=5)
    pending.add(RecordingPeer(), 100, [b"", b""], now_s=1.0, since_s=0.9)
    pending.release(100, now_s=3.0)
    latency.sample(SECOND_SAMPLE_S)
    counts = latency.last_minute()
    assert counts is not None
    assert sum(counts) == 2
    assert 2100 <= (quantile_ms(counts, 0.5) or 0) <= 2100 * 1.2


def test_the_runtime_information_tells_what_sends_took(broker: BrokerUnderTest, clock: ManualClock) -> None:
    broker.create_topic("orders")
    broker.broker.stats.sample(clock.monotonic())
    send(broker)
    send(broker)
    clock.advance(SECOND_SAMPLE_S)
    broker.broker.stats.sample(clock.monotonic())
    info = KVTable.from_json(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert info["putMessageDistributeTime"].startswith("[<=0ms]:2 ")
    assert info["putLatency99"] == info["putLatency999"] == str(BOUNDS_MS[0])
    assert latency_from_json(info["sendLatency"]) == {BOUNDS_MS[0]: 2}


def test_what_sends_took_is_left_out_until_it_is_known(broker: BrokerUnderTest) -> None:
    info = KVTable.from_json(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert not {"sendLatency", "putLatency99", "putMessageDistributeTime"} & info.keys()
