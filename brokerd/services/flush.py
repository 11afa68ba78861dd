"""Making the log durable: at once with SYNC_FLUSH (group commit), each flushIntervalCommitLog with ASYNC_FLUSH.

While one flush runs in a worker thread the broker appends on; the next flush covers all that came meanwhile. A flush
that fails is never tried again: what waits is answered as unproven and the broker takes no more sends (fsyncgate).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.config_values import FlushDiskType
from brokerd.store import StoreError

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.environment import Threads
    from brokerd.replica.replica import Replica
    from brokerd.services.acknowledgement import PendingAcknowledgements
    from brokerd.services.delay_level import ScheduleMessageService
    from brokerd.services.metadata_log import MetadataLog
    from brokerd.services.store_gate import StoreGate
    from brokerd.store import MessageStore

logger = logging.getLogger(__name__)

_EXPIRE_PERIOD_S: Final = 0.5
# Gathering a group costs at most this share of a flush, and never more than this.
_GATHER_SHARE: Final = 0.5
_GATHER_MAX_S: Final = 0.002
_FLUSH_TIME_WEIGHT: Final = 0.1


class _Broker(Protocol):
    """What the flush service uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    threads: Threads
    store: MessageStore
    store_gate: StoreGate
    replica: Replica
    acknowledgements: PendingAcknowledgements
    metadata_log: MetadataLog
    schedule: ScheduleMessageService

    def answer_expired(self) -> None: ...

    def flush_failed(self, cause: str) -> None: ...

    def held_changed(self) -> None: ...


class FlushService:
    """Runs the store's flushes and reports to the broker how far the log is durable."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._wanted = trio.Event()
        self._thread = broker.threads.one_call_thread()
        self._flush_s = 0.0  # a moving mean of how long a flush takes
        self._group_answers = 0
        self._synchronous = broker.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def flush_soon(self) -> None:
        """There is something to flush; with SYNC_FLUSH a sender waits for it."""
        self._wanted.set()

    async def run(self) -> None:
        """Flush until cancelled or until a flush fails."""
        interval_s = self._broker.config.flush_interval_commit_log_ms / 1000
        while True:
            if self._synchronous:
                await self._wanted.wait()
                await self._gather()
            else:
                await trio.sleep(interval_s)
            if not await self.flush_once():
                return

    async def _gather(self) -> None:
        """Let the senders of the last group come back before the next group is flushed.

        Those who were answered by the last flush send again a moment later. Flushing at once would miss them, and from
        then on the senders would take turns in two half groups, each waiting out the other's flush.
        """
        deadline_s = trio.current_time() + min(self._flush_s * _GATHER_SHARE, _GATHER_MAX_S)
        with trio.move_on_at(deadline_s):
            while self._waiting_answers < self._group_answers:
                self._wanted = trio.Event()
                await self._wanted.wait()
        self._broker.metadata_log.write_for_waiting()
        self._wanted = trio.Event()

    @property
    def _waiting_answers(self) -> int:
        return self._broker.acknowledgements.waiting_answers + self._broker.metadata_log.waiting_answers

    async def flush_once(self) -> bool:
        """One flush of all that is appended by now; False when it failed, for ever."""
        broker = self._broker
        store = broker.store
        # What a damaged log holds is made durable when it is repaired.
        if store.durable_offset < store.end_offset and store.damaged_from is None:
            started_s = trio.current_time()
            try:
                async with self._broker.store_gate.shared():
                    if self._broker.store_gate.closed:
                        return True  # it could not be opened again: opening it makes durable what it holds
                    await self._thread.run(store.flush)
            except StoreError as error:
                logger.error("flush failed, taking no more messages: %s", error)
                broker.flush_failed(str(error))
                return False
            self._flush_s += (trio.current_time() - started_s - self._flush_s) * _FLUSH_TIME_WEIGHT
        # All who wait now, whether this flush answers them or the next: that many may come back together.
        self._group_answers = self._waiting_answers
        broker.held_changed()
        return True

    async def run_consume_queues(self) -> None:
        """Write what the ConsumeQueues hold in memory; they are a function of the log, so no one waits for it."""
        interval_s = self._broker.config.flush_interval_consume_queue_ms / 1000
        store = self._broker.store
        while True:
            await trio.sleep(interval_s)
            if store.refusal is not None:
                continue  # a read-only store writes nothing; why was logged when it became so
            try:
                async with self._broker.store_gate.shared():
                    written = store.write_consume_queues()
                    await self._broker.threads.run(store.sync_consume_queues, written)
            except (StoreError, OSError) as error:
                logger.error("the ConsumeQueues cannot be written, they stay in memory: %s", error)

    async def run_retention(self) -> None:
        """Delete what is older than fileReservedTime, each cleanResourceInterval."""
        interval_s = self._broker.config.clean_resource_interval_ms / 1000
        while True:
            await trio.sleep(interval_s)
            try:
                async with self._broker.store_gate.shared():
                    self._broker.replica.remember_epochs()
                    # Topics, groups and offsets are read from their last base on, also when the clock has jumped by days
                    # or the group has been idle: that file stays until there is a newer base.
                    report = self._broker.store.delete_expired(
                        self._broker.clock.time_ms(),
                        keep_from_offset=self._broker.metadata_log.needed_from,
                        waiting_from=self._broker.schedule.first_waiting(),
                    )
            except (StoreError, OSError) as error:
                logger.error("expired files cannot be deleted: %s", error)
                continue
            if report.deleted_commit_log_files:
                logger.info("deleted %d expired CommitLog files", len(report.deleted_commit_log_files))

    async def run_expiry(self) -> None:
        """Answer what has waited for a flush, or for a message, too long."""
        while True:
            await trio.sleep(_EXPIRE_PERIOD_S)
            self._broker.answer_expired()
