"""A process on virtual time: one trio run of its own, advanced step by step by the event loop of the simulation.

Each process has its own scheduler, clock and readiness calls, so that it can be paused (nothing of it moves), run on a clock of
its own, or be killed between any two steps (what its `finally` blocks do afterwards reaches nothing: `Killed` is raised by disk
and network). This drives trio's own loop (`unrolled_run`, as guest mode does) and sets its switch for deterministic scheduling;
all of that is private to trio 0.35, which is pinned, and test_trio_process.py holds it.
"""

from __future__ import annotations

import contextvars
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import TracebackType
from typing import Any
from unittest.mock import patch

import greenlet
import outcome
import trio
from trio._core import _run
from trio._core._instrumentation import Instruments
from trio._core._ki import KIManager

from tests.sim.event_loop import EventLoop

_TICK_S = (
    20e-6  # how long one round of the scheduler takes; so that a task that always has more to do meets its deadline
)
_ROUNDS = 8  # of the scheduler in one step, while its tasks have more to do
_STEPS_TO_END = 200
_LOCK_LOOK_S = 0.0001
_PAUSED_LOOK_S = 0.01
_BLOCKED_FOR_EVER_S = 10_000.0


class Killed(BaseException):
    """The process is gone: whatever it still tries has no effect."""


class Strand(greenlet.greenlet):  # type: ignore[misc] # greenlet has no type hints
    """One flow of control of a process: a step of its scheduler, or a call in one of its threads. It may block (`block`).

    One whose work is done takes other work later, of any process: the stack of a new greenlet is mapped and unmapped by the
    system, which costs more than most steps.
    """

    process: TrioProcess
    work: Callable[[], None] | None
    task: Any = None  # of trio's, while it is suspended

    @classmethod
    def of(cls, process: TrioProcess, work: Callable[[], None]) -> Strand:
        strand = _IDLE.pop() if _IDLE else cls()
        strand.process, strand.work, strand.task = process, work, None
        process.strands[strand] = None
        return strand

    def run(self) -> None:
        """Its works, one after the other; an error ends it."""
        while self.work is not None:
            self.work()
            self.work = None
            self.parent.switch()


_IDLE: list[Strand] = []


def block(seconds: float) -> None:
    """The call that is under way takes so long; whatever else is simulated goes on meanwhile. Nothing outside of a process."""
    strand = greenlet.getcurrent()
    if isinstance(strand, Strand) and seconds > 0:
        strand.process.resume_after(strand, seconds)
        assert strand.parent is not None, "the loop switched to it"
        strand.parent.switch()


class SimLock:
    """threading.Lock between the strands of one process."""

    def __init__(self) -> None:
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        while self._held:
            if not blocking:
                return False
            block(_LOCK_LOOK_S)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def simulated_locks() -> Iterator[None]:
    """Locks made meanwhile are between strands: a real one would stop everything."""
    with patch.object(threading, "Lock", SimLock):
        yield


class _Clock(trio.abc.Clock):
    def __init__(self, process: TrioProcess) -> None:
        self._process = process

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._process.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self._process.monotonic()


class Waitable:
    """What a task can wait for: something with data to read or room to write. Each has one waiter at a time, as in trio."""

    def __init__(self) -> None:
        self.owner: TrioProcess | None = None
        self.reader: Any = None
        self.writer: Any = None
        self.closed = False

    def is_readable(self) -> bool:
        raise NotImplementedError

    def is_writable(self) -> bool:
        raise NotImplementedError

    def changed(self) -> None:
        """Wake the tasks that wait for what is true now."""
        owner = self.owner
        if owner is None:
            return
        if self.reader is not None and (self.closed or self.is_readable()):
            task, self.reader = self.reader, None
            owner.wake(task)
        if self.writer is not None and (self.closed or self.is_writable()):
            task, self.writer = self.writer, None
            owner.wake(task)


