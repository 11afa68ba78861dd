"""The options of a push consumer, checked. Names and defaults are RocketMQ's DefaultMQPushConsumer."""

from __future__ import annotations

from dataclasses import dataclass

from highwater._models import ConsumeFrom
from highwater.errors import ConfigurationError

# Java's Integer.MAX_VALUE: an orderly consumer blocks its queue rather than pass over a message.
UNLIMITED_RECONSUME_TIMES = 2**31 - 1
DEFAULT_RECONSUME_TIMES = 16


@dataclass(frozen=True, slots=True)
class ConsumeSettings:
    """See AsyncPushConsumer for each option's meaning."""

    consume_from: ConsumeFrom
    consume_timestamp_ms: int | None
    orderly: bool
    consume_threads: int
    pull_batch_size: int
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue_mib: int
    consume_concurrently_max_span: int
    max_reconsume_times: int
    suspend_current_queue_time_ms: int
    consume_timeout_min: float
    persist_consumer_offset_interval_ms: int
    rebalance_interval_ms: int
    drain_timeout_ms: int

    def __post_init__(self) -> None:
        for name, minimum, maximum in (
            ("consume_threads", 1, 1000),
            ("pull_batch_size", 1, 1024),
            ("pull_threshold_for_queue", 1, 65535),
            ("pull_threshold_size_for_queue_mib", 1, 1024),
            ("consume_concurrently_max_span", 1, 65535),
            ("max_reconsume_times", -1, UNLIMITED_RECONSUME_TIMES),
            ("suspend_current_queue_time_ms", 10, 30_000),
            ("persist_consumer_offset_interval_ms", 1, 3_600_000),
            ("rebalance_interval_ms", 1, 3_600_000),
            ("drain_timeout_ms", 0, 3_600_000),
        ):
            value = getattr(self, name)
            if not minimum <= value <= maximum:
                raise ConfigurationError(f"{name} is {value}; it must be {minimum} to {maximum}")
        if self.consume_timeout_min <= 0:
            raise ConfigurationError(f"consume_timeout_min is {self.consume_timeout_min}; it must be above 0")
        if self.consume_from is ConsumeFrom.TIMESTAMP and self.consume_timestamp_ms is None:
            raise ConfigurationError("consume_from TIMESTAMP needs consume_timestamp_ms")

    @property
    def reconsume_limit(self) -> int:
        """How often a message is handed out again before it goes to the dead-letter topic."""
        if self.max_reconsume_times >= 0:
            return self.max_reconsume_times
        return UNLIMITED_RECONSUME_TIMES if self.orderly else DEFAULT_RECONSUME_TIMES
