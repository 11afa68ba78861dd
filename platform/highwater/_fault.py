"""Latency fault avoidance: which brokers a producer leaves alone for a while. Pure: the clock comes as an argument.

Numbers and rules of RocketMQ's MQFaultStrategy: the slower a broker answered, the longer it is avoided, and a failure
counts as ten seconds of latency. A broker that is avoided is still used when no other is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from highwater._models import MessageQueue

LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILURE_LATENCY_MS = 10_000


def not_available_duration_ms(latency_ms: float) -> int:
    """How long a broker that took `latency_ms` is avoided."""
    index = bisect_right(LATENCY_MAX_MS, latency_ms) - 1
    return 0 if index < 0 else NOT_AVAILABLE_MS[index]


@dataclass(slots=True)
class FaultStrategy:
    """Remembers each broker's last trouble and chooses queues around it.

    `enabled` is RocketMQ's sendLatencyFaultEnable: without it only the broker of the last failed try is avoided.
    `first_index` is where a topic's turn begins; producers choose it at random, so that they don't march in step.
    """

    enabled: bool = True
    first_index: int = 0
    _available_from_ms: dict[str, float] = field(default_factory=dict)
    _unreachable: set[str] = field(default_factory=set)
    _next_index: dict[str, int] = field(default_factory=dict)

    def succeeded(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        """A broker answered, be it with a refusal that only the caller can fix."""
        self._unreachable.discard(broker_name)
        self._avoid(broker_name, not_available_duration_ms(latency_ms), now_ms)

    def failed(self, broker_name: str, now_ms: float, *, reachable: bool) -> None:
        """A broker did not answer (`reachable` False), or answered that it can't."""
        if not reachable:
            self._unreachable.add(broker_name)
        self._avoid(broker_name, not_available_duration_ms(FAILURE_LATENCY_MS), now_ms)

    def _avoid(self, broker_name: str, duration_ms: int, now_ms: float) -> None:
        if self.enabled and duration_ms > 0:
            until = now_ms + duration_ms
            self._available_from_ms[broker_name] = max(until, self._available_from_ms.get(broker_name, 0))

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether nothing speaks against this broker now."""
        return now_ms >= self._available_from_ms.get(broker_name, 0)

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last that was heard of this broker was an answer."""
        return broker_name not in self._unreachable

    def select(
        self, topic: str, queues: Sequence[MessageQueue], now_ms: float, last_broker_name: str | None = None
    ) -> MessageQueue:
        """The next queue in turn: of an available broker if there is one, else of a reachable one, else of any.

        `last_broker_name` is the broker of the try that just failed. `queues` must not be empty.
        """

        def is_other(queue: MessageQueue) -> bool:
            return queue.broker_name != last_broker_name

        passes: list[Callable[[MessageQueue], bool]] = []
        if self.enabled:
            passes.append(lambda queue: is_other(queue) and self.is_available(queue.broker_name, now_ms))
            passes.append(lambda queue: is_other(queue) and self.is_reachable(queue.broker_name))
        passes.append(is_other)
        start = self._next_index.get(topic, self.first_index)
        count = len(queues)
        for accept in passes:
            for step in range(count):
                queue = queues[(start + step) % count]
                if accept(queue):
                    self._next_index[topic] = (start + step + 1) % count
                    return queue
        self._next_index[topic] = (start + 1) % count
        return queues[start % count]
