"""Turns of a daemon's loop: however many connections the same people have, they have one turn between two of everyone else's.

Connections that showed the same account are the same people. So are all strangers, among whom each address is served in turn.
Sans-io: who makes `Shares` passes a lock that serves in order, and a way to let all other tasks run once.
"""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

# What the same people may do in one turn of the loop; who comes then waits for the next.
SHARE_S: Final = 0.002

Queue: TypeAlias = AbstractAsyncContextManager[None]


class Share:
    """The turns of the same people, over all their connections."""

    def __init__(self, queue: Queue, let_others_run: Callable[[], Awaitable[None]]) -> None:
        self._queue = queue
        self._let_others_run = let_others_run
        self._spent_s = 0.0

    @property
    def is_used_up(self) -> bool:
        """Whether they have had their time."""
        return self._spent_s > SHARE_S

    async def turn(self) -> None:
        """Wait until they may do something again: not at all, unless they have had their time."""
        if self.is_used_up:
            async with self._queue:
                await self._let_others_run()
                self._spent_s = 0.0

    def spend(self, seconds: float) -> None:
        """They have taken so much of the loop's time."""
        self._spent_s += seconds


class ShareOfAddress:
    """One address's turns among all strangers: where many of it wait, a stranger from elsewhere is next all the same."""

    def __init__(self, queue: Queue, strangers: Share) -> None:
        self._queue = queue
        self._strangers = strangers

    async def turn(self) -> None:
        """Wait as `Share.turn` does, one of the address at a time."""
        if self._strangers.is_used_up:
            async with self._queue:
                await self._strangers.turn()

    def spend(self, seconds: float) -> None:
        """It has taken so much of the time of all strangers."""
        self._strangers.spend(seconds)


class Rows:
    """A row in which the same people stand once: where many of them wait, someone else is next all the same."""

    def __init__(self, new_queue: Callable[[], Queue]) -> None:
        self._new_queue = new_queue
        self._all = new_queue()
        self._own: dict[str, tuple[Queue, int]] = {}  # and how many wait in it or have their turn

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait until no one else has a turn; have it while inside."""
        own, waiting = self._own.get(name) or (self._new_queue(), 0)
        self._own[name] = own, waiting + 1
        try:
            async with own, self._all:
                yield
        finally:
            waiting = self._own[name][1] - 1
            if waiting:
                self._own[name] = own, waiting
            else:
                del self._own[name]


AnyShare: TypeAlias = Share | ShareOfAddress


class Shares:
    """Everyone's. One is kept as long as a connection holds it."""

    def __init__(self, new_queue: Callable[[], Queue], let_others_run: Callable[[], Awaitable[None]]) -> None:
        self._new_queue = new_queue
        self._let_others_run = let_others_run
        self._strangers = Share(new_queue(), let_others_run)
        self._of_addresses: weakref.WeakValueDictionary[str, ShareOfAddress] = weakref.WeakValueDictionary()
        self._of_accounts: weakref.WeakValueDictionary[str, Share] = weakref.WeakValueDictionary()

    def of_stranger(self, address: str) -> ShareOfAddress:
        """The share of a connection from this address that has not shown an account."""
        share = self._of_addresses.get(address)
        if share is None:
            share = self._of_addresses[address] = ShareOfAddress(self._new_queue(), self._strangers)
        return share

    def of_account(self, access_key: str) -> Share:
        """The share of an account's connections."""
        share = self._of_accounts.get(access_key)
        if share is None:
            share = self._of_accounts[access_key] = Share(self._new_queue(), self._let_others_run)
        return share
