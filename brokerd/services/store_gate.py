"""Which tasks work on the store's files from a thread, and which must be alone with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio


class StoreGate:
    """Flushes and deletions share the store; reopening it after a truncation waits for them and keeps them out.

    `is_away` says that reopening failed: nothing is there to be read before it is tried again.
    """

    def __init__(self, is_away: Callable[[], bool] = lambda: False) -> None:
        self._is_away = is_away
        self._users = 0
        self._idle = trio.Event()
        self._opened: trio.Event | None = None

    @property
    def closed(self) -> bool:
        """Whether one task is alone with the store, or it could not be opened again: nothing of it may be read or written."""
        return self._opened is not None or self._is_away()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Use the store's files beside others."""
        while self._opened is not None:
            await self._opened.wait()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Be alone with the store."""
        while self._opened is not None:
            await self._opened.wait()
        self._opened = trio.Event()
        try:
            while self._users:
                self._idle = trio.Event()
                await self._idle.wait()
            yield
        finally:
            opened, self._opened = self._opened, None
            opened.set()