class _Readiness:
    """Takes the place of trio's epoll manager."""

    def __init__(self, process: TrioProcess) -> None:
        self._process = process

    def process_events(self, events: list[tuple[Any, Any]]) -> None:
        runner = _run.GLOBAL_RUN_CONTEXT.runner
        for task, result in events:
            runner.reschedule(task, result)

    async def wait_readable(self, waitable: Any) -> None:
        await self._wait(waitable, "reader")

    async def wait_writable(self, waitable: Any) -> None:
        await self._wait(waitable, "writer")

    async def _wait(self, waitable: Any, slot: str) -> None:
        if not isinstance(waitable, Waitable):  # the wake-up pipe of trio's own run: no one writes into it here
            await trio.lowlevel.wait_task_rescheduled(lambda _raise: trio.lowlevel.Abort.SUCCEEDED)
            return
        if waitable.closed:
            raise OSError(9, "Bad file descriptor")
        if getattr(waitable, slot) is not None:
            raise trio.BusyResourceError("another task waits for this already")
        waitable.owner = self._process
        setattr(waitable, slot, trio.lowlevel.current_task())
        waitable.changed()

        def abort(_raise: object) -> trio.lowlevel.Abort:
            if getattr(waitable, slot) is None:
                return trio.lowlevel.Abort.FAILED  # it is being woken already
            setattr(waitable, slot, None)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if waitable.closed:
            raise trio.ClosedResourceError("another task closed this")

    def notify_closing(self, waitable: Any) -> None:
        if isinstance(waitable, Waitable):
            waitable.closed = True
            waitable.changed()

    def force_wakeup(self) -> None:
        pass

    def close(self) -> None:
        pass


class TrioProcess:
    """Runs `main` from its creation on.

    `on_step` is called after each step, and before bytes leave it (`look`). `on_end` is called once, when it ends by itself,
    with the error that ended it or None. `rate` is how fast its monotonic clock runs.
    """

    def __init__(
        self,
        loop: EventLoop,
        main: Callable[[], Awaitable[object]],
        *,
        on_step: Callable[[], None],
        on_end: Callable[[BaseException | None], None],
        began_s: float = 0.0,
        rate: float = 1.0,
    ) -> None:
        self.loop = loop
        self.dead = False
        self.paused = False
        self.rate = rate
        self._began_s = began_s
        self.look = on_step
        self._on_end = on_end
        self._events: list[tuple[Any, Any]] = []
        self._plan = 0  # a planned step that has another number is out of date
        self._running = False
        self._missed = False
        self._disposed = False
        self._timeout_s = 0.0
        self._ended = False
        self.strands: dict[Strand, None] = {}
        self.in_step = False
        self._random = Random(loop.random.getrandbits(64))
        self._runner = _run.Runner(
            clock=_Clock(self),
            instruments=Instruments(()),
            io_manager=_Readiness(self),  # type: ignore[arg-type] # it has what the run calls
            system_context=contextvars.copy_context(),
            ki_manager=KIManager(),
            strict_exception_groups=True,
            entry_queue=_EntryQueue(),  # type: ignore[arg-type] # it has what the run calls
        )
        self._runner.asyncgens.prev_hooks = sys.get_asyncgen_hooks()  # to be left as they are
        self._run: Generator[float, list[tuple[Any, Any]], None] = _run.unrolled_run(
            self._runner, main, (), host_uses_signal_set_wakeup_fd=True
        )
        self._began = False
        self._step_after(0.0)

    @property
    def is_in_a_step(self) -> bool:
        """Whether its scheduler's step is under way, blocked in a call: what it does there is half done."""
        return self._running

    def monotonic(self) -> float:
        """This process's clock of waits."""
        return self._began_s + self.loop.now_s * self.rate

    # --- what the world does to it

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.paused:
            self.paused = False
            if self._missed:
                self._missed = False
                self._step_after(0.0)

    def kill(self) -> None:
        """SIGKILL; from here on nothing that it does has an effect. `on_end` is not called."""
        self.dead = True
        if not self._disposed and not isinstance(greenlet.getcurrent(), Strand):
            for strand in list(self.strands):
                _enter(strand, Killed())
            self._dispose()

    def wake(self, task: Any, result: Any = None) -> None:
        """Let a waiting task go on, with a value or an error of the `outcome` package."""
        self._events.append((task, outcome.Value(None) if result is None else result))
        if not self._running:
            self._step_after(0.0)

    # --- stepping

    def _step_after(self, delay_s: float) -> None:
        self._plan += 1
        plan = self._plan
        self.loop.after(delay_s, lambda: self._step(plan))

    def _step(self, plan: int) -> None:
        if plan != self._plan or self.dead:
            return
        if self.paused:
            self._missed = True
            return
        self._running = True
        self._resume(Strand.of(self, self._step_in_strand))

    def resume_after(self, strand: Strand, seconds: float) -> None:
        """Let it go on then."""
        self.loop.after(seconds, lambda: self._resume(strand))

    def _resume(self, strand: Strand) -> None:
        if self.dead:
            return
        if self.paused:
            self.resume_after(strand, _PAUSED_LOOK_S)
            return
        _enter(strand)
        if self._running and not self.in_step:
            self._running = False
            self._step_is_done()

    def _step_in_strand(self) -> None:
        self.in_step = True
        try:
            for _ in range(_ROUNDS):
                self._timeout_s = self._advance()
                if self._timeout_s > 0 or self.dead:
                    break
        except StopIteration:
            self._ended = True
        except Killed:
            pass
        finally:
            self.in_step = False

    def _step_is_done(self) -> None:
        if self.dead:
            return  # the one that killed it disposes of it
        if self._ended:
            self.dead = self._disposed = True
            self._on_end(self._error())
            return
        self.look()
        if self.dead:
            return
        if self._timeout_s <= 0 or self._events:
            self._step_after(_TICK_S)
        elif self._timeout_s < _BLOCKED_FOR_EVER_S:
            self._step_after(self._timeout_s / self.rate + 1e-9)

    def _advance(self) -> float:
        events, self._events = self._events, []
        if not self._began:
            self._began = True
            return next(self._run)
        return self._run.send(events)

    def _error(self) -> BaseException | None:
        result = self._runner.main_task_outcome
        return result.error if isinstance(result, outcome.Error) else None

    def _dispose(self) -> None:
        """Let every task end, now that nothing that they do reaches anything."""
        self._disposed = True
        if not self._began:
            return

        def end() -> None:
            try:
                for nursery in (
                    self._runner.main_task and self._runner.main_task.parent_nursery,
                    self._runner.system_nursery,
                ):
                    if nursery is not None:
                        nursery.cancel_scope.cancel()
                for _ in range(_STEPS_TO_END):
                    self._advance()
            except StopIteration:
                return
            except BaseException:
                pass  # trio's own run may not survive what a killed task raises: it is gone in any case
            # A task that did not end stays where it was killed: were it collected, its nurseries would complain.
            _GRAVEYARD.append(self)

        _enter(Strand.of(self, end))


