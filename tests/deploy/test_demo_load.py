"""The demo's load: orders that look like orders, a wave of a few per second, and a group whose lag grows and shrinks."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest

from deploy.local.demo import TOPIC
from deploy.local.demo_load import BEHIND_S_MAX, CAUGHT_UP_S, FAST, MESSAGES_PER_S, SLOW, SlowReader, order, rate_at


@dataclass
class Arrived:
    """What the reader looks at of a message."""

    store_timestamp_ms: float


def test_the_lag_of_the_slow_group_grows_for_minutes_and_then_shrinks() -> None:
    """Simulated: messages come at the mean rate, one reader takes them in their order."""
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    reader = SlowReader(pause, lambda: clock[0])
    lags = []
    for number in range(30_000):
        stored_s = number / MESSAGES_PER_S
        clock[0] = max(clock[0], stored_s)
        reader(Arrived(stored_s * 1000))  # type: ignore[arg-type]  # it reads the time only
        lags.append((clock[0] - stored_s) * MESSAGES_PER_S)
    assert max(lags) == pytest.approx(BEHIND_S_MAX * MESSAGES_PER_S, rel=0.05)
    after_the_first_peak = lags[lags.index(max(lags[:10_000])) :]
    assert min(after_the_first_peak) < CAUGHT_UP_S * MESSAGES_PER_S
    assert max(after_the_first_peak[after_the_first_peak.index(min(after_the_first_peak)) :]) > max(lags) / 2


def test_the_slow_group_reads_slower_than_messages_come_and_catches_up_faster() -> None:
    assert SLOW < 1 < FAST


def test_the_load_stays_small() -> None:
    rates = [rate_at(second) for second in range(600)]
    assert 1 < min(rates) < MESSAGES_PER_S < max(rates) < 10


def test_an_order_is_json_with_a_key_and_a_tag() -> None:
    message = order(17, random.Random(1))
    body = json.loads(message.body)
    assert (body["order"], message.keys, message.tags) == (17, ("order-17",), "paid")
    assert 100 < len(message.body) < 1000


def test_the_load_leaves_the_topic_of_first_programs_alone() -> None:
    assert order(17, random.Random(1)).topic != TOPIC
