"""What is looked up for a metering record: how far groups lag, what is stored, who is connected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.metering.records import Samples
from mqwire.metering import ConnectionCounts, LagRow, StorageRow

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.producer_manager import ProducerManager
    from brokerd.store import MessageStore
    from brokerd.topic_config import TopicConfigManager

# Looking up the age of a queue's oldest unread message may read the disk: let others run after so many.
_ROWS_AT_A_TIME: Final = 32


class Sampled(Protocol):
    """Where the samples are taken."""

    clock: SystemClock
    store: MessageStore
    topic_configs: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    producers: ProducerManager


async def take_samples(broker: Sampled, stored_bytes: dict[str, int]) -> Samples:
    """As of now, or a moment later where there are many queues."""
    lag: list[LagRow] = []
    for topic, group, queue_id, offset in _offsets(broker):
        row = _lag_row(broker, topic, group, queue_id, offset)
        if row is not None:
            lag.append(row)
        if len(lag) % _ROWS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
    return Samples(
        lag=tuple(lag),
        storage=tuple(StorageRow(topic=topic, bytes=size) for topic, size in stored_bytes.items()),
        connections=connections(broker),
    )


def connections(broker: Sampled) -> ConnectionCounts:
    """Open connections that producers and consumers use; one that both use is counted for both."""
    producers = {channel.peer.id for group in broker.producers.groups() for channel in broker.producers.channels(group)}
    consumers = {channel.peer.id for info in broker.consumers.groups.values() for channel in info.channels}
    return ConnectionCounts(producers=len(producers), consumers=len(consumers))


def _offsets(broker: Sampled) -> Iterator[tuple[str, str, int, int]]:
    """(topic, group, queue, offset): what is committed, and 0 where a group that is online has committed nothing yet.

    Nothing of a group that broadcasts: each member keeps its own offsets, and what the group once committed stands still.
    """
    online = list(broker.consumers.groups.items())
    broadcasting = {group for group, info in online if info.is_broadcasting}
    seen: set[tuple[str, str, int]] = set()
    for topic, group, queue_id, offset in broker.consumer_offsets.all_offsets():
        if group not in broadcasting:
            seen.add((topic, group, queue_id))
            yield topic, group, queue_id, offset
    for group, info in online:
        if group in broadcasting:
            continue
        for topic in list(info.subscriptions):
            config = broker.topic_configs.select(topic)
            for queue_id in range(0 if config is None else config.read_queue_nums):
                if (topic, group, queue_id) not in seen:
                    yield topic, group, queue_id, 0


def _lag_row(broker: Sampled, topic: str, group: str, queue_id: int, offset: int) -> LagRow | None:
    store = broker.store
    max_offset = store.max_offset(topic, queue_id)
    if max_offset == 0 and offset == 0 and store.queue_end_offset(topic, queue_id) is None:
        return None  # nothing was ever stored there
    # What retention has deleted cannot be consumed any more: it is no lag.
    oldest = max(offset, store.min_offset(topic, queue_id))
    lag_messages = max(max_offset - oldest, 0)
    lag_ms = 0
    if lag_messages:
        stored_ms = store.store_timestamp_of(topic, queue_id, oldest)
        lag_ms = -1 if stored_ms < 0 else max(broker.clock.time_ms() - stored_ms, 0)
    return LagRow(
        topic=topic,
        group=group,
        queue_id=queue_id,
        consumer_offset=offset,
        max_offset=max_offset,
        lag_messages=lag_messages,
        lag_ms=lag_ms,
    )
