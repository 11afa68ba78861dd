"""Assignment: which queues this member of a group works on, and keeping it so.

Each member asks a broker who is in the group and computes its own share (RebalanceImpl). That happens at the start,
when a broker says that the group changed, when a route changed, and every 20 seconds anyway, because the first three
can get lost. While something is missing (a route, a lock, the broker's knowledge of us) it happens sooner.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from highwater._client import ClientInstance
from highwater._consume_service import ConsumeService
from highwater._edge import read_body
from highwater._models import MessageQueue
from highwater._offset_store import OffsetStore
from highwater._process_queue import ProcessQueue
from highwater._pull import Subscription
from highwater._puller import Puller
from highwater._queue_locks import LOCK_RETRY_SECONDS, QueueLocks
from highwater._rebalance import allocate_averagely, plan_change
from highwater._routes import TopicRoute
from highwater.errors import BrokerError, HighwaterError, NoRouteError
from mqwire.bodies import GetConsumerListByGroupResponseBody
from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_client import GetConsumerListByGroupRequestHeader

logger = logging.getLogger("highwater")

FIRST_RETRY_SECONDS = 0.5
# A member that is new to a broker is on its list a moment after its heartbeat; not waiting for the next round keeps
# two members from both working on all queues.
MAX_RETRY_SECONDS = 5.0
# How long a consumer that stops awaits a rebalance that is under way: longer than one of its requests takes.
LAST_TURN_SECONDS = 5.0


@dataclass(slots=True)
class _Held:
    process_queue: ProcessQueue
    scope: anyio.CancelScope


class Assignment:
    """The queues that are held, by rebalancing until stopped."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        offsets: OffsetStore,
        subscriptions: Mapping[str, Subscription],
        puller: Puller,
        service: ConsumeService,
        locks: QueueLocks | None,
        *,
        interval_ms: int,
    ) -> None:
        self._client = client
        self._group = group
        self._offsets = offsets
        self._subscriptions = subscriptions
        self._puller = puller
        self._service = service
        self._locks = locks
        self._interval_seconds = interval_ms / 1000
        self._held: dict[MessageQueue, _Held] = {}
        self._wake = anyio.Event()
        self._turn = anyio.Lock()
        self._unsettled = 0
        self._stopping = False

    def process_queues(self) -> list[ProcessQueue]:
        """The windows of the queues that are held."""
        return [held.process_queue for held in self._held.values()]

    def wake(self) -> None:
        """Rebalance now."""
        self._wake.set()

    def route_changed(self, route: TopicRoute) -> None:
        """A listener for the route table."""
        if route.topic in self._subscriptions:
            self.wake()

    async def run(self) -> None:
        """Rebalance until cancelled."""
        while True:
            self._wake = anyio.Event()
            async with self._turn:
                settled = True
                for queue in [queue for queue in self._held if queue.topic not in self._subscriptions]:
                    await self._remove(queue)
                for topic in list(self._subscriptions):
                    if not self._stopping:
                        settled &= await self._rebalance_logged(topic)
            self._unsettled = 0 if settled else self._unsettled + 1
            retry_seconds = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(self._unsettled - 1, 8))
            with anyio.move_on_after(self._interval_seconds if settled else min(self._interval_seconds, retry_seconds)):
                await self._wake.wait()

    async def _rebalance_logged(self, topic: str) -> bool:
        try:
            return await self._rebalance(topic)
        except NoRouteError as error:
            # The retry topic is made by the first heartbeat and known a moment later; others may be made any time.
            logger.info("group %s waits for topic %s: %s", self._group, topic, error)
        except HighwaterError as error:
            logger.warning("group %s cannot rebalance topic %s: %s", self._group, topic, error)
            await self._client.look_for_master(topic, error)
        return False

    async def _rebalance(self, topic: str) -> bool:
        """Take and give back queues of one topic; False when it should be tried again soon."""
        route = await self._client.routes.get(topic)
        members = await self._members(route)
        if self._client.client_id not in members:
            # Computing a share without ourselves would give every queue away.
            await self._client.send_heartbeats()
            return False
        if self._stopping:
            return True
        share = allocate_averagely(self._client.client_id, route.subscribe_queues, members)
        change = plan_change((queue for queue in self._held if queue.topic == topic), share)
        for queue in change.removed:
            logger.info("group %s gives up %s", self._group, queue)
            await self._remove(queue)
        if not change.added:
            return True
        added = change.added
        if self._locks is not None:
            locked, _refused = await self._locks.lock(added)
            added = tuple(queue for queue in added if queue in locked)
        for queue in added:
            logger.info("group %s takes %s", self._group, queue)
            self._add(queue, 0.0 if self._locks is None else self._locks.valid_until())
        return len(added) == len(change.added)

    async def _members(self, route: TopicRoute) -> list[str]:
        address = route.any_address()
        if address is None:
            raise NoRouteError(f"no broker of topic {route.topic!r} is registered")
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        request = self._client.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        try:
            response = await self._client.invoke(address, request)
        except BrokerError as error:
            # Apache's answer for a group that it has never heard of.
            if error.response_code == ResponseCode.SYSTEM_ERROR:
                return []
            raise
        return read_body(response, GetConsumerListByGroupResponseBody).consumer_id_list

    def _add(self, queue: MessageQueue, locked_until: float) -> None:
        process_queue = ProcessQueue(queue)
        process_queue.locked_until = locked_until
        scope = self._client.spawn(lambda: self._pull(process_queue))
        self._held[queue] = _Held(process_queue, scope)

    async def _pull(self, process_queue: ProcessQueue) -> None:
        restart_at = await self._puller.run(process_queue)
        queue = process_queue.queue
        held = self._held.get(queue)
        if restart_at is not None and held is not None and held.process_queue is process_queue:
            process_queue.dropped = True
            await self._begin_anew(process_queue, restart_at)

    async def _begin_anew(self, process_queue: ProcessQueue, offset: int) -> None:
        """Pull a queue that is kept from another offset on, in a new window."""
        queue = process_queue.queue
        await self._service.finish_queue(process_queue)
        process_queue.detached = True
        self._offsets.replace(queue, offset)
        await self._offsets.persist([queue])
        if not self._stopping:
            self._add(queue, process_queue.locked_until)  # no lock was asked for

    async def _remove(self, queue: MessageQueue) -> None:
        held = self._held.pop(queue)
        held.process_queue.dropped = True
        held.scope.cancel()
        await self._service.finish_queue(held.process_queue)
        held.process_queue.detached = True
        await self._offsets.persist([queue])
        self._offsets.forget(queue)
        if self._locks is not None:
            await self._locks.unlock([queue])

    async def renew_locks(self) -> None:
        """Ask again for the locks of all queues that are held; one that is refused pauses its queue.

        A broker that gives no answer may be gone, and its locks with it, but no one else got them from it meanwhile: they are
        relied on until they lapse, and asked for again before.
        """
        while self._locks is not None and self._held and not self._stopping:
            asked = set(self._held)
            locked, refused = await self._locks.lock(asked, self._is_kept)
            for queue, held in self._held.items():
                if queue in locked:
                    held.process_queue.locked_until = self._locks.valid_until()
                elif queue in refused:
                    held.process_queue.locked_until = 0.0
            if refused:
                self.wake()
            if set(filter(self._is_kept, asked)) <= locked | refused:
                return
            await anyio.sleep(LOCK_RETRY_SECONDS)

    def _is_kept(self, queue: MessageQueue) -> bool:
        return queue in self._held and not self._stopping

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere: what was pulled is dropped, the new offsets are stored, then pulling begins again."""
        async with self._turn:
            for queue, offset in offsets.items():
                held = self._held.get(queue)
                if held is None:
                    continue
                held.process_queue.dropped = True
                held.scope.cancel()
                await self._begin_anew(held.process_queue, offset)

    async def stop_rebalancing(self) -> None:
        """Take no more queues. A rebalance that is under way may be getting locks, which are to be given back with its queues."""
        self._stopping = True
        with anyio.move_on_after(LAST_TURN_SECONDS):
            async with self._turn:
                pass

    def stop_pulling(self) -> None:
        """Fetch nothing more; what is being handled may finish and still counts."""
        for held in self._held.values():
            held.scope.cancel()

    async def release(self) -> None:
        """The last step of stopping: give every queue back."""
        for held in self._held.values():
            held.process_queue.dropped = held.process_queue.detached = True
        await self._offsets.persist_at_last()
        if self._locks is not None and self._held:
            await self._locks.unlock(self._held)
        self._held.clear()
