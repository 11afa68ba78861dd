"""The flush thread runs calls one after the other and hands their errors over."""

import threading

import pytest
import trio
import trio.testing

from brokerd.flush_thread import FlushThread


@pytest.mark.trio
async def test_calls_run_in_one_other_thread() -> None:
    thread = FlushThread()
    seen: list[str] = []
    for _ in range(3):
        await thread.run(lambda: seen.append(threading.current_thread().name))
    assert seen == ["flush"] * 3


@pytest.mark.trio
async def test_an_error_reaches_the_caller_and_the_next_call_runs() -> None:
    thread = FlushThread()

    def fail() -> None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await thread.run(fail)
    done: list[int] = []
    await thread.run(lambda: done.append(1))
    assert done == [1]


@pytest.mark.trio
async def test_callers_wait_for_each_other() -> None:
    thread = FlushThread()
    order: list[str] = []
    release = threading.Event()

    def first() -> None:
        release.wait()
        order.append("first")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(thread.run, first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(thread.run, lambda: order.append("second"))
        await trio.testing.wait_all_tasks_blocked()
        release.set()
    assert order == ["first", "second"]


@pytest.mark.trio
async def test_a_cancelled_caller_still_waits_for_its_call() -> None:
    thread = FlushThread()
    ended: list[int] = []
    release = threading.Event()

    def call() -> None:
        release.wait()
        ended.append(1)

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(thread.run, call)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            release.set()
    assert ended == [1]
