"""Keeping the message index up with the log (brokerd/store/index_service.py), in the pauses that the sends leave.

A slice of work, 256 records or 2,048 keys, is a millisecond or two (one record of an older log may have 16,000 keys, and is a slice
of its own), and as long a pause follows it, so that a request waits no longer than that for it.
Under full load the pauses are longer and the index gets a tenth of the core: it falls behind and catches up afterwards.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from brokerd.store import StoreError
from brokerd.store.index_service import FlushedIndex

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.environment import Threads
    from brokerd.services.store_gate import StoreGate
    from brokerd.store import MessageStore

logger = logging.getLogger(__name__)

_LOOK_PERIOD_S: Final = 0.1
_FLUSH_PERIOD_S: Final = 10.0
_RETRY_PERIOD_S: Final = 10.0
_SLICE_RECORDS: Final = 256
_FINISH_TIMEOUT_S: Final = 1.0
# Requests that take more than this share of a pause want the rest of the core too: the index leaves them so many pauses more.
_BUSY_SHARE: Final = 0.2
_BUSY_PAUSES: Final = 8


class MessageIndexService:
    """Runs on every replica: each has an index of its own log, up to confirmOffset."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, gate: StoreGate, clock: SystemClock, threads: Threads
    ) -> None:
        self._enabled = config.message_index_enable
        self._store = store
        self._gate = gate
        self._clock = clock
        self._threads = threads
        self._flushing = trio.Lock()

    async def run(self) -> None:
        """Index until cancelled; what the disk refuses is tried again later, and logged."""
        if not self._enabled:
            return
        next_flush_s = trio.current_time() + _FLUSH_PERIOD_S
        while True:
            try:
                await self._catch_up(next_flush_s)
                if trio.current_time() >= next_flush_s:
                    await self._flush()
                    next_flush_s = trio.current_time() + _FLUSH_PERIOD_S
            except (StoreError, OSError) as error:
                logger.error("the message index cannot be written: %s", error)
                await trio.sleep(_RETRY_PERIOD_S)
            await trio.sleep(_LOOK_PERIOD_S)

    async def finish(self) -> None:
        """At a graceful stop: index the last moments, as far as that is quick; the store's close makes it durable."""
        if self._enabled:
            with trio.move_on_after(_FINISH_TIMEOUT_S):
                try:
                    await self._catch_up(math.inf)
                except (StoreError, OSError) as error:
                    logger.error("the message index lacks the last messages: %s", error)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Nothing is indexed or sought by key meanwhile; the caller shares the store's gate."""
        async with self._flushing:
            index = self._store.index
            index.is_away = True
            try:
                yield
            finally:
                index.is_away = False

    async def _catch_up(self, until_s: float) -> None:
        """Until there is nothing more to index, or the time has come: under load it never catches up, and must flush."""
        while (began_s := trio.current_time()) < until_s:
            async with self._gate.shared():
                store = self._store
                if store.refusal is not None or not store.index.build(store.confirm_offset, _SLICE_RECORDS):
                    return
                if store.index.indexed_until >= store.confirm_offset:
                    return  # what comes in from here on is better taken together than each few records
            spent_s = trio.current_time() - began_s
            began_work_s = self._clock.thread_time()
            await trio.sleep(spent_s)
            if self._clock.thread_time() - began_work_s > spent_s * _BUSY_SHARE:
                await trio.sleep(spent_s * _BUSY_PAUSES)

    async def _flush(self) -> None:
        async with self._gate.shared(), self._flushing:
            store = self._store
            if store.refusal is not None or not store.index.wants_flush:
                return
            await self._threads.run(store.index.begin_flush)
            for step in store.index.flush_steps():
                if isinstance(step, FlushedIndex):
                    await self._threads.run(store.index.sync_flushed, step)
                    store.index.flushed(step)
                else:
                    await trio.lowlevel.checkpoint()
