"""MeteringService: the leader writes down what its group did, each meteringIntervalMs, on RMQ_SYS_METERING in its own log.

What is sent is counted while it is appended (store/append_message.py), into the open interval. At each multiple of the
interval the open one is sealed, with the log's end as its end; it is recorded once confirmOffset has reached that. So each
record says exactly what the log holds between its two offsets, and the next begins where it ends. Intervals are of monotonic
time (clock.py): a wall clock that steps moves none of them.

A new leader looks up the last record in its log and counts what comes after it again, up to where it began to lead:
neither a crash nor a promotion loses or doubles a message. Which credential sent them is not in the log. What was pulled is
not in it either: that is noted in a file each second (journal.py), and what may be missing after a crash is reported. A
follower reports to its leader what it hands out.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

import trio

from brokerd.metering.clock import SteadyTime
from brokerd.metering.journal import (
    PERIOD_OF_MANY_ROWS_S,
    PERIOD_S,
    ROWS_OFTEN_MAX,
    Journal,
    JournalFile,
    JournalInterval,
)
from brokerd.metering.meter import Interval, Meter
from brokerd.metering.records import (
    Recorded,
    Samples,
    intervals_recorded,
    last_recorded,
    message_of,
    records_of,
)
from brokerd.metering.recount import Recount, RecountError
from brokerd.metering.report import PullReporter
from brokerd.metering.samples import connections, take_samples
from brokerd.metering.storage import StoredBytes
from brokerd.store import GetResult, StoreError
from mqwire.metering import MeteringRecordError, OutRow, PullReport
from mqwire.names import RMQ_SYS_METERING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.environment import Threads
    from brokerd.producer_manager import ProducerManager
    from brokerd.replica.replica import Replica
    from brokerd.services.remoting_client import RemotingClient
    from brokerd.store import AppendResult, Disk, MessageStore, MessageToStore
    from brokerd.store.send_counts import SendCounts
    from brokerd.topic_config import TopicConfigManager

logger = logging.getLogger(__name__)

_LOOK_PERIOD_S: Final = 0.1
_AFTER_FAILURE_S: Final = 10.0
_RECORDS_AT_A_TIME: Final = 200  # of a recount: less than a millisecond of the event loop
_SEALED_MAX: Final = 120  # intervals that wait; after these the open one goes on
_SEALED_ROWS_MAX: Final = 50_000  # of what was pulled in those
_STOP_TIMEOUT_S: Final = 1.5
_RECORD_BYTES_MAX: Final = 1024 * 1024
_HOUR_MS: Final = 3_600_000
_JOURNAL_RECORDS_BACK: Final = 240  # that are looked through for intervals of the journal: those that wait are fewer


class _Broker(Protocol):
    """What metering uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    disk: Disk
    threads: Threads
    store: MessageStore
    store_host: bytes
    replica: Replica
    topic_configs: TopicConfigManager
    consumer_offsets: ConsumerOffsetManager
    consumers: ConsumerManager
    producers: ProducerManager

    def append(self, messages: Sequence[MessageToStore]) -> list[AppendResult]: ...

    def client_of(self, address: str) -> RemotingClient: ...

    def refuses_appends(self) -> str | None: ...


