"""What a simulated process rests on of trio's private parts, and what pausing, killing and threads mean to it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import greenlet
import pytest
import trio

from tests.sim.event_loop import EventLoop
from tests.sim.network import Network, ProcessNetwork
from tests.sim.sim_threads import SimThreads
from tests.sim.trio_process import Killed, SimLock, TrioProcess, block


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each process of a test ends with it."""
    processes: list[TrioProcess] = []
    make = TrioProcess.__init__

    def made(self: TrioProcess, *arguments: Any, **keywords: Any) -> None:
        make(self, *arguments, **keywords)
        processes.append(self)

    monkeypatch.setattr(TrioProcess, "__init__", made)
    yield
    for process in processes:
        process.kill()


def run(main: Callable[[], Awaitable[object]], *, seed: int = 1, rate: float = 1.0) -> tuple[TrioProcess, EventLoop]:
    loop = EventLoop(seed)
    ends: list[BaseException | None] = []
    process = TrioProcess(loop, main, on_step=lambda: None, on_end=ends.append, rate=rate)
    return process, loop


def trace_of(seed: int) -> str:
    lines: list[str] = []

    async def worker(number: int) -> None:
        for turn in range(20):
            await trio.sleep(0.1)
            lines.append(f"{number} {turn} {trio.current_time()}")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(worker, number)

    run(main, seed=seed)[1].run_until(10.0)
    assert len(lines) == 100
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_the_same_seed_is_the_same_schedule_ten_times() -> None:
    assert len({trace_of(7) for _ in range(10)}) == 1


def test_another_seed_is_another_schedule() -> None:
    assert len({trace_of(seed) for seed in range(5)}) > 1


def test_a_paused_process_goes_on_where_it_was() -> None:
    woke: list[float] = []

    async def main() -> None:
        while True:
            await trio.sleep(1.0)
            woke.append(trio.current_time())

    process, loop = run(main)
    loop.run_until(1.5)
    process.pause()
    loop.run_until(5.0)
    assert [round(at_s) for at_s in woke] == [1]
    process.resume()
    loop.run_until(6.5)
    assert [round(at_s) for at_s in woke] == [1, 5, 6]


def test_a_fast_clock_waits_less() -> None:
    async def main() -> None:
        await trio.sleep(10.0)

    process, loop = run(main, rate=2.0)
    loop.run_until(5.1)
    assert process.dead


def test_what_a_killed_process_tries_in_its_finally_blocks_reaches_nothing() -> None:
    loop = EventLoop(1)
    network = Network(loop)
    network.add_host("here", "10.0.0.1")
    tried: list[type[BaseException] | None] = []

    async def main() -> None:
        listener = ProcessNetwork(network, process, "here", "10.0.0.1").listen("0.0.0.0", 1, 1)
        try:
            await trio.sleep(100.0)
        finally:
            try:
                listener.accept()
                tried.append(None)
            except BaseException as error:
                tried.append(type(error))

    process = TrioProcess(loop, main, on_step=lambda: None, on_end=lambda error: None)
    loop.run_until(1.0)
    process.kill()
    assert tried == [Killed]


def test_a_call_in_a_thread_overlaps_with_the_tasks() -> None:
    lines: list[str] = []

    async def main() -> None:
        threads = SimThreads(process, lambda: 0.001)

        def call() -> str:
            lines.append("call begins")
            block(1.0)
            lines.append("call ends")
            return "done"

        async def task() -> None:
            await trio.sleep(0.5)
            lines.append("task")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)
            lines.append(await threads.run(call))

    process, loop = run(main)
    loop.run_until(3.0)
    assert lines == ["call begins", "task", "call ends", "done"]


def test_an_error_of_a_thread_reaches_its_caller() -> None:
    caught: list[str] = []

    async def main() -> None:
        def call() -> None:
            raise OSError("no disk")

        try:
            await SimThreads(process, lambda: 0.001).run(call)
        except OSError as error:
            caught.append(str(error))

    process, loop = run(main)
    loop.run_until(1.0)
    assert caught == ["no disk"]


