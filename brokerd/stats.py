"""Counts of what the broker takes and gives, and rates over the last 10 seconds, minute and 10 minutes.

Counting is two additions per batch on the hot path; rates come from samples that a service takes (StoreStatsService).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from brokerd.send_latency import SendLatency
from brokerd.stats_history import StatsHistory

SAMPLE_PERIOD_S: Final = 10.0
_SAMPLES_MAX: Final = 61
WINDOWS_S: Final = (10, 60, 600)
# Counted apart by topic and group; the history keeps some thirty copies of them, 4 KiB for each in all.
PAIRS_MAX: Final = 10_000


class Totals(NamedTuple):
    """Everything counted since the start."""

    messages_put: int = 0
    bytes_put: int = 0
    messages_got: int = 0
    bytes_got: int = 0
    pulls_found: int = 0
    pulls_missed: int = 0


class BrokerStats:
    """One broker's counters. Time is passed in, in seconds of a monotonic clock."""

    def __init__(self, started_at_ms: int) -> None:
        self.started_at_ms = started_at_ms
        self.messages_put = 0
        self.bytes_put = 0
        self.messages_got = 0
        self.bytes_got = 0
        self.pulls_found = 0
        self.pulls_missed = 0
        self.put_by_topic: Counter[str] = Counter()
        self.got_by_topic_and_group: Counter[tuple[str, str]] = Counter()
        self.send_latency = SendLatency()
        self.history = StatsHistory()
        self._samples: deque[tuple[float, Totals]] = deque(maxlen=_SAMPLES_MAX)

    def put(self, topics: Iterable[str], messages: int, size_bytes: int) -> None:
        """`messages` records of these topics, one for each, were appended: `size_bytes` of the log."""
        self.messages_put += messages
        self.bytes_put += size_bytes
        by_topic = self.put_by_topic
        for topic in topics:  # Counter.update costs as much as sixty of these
            by_topic[topic] += 1

    def put_batch(self, topic: str, messages: int, size_bytes: int) -> None:
        """`messages` records of one topic were appended: `size_bytes` of the log."""
        self.messages_put += messages
        self.bytes_put += size_bytes
        self.put_by_topic[topic] += messages

    def got(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """A pull was answered with `messages` records, or with none."""
        if messages:
            self.messages_got += messages
            self.bytes_got += size_bytes
            self.pulls_found += 1
            by_pair = self.got_by_topic_and_group
            if (topic, group) in by_pair or len(by_pair) < PAIRS_MAX:
                by_pair[topic, group] += messages
        else:
            self.pulls_missed += 1

    def forget_topic(self, topic: str) -> None:
        """A deleted topic's counters go with it."""
        self.put_by_topic.pop(topic, None)
        for key in [key for key in self.got_by_topic_and_group if key[0] == topic]:
            del self.got_by_topic_and_group[key]

    def totals(self) -> Totals:
        """The counters as they stand."""
        return Totals(
            self.messages_put, self.bytes_put, self.messages_got, self.bytes_got, self.pulls_found, self.pulls_missed
        )

    def sample(self, now_s: float) -> None:
        """Remember the counters of this moment; call it each SAMPLE_PERIOD_S."""
        self._samples.append((now_s, self.totals()))
        self.send_latency.sample(now_s)
        self.history.sample(now_s, self._counters(), self.messages_put, self.messages_got)

    def _counters(self) -> dict[str, dict[str, int]]:
        """RocketMQ's names of what is counted here (BrokerStatsManager); the broker's own have the empty key."""
        return {
            "TOPIC_PUT_NUMS": dict(self.put_by_topic),
            "GROUP_GET_NUMS": {
                f"{topic}@{group}": count for (topic, group), count in self.got_by_topic_and_group.items()
            },
            "BROKER_PUT_NUMS": {"": self.messages_put},
            "BROKER_GET_NUMS": {"": self.messages_got},
        }

    def rates(self, counter: str) -> tuple[float | None, float | None, float | None]:
        """Events per second of one counter over the last 10, 60 and 600 s; None while that is not sampled yet."""
        index = Totals._fields.index(counter)
        if len(self._samples) < 2:
            return None, None, None
        now_s, newest = self._samples[-1]
        rates: list[float | None] = []
        for window_s in WINDOWS_S:
            rate = None
            for then_s, totals in self._samples:
                if now_s - then_s <= window_s * 1.05:
                    if now_s - then_s >= window_s * 0.95:
                        rate = (newest[index] - totals[index]) / (now_s - then_s)
                    break
            rates.append(rate)
        return rates[0], rates[1], rates[2]