class MeteringService:
    """Counts while this replica leads. All but `run` and `finish` are called from the hot path and never wait."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._interval_ms = broker.config.metering_interval_ms
        self.meter: Meter | None = None  # what counts now; None: this replica does not lead, or metering is off
        self._hour = 0  # whose pairs of topic and group have rows
        self._epoch = -1
        # Where this leadership's counting began; what lies in front of it is counted from the log.
        self._lead_offset = 0
        self._open_offset = 0
        self._open_ms = 0
        self._next_seal_ms = 0
        self._sealed: deque[Interval] = deque()
        self._caught_up = False
        self._sequence = 0
        self._wake = trio.Event()
        self._running: trio.CancelScope | None = None
        self.stored_bytes = StoredBytes(broker.store)
        self._reporter = PullReporter(
            broker.replica, broker.store, broker.store_host, broker.client_of, first_number=broker.clock.time_ms()
        )
        self._time = SteadyTime(broker.clock.time_ms(), broker.clock.monotonic())
        self._logged_step_ms = 0
        self._journal = JournalFile(broker.disk, broker.config.config_folder)
        self._journal_fails = False
        # Of an earlier run that was killed: reported by the next record.
        self._pulls_lost_ms = 0
        self.closed = False
        self.is_finished = False  # this broker stops: no messages are handed out and no report is taken any more
        self._closing: Interval | None = None  # the last one, once it is sealed

    # --- counting

    def counts_for(self, credential: str) -> SendCounts | None:
        """What the store counts the sends of a credential into, as it appends them; None while this replica counts none."""
        meter = self.meter
        return None if meter is None else meter.sends_of(credential)

    def pulled(self, topic: str, group: str, credential: str, result: GetResult) -> None:
        """Messages were handed to a consumer, by this replica as leader or as follower."""
        if self._interval_ms:
            (self.meter or self._reporter.meter).pulled(topic, group, credential, result)

    def take_report(self, report: PullReport) -> bool:
        """A follower reports what it handed out; False while this replica does not lead, and once it has recorded its last."""
        if self.meter is None or self.is_finished:
            return not self._interval_ms  # switched off here: no one shall keep it
        self._reporter.take(report, self.meter)
        return True

    def pulls_recorded_from(self, offset: int) -> list[OutRow]:
        """What only this replica knows of the records from this offset of the log on, where it is to be truncated."""
        return self._reporter.pulls_recorded_from(offset) if self._interval_ms else []

    def log_was_truncated(self, pulls: list[OutRow]) -> None:
        """What `pulls_recorded_from` gave is in the log no more: report it to the leader."""
        self._reporter.meter.add_out(pulls)
        if self.is_finished and pulls:  # a leader that stops and has handed over
            self._close_journal()

    # --- roles

    def role_changed(self) -> None:
        """This replica began or stopped to lead; call it before anything is appended."""
        if not self._interval_ms:
            return
        if not self._broker.replica.leads:
            self._stop_counting()
        elif self._broker.replica.epoch != self._epoch:
            self._begin()
        self._wake.set()

    def _stop_counting(self) -> None:
        """The next leader counts the sends again; what was pulled here only this replica knows."""
        if self.meter is not None:
            kept = self._reporter.meter
            kept.add_out(self.meter.take_out())
            for interval in self._sealed:
                kept.add_out(interval.messages_out)
        self.meter = None
        self._epoch = -1
        self._sealed.clear()

    def _begin(self) -> None:
        broker = self._broker
        self._stop_counting()
        self.meter = Meter()
        self._reporter.move_to(self.meter)
        self._epoch = broker.replica.epoch
        self._lead_offset = self._open_offset = broker.store.end_offset
        self._time = SteadyTime(broker.clock.time_ms(), broker.clock.monotonic())
        self._open_ms = self._now_ms()
        self._next_seal_ms = self._after(self._open_ms)
        self._closing = None
        self._caught_up = False
        self.stored_bytes = StoredBytes(broker.store)

    def _now_ms(self) -> int:
        clock = self._broker.clock
        now_ms = self._time.now_ms(clock.time_ms(), clock.monotonic())
        if bool(self._time.step_ms) != bool(self._logged_step_ms):
            self._logged_step_ms = self._time.step_ms
            if self._logged_step_ms:
                logger.warning(
                    "the wall clock stepped by %.1f s; metering goes on by the monotonic clock, and takes the new time over if it"
                    " lasts",
                    self._logged_step_ms / 1000,
                )
            else:
                logger.warning("the wall clock is back at the time that metering kept")
        return now_ms

    def _after(self, now_ms: int) -> int:
        # Multiples of the interval, so that none begins in one hour and ends in the next.
        return (now_ms // self._interval_ms + 1) * self._interval_ms

    @property
    def _leads(self) -> bool:
        replica = self._broker.replica
        return replica.leads and replica.epoch == self._epoch

    # --- recording

    async def run(self) -> None:
        """Record until cancelled, or until `finish`. Nothing that goes wrong here may end the broker."""
        if not self._interval_ms:
            return
        with trio.CancelScope() as self._running:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_stored_bytes)
                nursery.start_soon(self._keep_reporting)
                nursery.start_soon(self._keep_journal)
                logged = ""
                while True:
                    pause_s = _LOOK_PERIOD_S
                    try:
                        await self.look()
                        logged = ""
                    except (StoreError, MeteringRecordError, RecountError) as error:
                        if logged != str(error):
                            logged = str(error)
                            logger.error("metering waits, trying again each %g s: %s", _AFTER_FAILURE_S, error)
                        pause_s = _AFTER_FAILURE_S
                    except Exception:
                        logger.exception("metering failed; it counts again from the log in %g s", _AFTER_FAILURE_S)
                        self._epoch = -1
                        pause_s = _AFTER_FAILURE_S
                    await self._pause(pause_s)

    async def _pause(self, pause_s: float) -> None:
        idle = self.meter is None or (self._leads and self._caught_up and not self._sealed)
        if idle and pause_s == _LOOK_PERIOD_S:
            left_ms = self._next_seal_ms - self._now_ms()
            pause_s = 1.0 if self.meter is None else min(max(left_ms / 1000, 0.001), self._interval_ms / 1000)
        self._wake = trio.Event()
        with trio.move_on_after(pause_s):
            await self._wake.wait()

    async def look(self) -> None:
        """One look: count again what is not recorded, seal the interval when it is over, record what is confirmed."""
        if not self._broker.replica.leads:
            return
        if not self._leads:
            self._begin()  # no one said so; what was counted may be incomplete
        if not self._caught_up:
            await self._catch_up()
        self._seal_if_due()
        await self._record_sealed()

    def _seal_if_due(self) -> None:
        if self._now_ms() >= self._next_seal_ms:
            self._seal()
        if self._time.step_lasts(self._broker.clock.monotonic()):
            # Each record lies wholly in the old time or in the new one, and is as long as it took.
            self._seal()
            moved_ms = self._time.adopt()
            self._logged_step_ms = 0
            self._open_ms = self._now_ms()
            self._next_seal_ms = self._after(self._open_ms)
            logger.warning("metering takes over the wall clock's time, %.1f s away", moved_ms / 1000)

    def _seal(self) -> None:
        now_ms = self._now_ms()
        self._next_seal_ms = self._after(now_ms)
        if self.meter is None or len(self._sealed) >= _SEALED_MAX:
            return
        if sum(len(interval.messages_out) for interval in self._sealed) >= _SEALED_ROWS_MAX:
            return
        end_offset = self._broker.store.end_offset
        self._sealed.append(
            self.meter.take(
                start_ms=self._open_ms,
                end_ms=now_ms,
                start_offset=self._open_offset,
                end_offset=end_offset,
                clock_step_ms=self._time.step_ms,
            )
        )
        self._begin_hour_if_due()
        if self.closed and self._closing is None:
            self._closing = self._sealed[-1]
        self._open_offset = end_offset
        self._open_ms = max(self._open_ms + 1, now_ms)  # no two intervals have the same begin: the journal's key

    def _begin_hour_if_due(self) -> None:
        # Usage is counted by the hour: with the same pairs throughout, its rows are no more than a record's.
        hour = self._now_ms() // _HOUR_MS
        if hour != self._hour:
            self._hour = hour
            for meter in (self.meter, self._reporter.meter):
                if meter is not None:
                    meter.begin_hour()

    def _may_record(self, end_offset: int) -> bool:
        # While sends are refused, for a role that is moving, nothing else may lengthen the log either.
        broker = self._broker
        return self._leads and broker.store.confirm_offset >= end_offset and broker.refuses_appends() is None

    async def _record_sealed(self) -> None:
        while self._sealed and self._may_record(self._sealed[0].end_offset):
            interval = self._sealed[0]
            if len(self._sealed) > 1:
                samples = Samples(connections=connections(self._broker))
            else:
                samples = await take_samples(self._broker, self.stored_bytes.by_topic())
            if not self._sealed or self._sealed[0] is not interval or not self._may_record(interval.end_offset):
                return
            self._record(interval, samples)
            self._sealed.popleft()

    def _record(self, interval: Interval, samples: Samples) -> None:
        broker = self._broker
        config = broker.config
        records = records_of(
            interval,
            samples,
            cluster=config.broker_cluster_name,
            broker=config.broker_name,
            epoch=self._epoch,
            first_sequence=self._sequence + 1,
            max_bytes=min(config.max_message_size_bytes, _RECORD_BYTES_MAX),
            pulls_lost_ms=self._pulls_lost_ms,
        )
        broker.append([message_of(record, broker.store_host) for record in records])
        self._sequence += len(records)
        self._pulls_lost_ms = 0

    # --- beginning to lead

    async def _catch_up(self) -> None:
        """Record what lies between the last record and the begin of this leadership."""
        if not self._may_record(self._lead_offset):
            return
        broker = self._broker
        last = last_recorded(broker.store) or Recorded(end_offset=0, epoch=-1, sequence=0, end_ms=0)
        self._sequence = last.sequence if last.epoch == self._epoch else 0
        if last.end_offset >= self._lead_offset:
            self._caught_up = True
            return
        recount = Recount(broker.store, last.end_offset, self._lead_offset, last.rows, last.rows_to, last.end_ms)
        while not recount.done:
            piece = recount.advance(_RECORDS_AT_A_TIME)
            if piece is not None:
                while not self._may_record(piece.end_offset):
                    if not self._leads:
                        return
                    await trio.sleep(_LOOK_PERIOD_S)
                self._record_recounted(piece)
            await trio.lowlevel.checkpoint()
            if not self._leads:
                return
            self._seal_if_due()
        self._caught_up = True

    def _record_recounted(self, piece: Interval) -> None:
        alone = piece.end_offset == self._lead_offset and not self._sealed
        if alone and not piece.messages_in and piece.deleted_to is None:
            self._open_offset = piece.start_offset  # nothing was sent there: the open interval says that as well
            return
        if piece.deleted_to is not None:
            logger.warning(
                "retention has deleted the log from %d to %d before it was counted",
                piece.start_offset,
                piece.deleted_to,
            )
        logger.info(
            "metering: counted the log again from %d to %d (%d messages)",
            *(piece.start_offset, piece.end_offset, sum(row.messages for row in piece.messages_in)),
        )
        self._record(piece, Samples(connections=connections(self._broker)))

    # --- stopping

    async def finish(self) -> None:
        """Record the open interval, before the broker refuses sends; waits for the slaves a moment. Bounded.

        Nothing is handed out from its begin on: a stop takes seconds more, and what it served then would be in no record.
        """
        if self._running is not None:
            self._running.cancel()
        if not self._interval_ms:
            return
        self.is_finished = True
        try:
            await self._record_the_rest()
        finally:
            self._close_journal()

    def _close_journal(self) -> None:
        try:
            self._journal.store(self.journal(closed=True))
        except OSError as error:
            logger.error("what was pulled last is not noted: %s", error)

    async def _record_the_rest(self) -> None:
        if not self._broker.replica.leads:
            with trio.move_on_after(_STOP_TIMEOUT_S):
                await self._reporter.send()
        if self.meter is None or not self._leads or not self._caught_up:
            return
        with trio.move_on_after(_STOP_TIMEOUT_S):
            try:
                self._seal()
                await self._record_sealed()
                while self._sealed and self._leads and self._broker.refuses_appends() is None:
                    await trio.sleep(_LOOK_PERIOD_S / 5)
                    await self._record_sealed()
                # A slave that had all shall have this too: else its promotion would part the logs.
                end_offset = self._broker.store.end_offset
                while True:
                    if not self._slaves_lack(end_offset):
                        break
                    await trio.sleep(_LOOK_PERIOD_S / 5)
            except StoreError as error:
                logger.warning("the last interval is not recorded, the next start counts it again: %s", error)

    def _slaves_lack(self, end_offset: int) -> bool:
        in_sync = self._broker.replica.in_sync
        return in_sync is not None and any(
            follower.in_sync and follower.end_offset < end_offset for follower in in_sync.followers.values()
        )

    # --- what a killed process must not forget

    def load(self) -> None:
        """Take over what an earlier run handed out and recorded nowhere. Call it before the role is known."""
        if not self._interval_ms:
            return
        broker = self._broker
        journal = self._journal.load()
        last_end = broker.store.queue_end_offset(RMQ_SYS_METERING, 0) or 0
        recorded = intervals_recorded(broker.store, last_end, _JOURNAL_RECORDS_BACK)
        if journal is not None:
            self._reporter.meter.add_out(journal.unrecorded(recorded))
        if journal is not None and journal.boot_id == broker.disk.boot_id() != "":
            self._pulls_lost_ms = 0 if journal.closed else round(1000 * _period_s(journal))
        elif recorded:  # a power cut, or the first start of this version
            self._pulls_lost_ms = self._interval_ms

    def journal(self, *, closed: bool = False) -> Journal:
        """What was handed out and is in no record yet."""
        intervals = [
            JournalInterval(self._epoch, interval.start_ms, interval.messages_out)
            for interval in self._sealed
            if interval.messages_out
        ]
        if self.meter is not None:
            rows = self.meter.out_rows()
            if rows:
                intervals.append(JournalInterval(self._epoch, self._open_ms, rows))
        return Journal(self._broker.disk.boot_id(), tuple(intervals), self._reporter.unreported(), closed)

    async def _keep_journal(self) -> None:
        while True:  # noqa: ASYNC110  # it is written by time: counting must not wake a task
            await trio.sleep(await self._note())

    async def _note(self) -> float:
        """Write the journal; returns after how many seconds it should be written again."""
        journal = self.journal()
        try:
            await self._broker.threads.run(self._journal.store, journal)
            self._journal_fails = False
        except OSError as error:
            if not self._journal_fails:
                logger.error("what is pulled is not noted, a crash would lose it: %s", error)
            self._journal_fails = True
        return _period_s(journal)

    # --- closing: the cluster is deleted

    def close(self) -> bool:
        """Serve no client from now on, and record everything; ask again until it returns True: nothing is left to record.

        A restart opens again.
        """
        if not self.closed:
            self.closed = True
            logger.warning("metering is closed: this broker serves no clients any more, its cluster is being deleted")
        if not self._interval_ms:
            return True
        if self.meter is None:
            self._reporter.wake()
            return not self._reporter.unreported()
        if self._closing is None:
            self._next_seal_ms = 0
            self._wake.set()
            return False
        return self._caught_up and not self._sealed

    # --- what is pulled from a follower

    async def _keep_reporting(self) -> None:
        while True:
            await self._reporter.pause(self._interval_ms / 1000)
            if not self._broker.replica.leads:
                self._begin_hour_if_due()
            if not self._broker.replica.leads and self._reporter.prepare():
                # With its number in the journal, a report that is sent again after a crash is known.
                await self._note()
                await self._reporter.send()

    # --- storage

    async def _keep_stored_bytes(self) -> None:
        while True:
            if self._broker.replica.leads:
                try:
                    for _ in self.stored_bytes.update():
                        await trio.lowlevel.checkpoint()
                        if not self._broker.replica.leads:
                            break
                except (StoreError, OSError) as error:
                    logger.error("the stored bytes cannot be counted, trying again: %s", error)
            await trio.sleep(self._interval_ms / 1000 / 2)


def _period_s(journal: Journal) -> float:
    return PERIOD_S if journal.row_count <= ROWS_OFTEN_MAX else PERIOD_OF_MANY_ROWS_S
