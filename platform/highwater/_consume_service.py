"""Handing messages to handlers: many at once, or one queue's in order.

A handler that returns acknowledges its message; one that raises gets it again later. Concurrent consumers give a failed
message back to the broker, which delays it; orderly consumers hold the queue and try again themselves.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import anyio

from highwater._client import ClientInstance
from highwater._consume_settings import ConsumeSettings
from highwater._models import ReceivedMessage, RetryLater
from highwater._offset_store import OffsetStore
from highwater._process_queue import ProcessQueue
from highwater._tracing import EXCEPTION, FAILED, SUCCESS, TIME_OUT, Tracer
from highwater.errors import HighwaterError
from mqwire.codes import RequestCode
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader

logger = logging.getLogger("highwater")

Handle = Callable[[ReceivedMessage], Awaitable[None]]

# When even giving a message back failed, it is tried here again after this long (ConsumeMessageConcurrentlyService).
RESUBMIT_SECONDS = 5.0
UNLOCKED_PAUSE_SECONDS = 0.1
DLQ_AT_ONCE = -1


class NoHandlerError(LookupError):
    """Nothing is subscribed to the message's topic any more."""


class _Unhandled(RetryLater):
    """No handler was there to fail: the message is as it was."""


class ConsumeService(Protocol):
    """How messages reach handlers."""

    def start(self) -> None:
        """Begin."""
        ...

    def submit(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """These messages have been put into the window and wait for their turn."""
        ...

    async def drain(self) -> None:
        """Hand out nothing more and await the handlers that run."""
        ...

    async def finish_queue(self, process_queue: ProcessQueue) -> None:
        """The queue goes to another member: await what must not overlap with it."""
        ...


class MessageHandling:
    """What both kinds share: running a handler and giving a message back."""

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        settings: ConsumeSettings,
        offsets: OffsetStore,
        handle: Handle,
        tracer: Tracer | None = None,
    ) -> None:
        self.client = client
        self.group = group
        self.settings = settings
        self.offsets = offsets
        self._handle = handle
        self._tracer = tracer
        self.running = 0
        self._handler_done = anyio.Event()

    async def try_once(self, message: ReceivedMessage) -> RetryLater | None:
        """Run the handler; None when it acknowledged, else what it asks for."""
        if self._tracer is None:
            return (await self._try(message))[0]
        begun = self._tracer.begin(message)
        later, code = await self._try(message)  # cancelled, it has no end
        if begun is not None:
            self._tracer.end(begun, code)
        return later

    async def _try(self, message: ReceivedMessage) -> tuple[RetryLater | None, int]:
        """As `try_once`, with ConsumeReturnType's number."""
        try:
            with anyio.move_on_after(self.settings.consume_timeout_min * 60):
                await self._handle(message)
                return None, SUCCESS
            logger.warning(
                "the handler of message %s of %s took longer than %s minutes",
                message.message_id, message.topic, self.settings.consume_timeout_min,
            )  # fmt: skip
            return RetryLater("timeout"), TIME_OUT
        except RetryLater as later:
            logger.info("message %s of %s is wanted again later: %s", message.message_id, message.topic, later)
            return later, FAILED
        except NoHandlerError as error:
            return _Unhandled(str(error)), FAILED
        except Exception as error:  # whatever a handler raises means: not consumed
            logger.warning(
                "the handler of message %s of %s (try %d) failed", message.message_id, message.topic,
                message.reconsume_times + 1, exc_info=True,
            )  # fmt: skip
            return RetryLater(_words(error)), EXCEPTION
        except anyio.get_cancelled_exc_class() as error:
            if _is_being_cancelled():
                raise
            # The handler awaited another task, which was cancelled: no reason for this one to end.
            logger.warning(
                "the handler of message %s of %s (try %d) failed", message.message_id, message.topic,
                message.reconsume_times + 1, exc_info=True,
            )  # fmt: skip
            return RetryLater(_words(error)), EXCEPTION

    @contextmanager
    def busy(self) -> Iterator[None]:
        """From handing a message out until its outcome is with the broker: what stopping must wait for."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._handler_done.set()

    def acknowledge(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """The message is done with: the group's offset moves if nothing older is open."""
        process_queue.last_consume_ms = time.time_ns() // 1_000_000
        offset = process_queue.finish(message)
        if offset is not None and not process_queue.detached:
            self.offsets.advance(process_queue.queue, offset)

    async def send_back(self, message: ReceivedMessage, delay_time_level: int) -> bool:
        """Give a message back to its broker, which delays it or moves it to the dead-letter topic."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self.group,
            delay_level=delay_time_level,
            origin_msg_id=message.offset_message_id,
            origin_topic=message.topic,
            unit_mode=False,
            max_reconsume_times=self.settings.reconsume_limit,
            bname=message.queue.broker_name,
        )
        try:
            address = await self.client.master_address(message.queue.topic, message.queue.broker_name)
            await self.client.invoke(address, self.client.request(RequestCode.CONSUMER_SEND_MSG_BACK, header))
        except HighwaterError as error:
            logger.warning("message %s could not be given back: %s", message.message_id, error)
            await self.client.look_for_master(message.queue.topic, error)
            return False
        return True

    async def await_handlers(self) -> None:
        """Until no handler runs, at most the drain timeout."""
        with anyio.move_on_after(self.settings.drain_timeout_ms / 1000):
            while self.running:
                self._handler_done = anyio.Event()
                await self._handler_done.wait()
            return
        logger.warning("%d handlers still run after %d ms; they are left to themselves and their messages come again",
                       self.running, self.settings.drain_timeout_ms)  # fmt: skip


class ConcurrentConsumeService:
    """Any message of any queue, `consume_threads` at once (ConsumeMessageConcurrentlyService)."""

    def __init__(self, handling: MessageHandling) -> None:
        self._handling = handling
        self._scopes: list[anyio.CancelScope] = []
        self._stopping = False
        # The windows bound what waits here, see Puller._is_full.
        self._waiting_in, self._waiting_out = anyio.create_memory_object_stream[tuple[ProcessQueue, ReceivedMessage]](
            math.inf
        )

    def start(self) -> None:
        for _ in range(self._handling.settings.consume_threads):
            self._scopes.append(self._handling.client.spawn(self._work))

    def submit(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self._waiting_in.send_nowait((process_queue, message))

    async def drain(self) -> None:
        self._stopping = True
        await self._handling.await_handlers()
        for scope in self._scopes:
            scope.cancel()
        self._waiting_in.close()
        self._waiting_out.close()

    async def finish_queue(self, process_queue: ProcessQueue) -> None:
        """Nothing: a message whose handler still runs is handed out again by the queue's next owner, as documented."""

    async def _work(self) -> None:
        async for process_queue, message in self._waiting_out:
            if self._stopping:
                return
            if not process_queue.dropped:
                with self._handling.busy():
                    await self._consume(process_queue, message)

    async def _consume(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        later = await self._handling.try_once(message)
        if _is_left(later, process_queue, message):
            self._handling.client.spawn(lambda: self._resubmit(process_queue, message))
            return
        if (
            later is not None
            and process_queue.contains(message)
            and not await self._handling.send_back(message, later.delay_time_level)
        ):
            again = replace(message, reconsume_times=message.reconsume_times + 1)
            self._handling.client.spawn(lambda: self._resubmit(process_queue, again))
            return
        self._handling.acknowledge(process_queue, message)

    async def _resubmit(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        await anyio.sleep(RESUBMIT_SECONDS)
        if not self._stopping and not process_queue.dropped:
            self.submit(process_queue, [message])


class OrderlyConsumeService:
    """Each queue's messages one after the other, while the broker's lock is held (ConsumeMessageOrderlyService)."""

    def __init__(self, handling: MessageHandling) -> None:
        self._handling = handling
        self._arrived: dict[ProcessQueue, anyio.Event] = {}
        self._busy: dict[ProcessQueue, anyio.Event] = {}
        self._scopes: dict[ProcessQueue, anyio.CancelScope] = {}
        self._limit = anyio.CapacityLimiter(handling.settings.consume_threads)
        self._stopping = False

    def start(self) -> None:
        """Nothing: each queue gets its task with its first message."""

    def submit(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        arrived = self._arrived.get(process_queue)
        if arrived is None:
            self._arrived[process_queue] = anyio.Event()
            self._scopes[process_queue] = self._handling.client.spawn(lambda: self._work(process_queue))
        else:
            arrived.set()

    async def drain(self) -> None:
        self._stopping = True
        await self._handling.await_handlers()
        for scope in self._scopes.values():
            scope.cancel()

    async def finish_queue(self, process_queue: ProcessQueue) -> None:
        """Await the handler that runs: the next owner must not begin before it is done."""
        if process_queue in self._arrived:
            self._arrived[process_queue].set()  # its task may be waiting for messages, of which none come any more
        with anyio.move_on_after(self._handling.settings.drain_timeout_ms / 1000):
            busy = self._busy.get(process_queue)
            if busy is not None:
                await busy.wait()

    async def _work(self, process_queue: ProcessQueue) -> None:
        try:
            while not (self._stopping or process_queue.dropped):
                message = process_queue.first()
                if message is None:
                    await self._arrived[process_queue].wait()
                    self._arrived[process_queue] = anyio.Event()
                elif process_queue.locked_until <= anyio.current_time():
                    await anyio.sleep(UNLOCKED_PAUSE_SECONDS)
                else:
                    await self._consume(process_queue, message)
        finally:
            self._arrived.pop(process_queue, None)
            self._scopes.pop(process_queue, None)

    async def _consume(self, process_queue: ProcessQueue, message: ReceivedMessage) -> None:
        """Until the handler takes it, the queue is taken away, or its tries are used up."""
        handling = self._handling
        while not (self._stopping or process_queue.dropped):
            async with self._limit:
                # Waiting for the turn took a moment, and the task that takes the queue away awaits only what is busy.
                if self._stopping or process_queue.dropped:
                    return
                done = self._busy[process_queue] = anyio.Event()
                try:
                    with handling.busy():
                        again = await self._try(process_queue, message)
                finally:
                    del self._busy[process_queue]
                    done.set()
            if again is None:
                return
            message = again
            await anyio.sleep(handling.settings.suspend_current_queue_time_ms / 1000)
            if process_queue.locked_until <= anyio.current_time():
                return  # the lock was lost while waiting; the work loop waits for it and begins with this message again

    async def _try(self, process_queue: ProcessQueue, message: ReceivedMessage) -> ReceivedMessage | None:
        """Hand the message out; None when it is done with, else the message to try again."""
        handling = self._handling
        later = await handling.try_once(message)
        if _is_left(later, process_queue, message):
            return message
        if later is not None:
            limit = handling.settings.reconsume_limit
            if later.delay_time_level != DLQ_AT_ONCE and message.reconsume_times < limit:
                message = replace(message, reconsume_times=message.reconsume_times + 1)
                process_queue.replace(message)
                return message
            if not await handling.send_back(message, DLQ_AT_ONCE):
                return message
        handling.acknowledge(process_queue, message)
        return None


def _is_left(later: RetryLater | None, process_queue: ProcessQueue, message: ReceivedMessage) -> bool:
    """Whether the message stays in its queue, which is given back soon: for who subscribes later, at the group's offset.

    One that came by the retry topic goes there again: that queue is kept.
    """
    return isinstance(later, _Unhandled) and process_queue.queue.topic == message.topic


def _words(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # an exception of a program's own may have no words
        return name


def _is_being_cancelled() -> bool:
    """Whether the task that runs is. On asyncio a coroutine may raise CancelledError without: of a task that it awaited."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return True  # trio's is always raised by a scope of the task's own
    return task is None or task.cancelling() > 0
