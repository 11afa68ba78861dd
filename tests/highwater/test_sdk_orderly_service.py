"""Handing an orderly queue over: no handler may begin once the queue has been taken away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from anyio.abc import TaskGroup

from highwater import ReceivedMessage
from highwater._consume_service import MessageHandling, OrderlyConsumeService
from highwater._consumer import AsyncHandler
from highwater._process_queue import ProcessQueue
from tests.highwater.received import QUEUE, message

pytestmark = pytest.mark.anyio


def orderly_service(tasks: TaskGroup, handle: AsyncHandler, offsets: Any = None) -> OrderlyConsumeService:
    """One thread, and no client but the tasks."""

    def spawn(work: Any) -> anyio.CancelScope:
        scope = anyio.CancelScope()

        async def run() -> None:
            with scope:
                await work()

        tasks.start_soon(run)
        return scope

    settings = SimpleNamespace(consume_threads=1, drain_timeout_ms=1000, consume_timeout_min=1)
    client = cast(Any, SimpleNamespace(spawn=spawn))
    return OrderlyConsumeService(MessageHandling(client, "g", cast(Any, settings), offsets, handle))


async def test_a_message_that_waits_for_a_thread_is_not_begun_after_its_queue_was_taken_away() -> None:
    """`finish_queue` awaits the handlers that run; one that has yet to begin must notice by itself."""
    begun: list[int] = []

    async def handle(received: ReceivedMessage) -> None:
        begun.append(received.queue_offset)

    async with anyio.create_task_group() as tasks:
        service = orderly_service(tasks, handle)
        queue = ProcessQueue(QUEUE)
        queue.locked_until = anyio.current_time() + 60
        async with service._limit:  # another queue's handler has the only thread
            service.submit(queue, queue.put([message(0)], 1))
            await anyio.wait_all_tasks_blocked()
            queue.dropped = True
            await service.finish_queue(queue)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert begun == []


async def test_nothing_is_left_of_a_queue_that_was_taken_away_while_it_waited_for_messages() -> None:
    handled = anyio.Event()

    async def handle(received: ReceivedMessage) -> None:
        handled.set()

    offsets = SimpleNamespace(advance=lambda _queue, _offset: None)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:  # which ends with its last task
            service = orderly_service(tasks, handle, offsets)
            queue = ProcessQueue(QUEUE)
            queue.locked_until = anyio.current_time() + 60
            service.submit(queue, queue.put([message(0)], 1))
            await handled.wait()
            await anyio.wait_all_tasks_blocked()
            queue.dropped = True
            await service.finish_queue(queue)
    assert not service._scopes
