"""The group's offsets: kept in memory while consuming, stored at the brokers (RemoteBrokerOffsetStore)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import anyio

from highwater._client import ClientInstance
from highwater._edge import read_header
from highwater._models import MessageQueue
from highwater.errors import HighwaterError
from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_offset import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

logger = logging.getLogger("highwater")

_LAST_TRIES = 3
_LAST_TRY_PAUSE_S = 0.5


class OffsetStore:
    """Where one group is, queue by queue. Offsets only move forward here; a reset replaces them."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._stored: dict[MessageQueue, int] = {}

    def get(self, queue: MessageQueue) -> int | None:
        """The offset that is known here."""
        return self._offsets.get(queue)

    def all(self) -> dict[MessageQueue, int]:
        """Every offset that is known here."""
        return dict(self._offsets)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Everything below `offset` is finished."""
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    def replace(self, queue: MessageQueue, offset: int) -> None:
        """The queue goes on at `offset`, even if that is lower."""
        self._offsets[queue] = offset
        self._stored.pop(queue, None)

    def forget(self, queue: MessageQueue) -> None:
        """The queue belongs to someone else now."""
        self._offsets.pop(queue, None)
        self._stored.pop(queue, None)

    async def read(self, queue: MessageQueue) -> int | None:
        """What the broker has stored; None when it has nothing for this group and queue."""
        # The master is asked where there is one: a slave may not have the newest offset yet.
        address = await self._client.read_address(queue.topic, queue.broker_name)
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        response = await self._client.invoke(
            address,
            self._client.request(RequestCode.QUERY_CONSUMER_OFFSET, header),
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        offset = read_header(response, QueryConsumerOffsetResponseHeader).offset
        return offset if offset >= 0 else None

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store what has changed; a queue that fails is logged and stays to be stored the next time."""
        changed: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in list(self._offsets) if queues is None else list(queues):
            offset = self._offsets.get(queue)
            if offset is not None and self._stored.get(queue) != offset:
                changed.setdefault((queue.topic, queue.broker_name), []).append(queue)
        async with anyio.create_task_group() as tasks:
            for of_one_broker in changed.values():
                tasks.start_soon(self._persist_topic, of_one_broker)

    async def _persist_topic(self, queues: list[MessageQueue]) -> None:
        """Store the offsets of one topic's queues at one broker, the first alone.

        Apache's brokers make a group's table for a topic at its first offset; several at once make several tables, of which
        one stays and the others' offsets are lost (ConsumerOffsetManager.commitOffset).
        """
        first, *others = queues
        await self._persist_logged(first)
        async with anyio.create_task_group() as tasks:
            for queue in others:
                tasks.start_soon(self._persist_logged, queue)

    async def persist_at_last(self) -> None:
        """Store what has changed before the offsets are forgotten: a broker that is busy is asked again."""
        for _ in range(_LAST_TRIES):
            await self.persist()
            if all(self._stored.get(queue) == offset for queue, offset in self._offsets.items()):
                return
            await anyio.sleep(_LAST_TRY_PAUSE_S)

    async def _persist_logged(self, queue: MessageQueue) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return  # forgotten meanwhile
        try:
            await self.write(queue, offset)
        except HighwaterError as error:
            logger.warning("offset %d of %s was not stored: %s", offset, queue, error)
            await self._client.look_for_master(queue.topic, error)
        else:
            if self._offsets.get(queue) == offset:
                self._stored[queue] = offset

    async def write(self, queue: MessageQueue, offset: int) -> None:
        """Store one offset now and await the broker's answer."""
        address = await self._client.read_address(queue.topic, queue.broker_name)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        await self._client.invoke(address, self._client.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))