def _enter(strand: Strand, error: BaseException | None = None) -> None:
    """Let it run until it ends or blocks, in the scheduler's context of its process."""
    process = strand.process
    context = _run.GLOBAL_RUN_CONTEXT
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc] # trio's own switch for Hypothesis
    _run._r = process._random
    context.runner = process._runner
    if strand.task is not None:
        context.task = strand.task
    strand.parent = greenlet.getcurrent()
    try:
        if error is None:
            strand.switch()
        else:
            strand.throw(error)
    except Killed:
        pass
    finally:
        strand.task = getattr(context, "task", None)
        context.__dict__.clear()
    if strand.dead:
        process.strands.pop(strand, None)
    elif strand.work is None:
        del process.strands[strand]
        _IDLE.append(strand)


_GRAVEYARD: list[TrioProcess] = []


class _EntryQueue:
    """What trio wants to be done in between. No thread and no signal enters: threads end by `TrioProcess.wake`."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], object]] = deque()
        self._waiter: Any = None

    async def task(self) -> None:
        while True:
            while self._jobs:
                self._jobs.popleft()()
            self._waiter = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)

    def run_sync_soon(self, call: Callable[..., object], *arguments: Any, idempotent: bool = False) -> None:
        self._jobs.append(partial(call, *arguments))
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            trio.lowlevel.reschedule(waiter)

    def _abort(self, _raise: object) -> trio.lowlevel.Abort:
        self._waiter = None
        return trio.lowlevel.Abort.SUCCEEDED

    def close(self) -> None:
        """Nothing is open."""
