"""A thread of its own for flushes: a flush happens a thousand times a second, and trio's worker threads cost twice as much
to hand a call over and to hear of its end (150 us against 60 us here) as a lock and a pipe do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import trio


class FlushThread:
    """Runs one blocking call at a time, and waits for its end: a flush that hangs holds up a stop until the process is killed."""

    def __init__(self) -> None:
        self._ended_receive = self._ended_send = -1  # a pipe, once the thread is there
        self._wanted = threading.Lock()
        self._wanted.acquire()
        self._call: Callable[[], object] = int
        self._error: BaseException | None = None
        self._one_at_a_time = trio.Lock()
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], object]) -> None:
        """Run `call` in the thread and wait for its end, also when cancelled; raises what it raises."""
        async with self._one_at_a_time:
            if self._thread is None:
                self._ended_receive, self._ended_send = os.pipe()
                os.set_blocking(self._ended_receive, False)
                self._thread = threading.Thread(target=self._work, name="flush", daemon=True)
                self._thread.start()
            self._call = call
            self._wanted.release()
            with trio.CancelScope(
                shield=True
            ):  # the call cannot be stopped, and its end must not be taken for the next's
                await trio.lowlevel.wait_readable(self._ended_receive)
            os.read(self._ended_receive, 1)
            error, self._error = self._error, None
            if error is not None:
                raise error

    def _work(self) -> None:
        while True:
            self._wanted.acquire()
            try:
                self._call()
            except BaseException as error:  # handed to the caller, whatever it is
                self._error = error
            os.write(self._ended_send, b"\0")
