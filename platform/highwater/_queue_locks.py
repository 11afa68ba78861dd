"""The brokers' locks on queues: an orderly consumer works on a queue only while it holds its lock."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

import anyio

from highwater._client import ClientInstance
from highwater._edge import read_body
from highwater._models import MessageQueue
from highwater.errors import HighwaterError
from mqwire import bodies
from mqwire.codes import RequestCode
from mqwire.headers_client import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader

logger = logging.getLogger("highwater")

# A broker forgets a lock after 60 s; we stop relying on it after half of that and renew it each 20 s (ProcessQueue).
LOCK_MAX_LIVE_SECONDS = 30.0
LOCK_RENEW_INTERVAL_MS = 20_000
# Where no answer came: soon enough for another try or two before the lock lapses.
LOCK_RETRY_SECONDS = 3.0


class QueueLocks:
    """Locks and unlocks at the masters."""

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self._group = group

    @staticmethod
    def valid_until() -> float:
        """Until when a lock that was just granted may be relied on, on the monotonic clock."""
        return anyio.current_time() + LOCK_MAX_LIVE_SECONDS

    async def lock(
        self, queues: Iterable[MessageQueue], is_wanted: Callable[[MessageQueue], bool] = lambda _: True
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """The queues whose locks are ours now, and those that were refused; of the others no answer came.

        Brokers are asked one after the other, and one may take long: what is not wanted any more by then is not asked for, as it
        may have been given back meanwhile.
        """
        locked: set[MessageQueue] = set()
        asked: set[MessageQueue] = set()
        for (topic, broker_name), every in _by_broker(queues).items():
            wanted = [queue for queue in every if is_wanted(queue)]
            if not wanted:
                continue
            body = bodies.LockBatchRequestBody(
                consumer_group=self._group, client_id=self._client.client_id, mq_set=_to_wire(wanted)
            )
            try:
                address = await self._client.master_address(topic, broker_name)
                request = self._client.request(
                    RequestCode.LOCK_BATCH_MQ, LockBatchMqRequestHeader(bname=broker_name), body=body.to_json()
                )
                answer = read_body(await self._client.invoke(address, request), bodies.LockBatchResponseBody)
            except HighwaterError as error:
                logger.warning("queues of %s on %s were not locked: %s", topic, broker_name, error)
                await self._client.look_for_master(topic, error)
                continue
            asked.update(wanted)
            locked.update(MessageQueue(item.topic, item.broker_name, item.queue_id) for item in answer.lock_ok_mq_set)
        return locked, asked - locked

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have them; a broker that can't be reached forgets the locks by itself."""
        for (topic, broker_name), given in _by_broker(queues).items():
            body = bodies.UnlockBatchRequestBody(
                consumer_group=self._group, client_id=self._client.client_id, mq_set=_to_wire(given)
            )
            try:
                address = await self._client.master_address(topic, broker_name)
                request = self._client.request(
                    RequestCode.UNLOCK_BATCH_MQ, UnlockBatchMqRequestHeader(bname=broker_name), body=body.to_json()
                )
                await self._client.invoke(address, request)
            except HighwaterError as error:
                logger.info("queues of %s on %s were not unlocked: %s", topic, broker_name, error)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[tuple[str, str], list[MessageQueue]]:
    groups: dict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        groups[queue.topic, queue.broker_name].append(queue)
    return groups


def _to_wire(queues: Iterable[MessageQueue]) -> list[bodies.MessageQueue]:
    return [
        bodies.MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue.queue_id)
        for queue in queues
    ]
