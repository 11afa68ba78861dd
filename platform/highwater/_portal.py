"""Running an asynchronous client from ordinary code: an event loop in a background thread, from start() to stop()."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from highwater.errors import ClientStateError

TwinT = TypeVar("TwinT", bound=AbstractAsyncContextManager[Any])
P = ParamSpec("P")
R = TypeVar("R")


class SyncClient(Generic[TwinT]):
    """Base of the synchronous twins: each method runs its namesake of `_twin` in the loop and waits for it.

    Any thread may call. A program that forgets stop() has it done for it when it ends: a consumer's progress is stored,
    and the loop does not outlive the interpreter.
    """

    def __init__(self, twin: TwinT) -> None:
        self._twin = twin
        # Held for a moment only, and by one thread more than once: a signal's handler may stop what its own thread starts.
        self._lock = threading.RLock()
        self._starting = False
        self._exits: ExitStack | None = None
        self._portal: BlockingPortal | None = None
        self._stopped = False

    def start(self) -> None:
        """As the asynchronous twin's, and start the background thread. Raises ClientStateError when stop() is called meanwhile."""
        with self._lock:
            if self._portal is not None or self._starting or self._stopped:
                raise ClientStateError("this client was started before; make a new one")
            self._starting = True
        try:
            with ExitStack() as exits:
                name = f"highwater-{type(self).__name__.lower()}"
                portal = exits.enter_context(start_blocking_portal(name=name))
                exits.enter_context(portal.wrap_async_context_manager(self._twin))
                with self._lock:
                    if self._stopped:
                        raise ClientStateError("the client was stopped while it started")
                    self._exits = exits.pop_all()
                    self._portal = portal
        finally:
            self._starting = False
        atexit.register(self.stop)

    def stop(self) -> None:
        """As the asynchronous twin's, and end the background thread. Harmless when done twice, or never started.

        A client that is starting ends once it has started.
        """
        with self._lock:
            exits, self._exits = self._exits, None
            self._portal = None
            self._stopped = True
        if exits is not None:
            atexit.unregister(self.stop)
            exits.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _running_portal(self) -> BlockingPortal:
        portal = self._portal
        if portal is None:
            state = "was stopped" if self._stopped else "has not been started: use it in a with-block, or call start()"
            raise ClientStateError(f"the client {state}")
        return portal

    def _run(self, method: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a coroutine method of the twin and wait for its result."""

        async def call() -> R:
            return await method(*args, **kwargs)

        return self._running_portal().call(call)

    def _run_plain(self, method: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a plain method of the twin, inside the loop once it runs: the twin is not safe to touch from outside."""
        portal = self._portal
        if portal is None:
            return method(*args, **kwargs)
        return portal.call(lambda: method(*args, **kwargs))
