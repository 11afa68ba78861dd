"""Worker threads of a simulated process: a blocking call stops wherever the disk takes time, and the rest goes on.

So a flush in a thread overlaps with appends as it does in production, and a process can be killed or paused in the middle of it;
which of both comes first follows from the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

import outcome
import trio

from tests.sim.trio_process import Strand, TrioProcess

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimThreads:
    """Implements brokerd.environment.Threads for one process. `hand_over_s` draws how long a call waits for its thread."""

    def __init__(self, process: TrioProcess, hand_over_s: Callable[[], float]) -> None:
        self._process = process
        self._hand_over_s = hand_over_s

    async def run(self, call: Callable[[*Ts], T], *arguments: *Ts) -> T:
        process, task = self._process, trio.lowlevel.current_task()

        def work() -> None:
            try:
                result: Any = outcome.Value(call(*arguments))
            except BaseException as error:
                result = outcome.Error(error)
            if not process.dead:
                process.wake(task, result)

        process.resume_after(Strand.of(process, work), self._hand_over_s())

        def abort(_raise: object) -> trio.lowlevel.Abort:
            # As trio's, a thread cannot be stopped; but with its process it is gone.
            return trio.lowlevel.Abort.SUCCEEDED if process.dead else trio.lowlevel.Abort.FAILED

        return await trio.lowlevel.wait_task_rescheduled(abort)  # type: ignore[no-any-return] # what the call returned

    def one_call_thread(self) -> _OneCallThread:
        return _OneCallThread(self)


class _OneCallThread:
    def __init__(self, threads: SimThreads) -> None:
        self._threads = threads
        self._one_at_a_time = trio.Lock()

    async def run(self, call: Callable[[], object]) -> None:
        async with self._one_at_a_time:
            await self._threads.run(call)
