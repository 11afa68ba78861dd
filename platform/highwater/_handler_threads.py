"""Threads for handlers that are plain functions.

anyio's own worker threads are no daemons: a program that forgets to stop its consumer could then never end. These are,
and they are few: one for each handler that runs at the same time, made when it is first needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import anyio
from anyio import from_thread, lowlevel

from highwater._models import ReceivedMessage


class _Job:
    """One call of a handler."""

    __slots__ = ("done", "error", "handler", "message", "token")

    def __init__(self, handler: Callable[[ReceivedMessage], None], message: ReceivedMessage) -> None:
        self.handler = handler
        self.message = message
        self.error: Exception | None = None
        self.done = anyio.Event()
        self.token = lowlevel.current_token()


class HandlerThreads:
    """Runs handlers, at most as many at once as the consumer hands in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread_count = 0
        self._busy_count = 0

    async def run(self, handler: Callable[[ReceivedMessage], None], message: ReceivedMessage) -> None:
        """Call the handler in a thread and wait; raises what it raises. Cancelled, it leaves the call to its thread."""
        job = _Job(handler, message)
        if self._busy_count >= self._thread_count:
            self._thread_count += 1
            name = f"{self._name}-{self._thread_count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._busy_count += 1
        self._jobs.put(job)
        await job.done.wait()
        if job.error is not None:
            raise job.error

    def stop(self) -> None:
        """Let every thread end after what it is doing."""
        for _ in range(self._thread_count):
            self._jobs.put(None)
        self._thread_count = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job.handler(job.message)
            except Exception as error:  # the caller's task decides what a failure means
                job.error = error
            except BaseException as error:  # sys.exit() in a handler must end neither this thread nor the loop
                job.error = RuntimeError(f"the handler raised {type(error).__name__}: {error}")
            try:
                from_thread.run_sync(self._finished, job, token=job.token)
            except anyio.RunFinishedError:
                return  # the loop has ended: no one waits for this any more

    def _finished(self, job: _Job) -> None:
        self._busy_count -= 1
        job.done.set()