def test_a_thread_waits_for_a_lock_that_another_one_holds() -> None:
    lines: list[str] = []
    lock = SimLock()

    async def main() -> None:
        threads = SimThreads(process, lambda: 0.001)

        def call(name: str) -> None:
            with lock:
                lines.append(f"{name} begins")
                block(1.0)
                lines.append(f"{name} ends")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(threads.run, call, "one")
            await trio.sleep(0.1)
            nursery.start_soon(threads.run, call, "other")

    process, loop = run(main)
    loop.run_until(5.0)
    assert lines == ["one begins", "one ends", "other begins", "other ends"]


def test_bytes_sent_while_a_link_is_cut_arrive_in_order_once_it_is_healed() -> None:
    loop = EventLoop(1)
    network = Network(loop)
    network.add_host("a", "10.0.0.1")
    network.add_host("b", "10.0.0.2")
    received: list[bytes] = []

    async def serve() -> None:
        listener = ProcessNetwork(network, process, "b", "10.0.0.2").listen("0.0.0.0", 7, 1)
        await trio.lowlevel.wait_readable(listener)
        endpoint, _address = listener.accept()
        while True:
            await trio.lowlevel.wait_readable(endpoint)
            received.append(endpoint.recv(10))

    process = TrioProcess(loop, serve, on_step=lambda: None, on_end=lambda error: None)
    ends: list[object] = []
    loop.run_until(0.1)

    def connected(endpoint: object) -> None:
        ends.append(endpoint)

    network.connect("a", "10.0.0.1", "10.0.0.2:7", connected)
    loop.run_until(0.2)
    (near,) = ends
    network.blocked.add(("a", "b"))
    near.send(b"one")  # type: ignore[attr-defined] # it is an Endpoint
    near.send(b"two")  # type: ignore[attr-defined] # as above
    loop.run_until(3.0)
    assert received == []
    network.heal()
    loop.run_until(6.0)
    assert received == [b"one", b"two"]


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_peer_of_a_process_that_is_gone_gets_a_reset_at_the_latest(power_cut: bool) -> None:
    loop = EventLoop(1)
    network = Network(loop)
    network.add_host("a", "10.0.0.1")
    network.add_host("b", "10.0.0.2")

    async def serve() -> None:
        listener = ProcessNetwork(network, process, "b", "10.0.0.2").listen("0.0.0.0", 7, 1)
        await trio.lowlevel.wait_readable(listener)
        listener.accept()
        await trio.sleep_forever()

    process = TrioProcess(loop, serve, on_step=lambda: None, on_end=lambda error: None)
    lost: list[str] = []

    def connected(endpoint: object) -> None:
        endpoint.on_data = lambda data: None  # type: ignore[attr-defined] # it is an Endpoint
        endpoint.on_closed = lambda: lost.append("lost")  # type: ignore[attr-defined] # as above
        loop.after(2.0, lambda: endpoint.send(b"?") if not lost else None)  # type: ignore[attr-defined] # as above

    loop.run_until(0.1)
    network.connect("a", "10.0.0.1", "10.0.0.2:7", connected)
    loop.run_until(1.0)
    network.process_ended("b", power_cut=power_cut)
    process.kill()
    loop.run_until(1.5)
    assert lost == ([] if power_cut else ["lost"])
    loop.run_until(4.0)
    assert lost == ["lost"]


def test_steps_share_a_strand() -> None:
    """A new greenlet for each has a stack mapped and unmapped, and that was a quarter of what a seed cost."""
    strands: set[greenlet.greenlet] = set()

    async def main() -> None:
        for _ in range(10):
            strands.add(greenlet.getcurrent())
            await trio.sleep(0.1)

    run(main)[1].run_until(2.0)
    assert len(strands) == 1
