"""Expires the messages of topics that keep less than the broker does: by the age or the bytes of their messages.

Runs on the leader, each cleanResourceInterval, with a pause after each queue. A queue whose oldest message is young
enough costs one look at that message; else a search by time. What has expired is written as metadata records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.metadata_record import MetadataRecord, Offsets, record_max_bytes, split_offsets
from brokerd.store import CONSUME_QUEUE_ENTRY_BYTES, StoreError, size_of_entries
from brokerd.topic_retention import Retention, Slice, oldest_beyond, retention_of

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.quotas import Quotas
    from brokerd.replica.replica import Replica
    from brokerd.services.metadata_log import MetadataLog
    from brokerd.services.store_gate import StoreGate
    from brokerd.store import MessageStore
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

# A queue expires once for all of a minute: each time is a record of the log.
EXPIRES_LATE_MS: Final = 60_000
# Messages are dropped by size in slices of this share of their queue, so that a long queue is no long list.
_SLICES: Final = 64
_SLICE_ENTRIES_MAX: Final = 65_536


class _StoredBytes(Protocol):
    def update(self) -> Iterator[None]: ...

    def bytes_of(self, topic: str) -> int: ...

    def first_of(self, topic: str, queue_id: int) -> int | None: ...


class _Metering(Protocol):
    @property
    def stored_bytes(self) -> _StoredBytes: ...


class _Broker(Protocol):
    """What the retention of topics uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    store: MessageStore
    store_gate: StoreGate
    replica: Replica
    topic_configs: TopicConfigManager
    metadata_log: MetadataLog
    quotas: Quotas

    @property
    def metering(self) -> _Metering: ...


class TopicRetentionService:
    """One broker's. Main thread only."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker

    async def run(self) -> None:
        """Look at all topics, each cleanResourceInterval, until cancelled."""
        interval_s = self._broker.config.clean_resource_interval_ms / 1000
        while True:
            await trio.sleep(interval_s)
            try:
                await self.look()
            except (StoreError, OSError) as error:
                logger.error("the messages of topics with a retention of their own cannot be expired: %s", error)

    async def look(self) -> None:
        """Expire what is due now, if this replica leads. Raises StoreError, OSError."""
        broker = self._broker
        by_size = any(retention.size_bytes is not None for retention in self._limits().values())
        if broker.replica.leads and (by_size or broker.quotas.topics_limit_stored_bytes):
            await self._count_stored()
        limits = self._limits()
        if not limits or not self._may_write():
            return
        expired: Offsets = {}
        queue_ids = broker.store.topics()
        for topic, retention in limits.items():
            async with broker.store_gate.shared():
                for found in self._expired(topic, queue_ids.get(topic, ()), retention):
                    if found:
                        expired[topic] = found
                    await trio.lowlevel.checkpoint()
        # Others ran meanwhile: a topic may be gone, and with it its queues' offsets, or may be to keep more.
        now = self._limits()
        kept_from = {topic: queues for topic, queues in expired.items() if now.get(topic) == limits[topic]}
        if kept_from and self._may_write():
            for part in split_offsets(kept_from, record_max_bytes(broker.config)):
                broker.metadata_log.write(MetadataRecord(kept_from=part))

    def _limits(self) -> dict[str, Retention]:
        return {
            topic: retention
            for topic, config in self._broker.topic_configs.table.items()
            if (retention := retention_of(config.attributes)) is not None
        }

    def _may_write(self) -> bool:
        broker = self._broker
        return broker.replica.leads and not broker.store_gate.closed and broker.metadata_log.refusal() is None

    async def _count_stored(self) -> None:
        async with self._broker.store_gate.shared():
            for _ in self._broker.metering.stored_bytes.update():
                await trio.lowlevel.checkpoint()

    def _expired(self, topic: str, queue_ids: Sequence[int], retention: Retention) -> Iterator[dict[int, int]]:
        """Each queue's new first offset where it is another than now; what the last step gives counts."""
        store = self._broker.store
        found: dict[int, int] = {}
        if retention.time_ms is not None:
            before_ms = self._broker.clock.time_ms() - retention.time_ms
            for queue_id in queue_ids:
                first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
                if first < end and store.expired_to(topic, queue_id, before_ms - EXPIRES_LATE_MS) > first:
                    found[queue_id] = min(store.expired_to(topic, queue_id, before_ms), end)
                yield found
        if retention.size_bytes is not None:
            excess_bytes = self._broker.metering.stored_bytes.bytes_of(topic) - retention.size_bytes
            queues = {queue_id: self._slices(topic, queue_id) for queue_id in queue_ids}
            for by_size in oldest_beyond(excess_bytes, queues):
                yield {
                    queue_id: max(found.get(queue_id, 0), by_size.get(queue_id, 0)) for queue_id in {*found, *by_size}
                }

    def _slices(self, topic: str, queue_id: int) -> Iterator[Slice]:
        # What has expired since they were counted is among the bytes that are too many.
        first, end = (
            self._broker.metering.stored_bytes.first_of(topic, queue_id),
            self._broker.store.max_offset(topic, queue_id),
        )
        if first is None:
            return
        count = min(max((end - first) // _SLICES, 1), _SLICE_ENTRIES_MAX)
        while first < end:
            entries = self._broker.store.index_entries(topic, queue_id, first, min(count, end - first))
            if not entries:
                return
            position = int.from_bytes(entries[:8], "big")
            first += len(entries) // CONSUME_QUEUE_ENTRY_BYTES
            yield Slice(position, queue_id, first, size_of_entries(entries))
