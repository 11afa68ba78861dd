"""MetadataLog: topics, groups and consumer offsets as records of the log, so that they are as safe as its messages.

The leader writes each change before it is answered, and the answer waits as a send's does. Followers apply the records
that they receive. A base, which holds the whole tables, is written when a leadership begins, when what follows it has
outgrown it, and in each new CommitLog file, so that retention never deletes the last one. What the tables say is therefore
a function of the log: after a start, a truncation or the end of a leadership they are rebuilt from its last base.

Offsets are committed far more often than topics change: those that no answer waits for are written each half second, the
others at once, one record for all of a flush.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import trio

from brokerd.metadata_record import (
    BASE_END_TAGS_CODE,
    Located,
    MetadataRecord,
    base_records,
    decode_metadata,
    joined,
    metadata_message,
    pieces,
    record_max_bytes,
)
from brokerd.quotas import QuotaReached
from brokerd.replica.in_sync import SendVerdict
from brokerd.replies import AfterDurable
from brokerd.services.acknowledgement import recoded
from brokerd.store import DiskFullError, RecordDamagedError, StoreError
from mqwire.codes import ResponseCode
from mqwire.message import decode_record
from mqwire.names import RMQ_SYS_METADATA

if TYPE_CHECKING:
    from brokerd.client_channel import Peer
    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.quotas import Quotas
    from brokerd.replica.replica import Replica
    from brokerd.services.store_gate import StoreGate
    from brokerd.store import MessageStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager
    from brokerd.topic_retention import KeptMessages
    from mqwire.command import RemotingCommand

logger = logging.getLogger(__name__)

# How long a commit that no answer waits for may be in the leader's memory alone.
OFFSETS_PERIOD_S: Final = 0.5
_MASTER_ALONE: Final = "the offset is on the master alone: too few slaves are in sync (inSyncReplicas)"
_LINGER_S: Final = 0.002
_BASE_MIN_BYTES: Final = 64 * 1024
_READ_MESSAGES: Final = 64
_READ_BYTES: Final = 1024 * 1024
_ENTRY: Final = struct.Struct(">qiq")  # of a ConsumeQueue: position, size, tags code
_ENTRIES_READ: Final = 1024


class _Flushing(Protocol):
    def flush_soon(self) -> None: ...


class _Broker(Protocol):
    """What the metadata log uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    store: MessageStore
    store_host: bytes
    replica: Replica
    store_gate: StoreGate
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    kept_messages: KeptMessages
    quotas: Quotas
    nursery: trio.Nursery | None
    waits_for_flush: bool

    @property
    def flush_service(self) -> _Flushing: ...

    def answer_when_held(self, peer: Peer, end_offset_bytes: int, frames: list[bytes]) -> None: ...

    def forget_messages(self, topic: str) -> None: ...

    def know_stored_topics(self) -> None: ...

    def log_grew(self) -> None: ...

    def refuses_appends(self) -> str | None: ...


class ChangeRefused(StoreError):
    """This replica writes no change of the tables now; the text says why, and which replica does."""


class MetadataLog:
    """One broker's. Main thread only.

    Invariant: while this replica follows, the tables are what its log says, but for hints (consumer_offset.py).
    """

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self.end_offset = 0  # where the last metadata record of the log ends
        self._base_offset: int | None = None  # where the last base begins; None: the log has none
        self._base_bytes = 0
        self._bytes_since_base = 0
        self._parts: list[MetadataRecord] = []  # of a base that has begun
        self._parts_begin_at = 0
        # Where the last bases of the log begin and end, oldest first; None: it is not known where they are.
        self._bases: list[tuple[int, int]] | None = []
        self._waiting: list[tuple[Peer, bytes]] = []
        self._lingering = False
        self._written_s = float("-inf")  # when a record of offsets was last written for those that wait
        self._wanted = trio.Event()
        self._is_stale = False  # the tables could not be read from the log when they had to be
        self._lacks_topics = False  # the log had no base, and may hold messages of topics that no table has
        self._base_losses: list[int] = []  # of the last base
        self._undeleted: list[str] = []  # deleted topics, by the log, whose messages could not be removed yet

    @property
    def needed_from(self) -> int | None:
        """Where the last base begins that this log is sure to have at the next start, which reads the tables from it: it is on the
        disk and confirmed, so that neither a power cut nor another leader takes it. None: there is no base at all. 0: none is sure.
        """
        if self._bases is None:
            return 0
        return self._last_sure_base() if self._bases else None

    def _last_sure_base(self) -> int:
        sure_until = min(self._broker.store.durable_offset, self._broker.replica.confirm_offset)
        return max((begin for begin, end in self._bases or () if end <= sure_until), default=0)

    @property
    def is_stale(self) -> bool:
        """Whether the tables could not be read from the log when they had to be: what they say may be long over."""
        return self._is_stale

    # --- leading

    def refusal(self) -> str | None:
        """Why no change is taken here now, as a remark that names the leader; None when they are."""
        broker = self._broker
        replica = broker.replica
        if not replica.leads:
            reason = replica.refuses_sends(broker.clock.monotonic())
            return f"{reason}; topics, groups and offsets are changed at the master"
        if self._is_stale:
            return "topics, groups and offsets cannot be read from the log; they are changed once it is repaired"
        return broker.refuses_appends()

    def write(self, record: MetadataRecord) -> None:
        """Put a change into the log; raises StoreError, QuotaReached too, and nothing has changed then."""
        refusal = self.refusal()
        if refusal is not None:
            raise ChangeRefused(refusal)
        self._refuse_topics_again(record.topics)
        over_quota = self._broker.quotas.record_refusal(frees=record.frees)
        if over_quota is not None:
            raise QuotaReached(over_quota)
        if self._base_offset is None:
            self._write_base()  # what the tables hold is in no record yet
        broker = self._broker
        for table in self._tables():
            table.own_file()
        message = metadata_message(record, broker.store_host, broker.clock.time_ms())
        if record.offsets or record.taken_resets:  # consumers go on where the disk is too full for messages
            result = broker.store.append_needed(message)
        else:
            (result,) = broker.store.append([message])
        self.end_offset = result.physical_offset + result.size_bytes
        broker.kept_messages.apply(record, self.end_offset)
        self._bytes_since_base += result.size_bytes
        broker.log_grew()

    def _refuse_topics_again(self, topics: Iterable[str]) -> None:
        """Make no topic again before the messages of the deleted one are gone: they would come back with it."""
        if not self._undeleted or not set(topics) & set(self._undeleted):
            return
        try:
            self.finish_deletions()
        except (StoreError, OSError) as error:
            raise ChangeRefused(
                f"the messages of the deleted topic {self._undeleted[-1]} cannot be removed yet: {error}; see to the broker's disk"
            ) from error

    def forget_messages(self, topic: str) -> None:
        """A topic was deleted, by a record of the log: its messages go with it. Raises StoreError or OSError where they do not:
        then it is tried again, and until that is done the topic is not made again.
        """
        if topic not in self._undeleted:
            self._undeleted.append(topic)
        self.finish_deletions()

    def finish_deletions(self) -> None:
        """Remove the messages of deleted topics that could not be removed before; raises StoreError or OSError."""
        while self._undeleted:
            self._broker.forget_messages(self._undeleted[-1])
            self._undeleted.pop()

    def write_base(self) -> None:
        """Write a base: followers whose tables are other than these take them from there. Where this log may lack what consumers
        have read all groups go on from what they have committed by it.
        """
        try:
            if self._is_stale:
                self.rebuild()
            self._lacks_topics |= self._bases == []
            self._write_base()
        except (StoreError, OSError) as error:
            self._base_offset = None
            logger.error("topics, groups and offsets cannot be written to the log, trying again: %s", error)
        else:
            self._know_stored_topics()

    def _know_stored_topics(self) -> None:
        """A log of before there were metadata records, or RocketMQ's: no message shall be without a topic."""
        if not self._lacks_topics:
            return
        try:
            self._broker.know_stored_topics()
            self._lacks_topics = False
        except StoreError as error:
            logger.error("topics that are in the log alone cannot be made, trying again: %s", error)

    def keep_base_near(self) -> None:
        """Write a base when the last one is too far from the log's end. Each few seconds, and after changes."""
        broker = self._broker
        if not broker.replica.leads:
            return
        if self._is_stale:
            self.write_base()
        if self.refusal() is not None:
            return
        try:
            self.finish_deletions()
        except (StoreError, OSError) as error:
            logger.error("the messages of deleted topics cannot be removed, trying again: %s", error)
        self._know_stored_topics()
        file_bytes = broker.store.commit_log_file_bytes
        if (
            self._base_offset is None
            or self._base_offset // file_bytes != broker.store.end_offset // file_bytes
            or self._bytes_since_base > max(_BASE_MIN_BYTES, self._base_bytes)
        ):
            self.write_base()

    def note_sent_back(self) -> None:
        """Once a base says so that is sure to be there at the next start no leadership of this replica need send consumers back
        for that loss. Each few seconds.
        """
        loss = self._broker.replica.saved.lacks_shown_from
        if loss is None or loss not in self._base_losses or not self._bases:
            return
        if self._bases[-1][1] <= min(self._broker.store.durable_offset, self._broker.replica.confirm_offset):
            try:
                self._broker.replica.consumers_sent_back()
            except OSError as error:
                logger.error("the epoch file cannot be written, trying again: %s", error)

    def _write_base(self) -> None:
        broker = self._broker
        saved = broker.replica.saved
        loss = saved.lacks_shown_from
        if loss is not None and loss not in broker.consumer_offsets.losses:
            broker.consumer_offsets.send_back(loss, from_the_beginning=saved.lacks_an_epoch)
        broker.consumer_offsets.forget_losses(broker.store.min_physical_offset, but=loss)
        groups = broker.subscription_groups.to_wrapper()
        records = base_records(
            dict(broker.topic_configs.table),
            groups.subscription_group_table,
            groups.forbidden_table,
            *broker.consumer_offsets.base(),
            broker.kept_messages.base(),
            max_bytes=record_max_bytes(broker.config),
        )
        # What this process could not remove yet is removed at the next start, which reads no deletion in front of the base.
        losses = list(broker.consumer_offsets.losses)
        records[-1] = msgspec.structs.replace(records[-1], deleted_topics=list(self._undeleted), losses=losses)
        now_ms = broker.clock.time_ms()
        results = [
            broker.store.append_needed(metadata_message(record, broker.store_host, now_ms)) for record in records
        ]
        self.end_offset = results[-1].physical_offset + results[-1].size_bytes
        self._base_offset = results[0].physical_offset
        self._note_base(self._base_offset, self.end_offset)
        self._base_losses = losses
        self._base_bytes, self._bytes_since_base = sum(result.size_bytes for result in results), 0
        broker.consumer_offsets.forget_unwritten()
        broker.log_grew()

    def _note_base(self, begin: int, end: int) -> None:
        sure = self._last_sure_base()
        self._bases = [base for base in self._bases or () if base[0] >= sure] + [(begin, end)]

    def answer(self, reply: RemotingCommand) -> AfterDurable:
        """An answer that waits until all changes so far are held as a message must be."""
        return AfterDurable(reply, self.end_offset)

    # --- offsets

    @property
    def waiting_answers(self) -> int:
        """How many answers wait for a record of offsets that is not written yet."""
        return len(self._waiting)

    def answer_with_offsets(self, peer: Peer, frame: bytes) -> None:
        """Write an answer once the offsets as they are now are held.

        With SYNC_FLUSH the next flush begins with one record for all that wait by then: an earlier one would wait for the
        same flush. Otherwise a lone commit is written down at once, and those right after it share a record.
        """
        self._waiting.append((peer, frame))
        broker = self._broker
        nursery = broker.nursery
        if nursery is None:
            self.write_for_waiting()
        elif broker.waits_for_flush:
            broker.flush_service.flush_soon()
        elif not self._lingering:
            if broker.clock.monotonic() - self._written_s >= _LINGER_S:
                self.write_for_waiting()
            else:
                self._lingering = True
                nursery.start_soon(self._linger)

    async def _linger(self) -> None:
        try:
            await trio.sleep(_LINGER_S)
        finally:
            self._lingering = False
        self.write_for_waiting()

    def write_for_waiting(self) -> None:
        """Write the offsets for which answers wait, and have these answered when that is held."""
        if not self._waiting:
            return
        self._written_s = self._broker.clock.monotonic()
        waiting, self._waiting = self._waiting, []
        broker = self._broker
        refused, code = None, ResponseCode.SERVICE_NOT_AVAILABLE
        try:
            self.write_offsets()
        except StoreError as error:
            refused = str(error)
            if isinstance(error, QuotaReached):
                code = ResponseCode.SYSTEM_BUSY
        for peer, frame in waiting:
            if peer.closed:
                continue
            if refused is None and broker.replica.verdict(self.end_offset) is SendVerdict.SLAVE_NOT_AVAILABLE:
                # Consumers go on while slaves are away, as producers do with minInSyncReplicas below inSyncReplicas.
                peer.write(recoded([frame], ResponseCode.SUCCESS, _MASTER_ALONE))
            elif refused is None:
                broker.answer_when_held(peer, self.end_offset, [frame])
            else:
                peer.write(recoded([frame], code, refused))
            peer.flush()

    def offsets_changed(self) -> None:
        """A commit that no answer waits for."""
        self._wanted.set()

    def write_offsets(self) -> None:
        """Write the offsets that have changed; raises StoreError."""
        refusal = self.refusal()
        if refusal is None and self._broker.store_gate.closed:
            refusal = "the broker is reopening its log: try again in a moment"
        if refusal is not None:
            raise ChangeRefused(refusal)
        self._broker.consumer_offsets.write_offsets()

    def write_last_offsets(self) -> None:
        """This leadership is about to end: write what consumers committed, if the log takes it."""
        if self.refusal() is None:
            try:
                self.write_offsets()
            except StoreError as error:
                logger.warning("the last offsets that consumers committed cannot be written: %s", error)

    async def run(self) -> None:
        """Write what consumers commit without an answer, until cancelled."""
        broker = self._broker
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await trio.sleep(OFFSETS_PERIOD_S)
            if not broker.consumer_offsets.has_unwritten:
                continue
            try:
                self.write_offsets()
            except StoreError as error:
                logger.debug("offsets are not written yet: %s", error)
                if broker.replica.leads:
                    self._wanted.set()
            self.keep_base_near()

    # --- following

    def receive(self, data: bytes, store: Callable[[bytes], None]) -> None:
        """Have records of the leader stored, in pieces; when one is, what it says is applied, also where `store` fails after that.

        Raises StoreError and OSError where the messages of a deleted topic can't be removed, or the log can't be read that says
        which were deleted: nothing is stored until then, for it may be made again. Raises what `store` raises, too.
        """
        if self._is_stale:
            self._read_what_can_be_read()
        self.finish_deletions()
        for piece, records in pieces(data):
            end_before = self._broker.store.end_offset
            try:
                store(piece)
            finally:
                # They are not sent again once they are in the log, though the epoch file, say, had no room.
                if records and self._broker.store.end_offset > end_before:
                    self.end_offset = records[-1].end_offset
                    self._apply(records)
                    if self._is_stale and any(found.record.is_base for found in records):
                        self.rebuild_or_note()

    def _read_what_can_be_read(self) -> None:
        """Raises StoreError where that is put right, or room is made; else the leader's next base is waited for."""
        try:
            self.rebuild()
        except (StoreError, OSError) as error:
            is_put_right = isinstance(error, RecordDamagedError) and error.physical_offset >= 0
            if is_put_right or isinstance(error, DiskFullError):
                raise
            logger.error("topics, groups and offsets cannot be read from the log: %s", error)

    def rebuild_or_note(self) -> None:
        """As `rebuild`, for a broker that another replica can help: a log that cannot be read now must not end it. The tables
        stay as they are, nothing is changed by them, and they are rebuilt before this replica leads.
        """
        try:
            self.rebuild()
        except (StoreError, OSError) as error:
            self._is_stale = True
            logger.error("topics, groups and offsets cannot be read from the log: %s", error)

    def read_again(self) -> None:
        """Some of the log was put right: read from it what could not be read before."""
        if not self._is_stale:
            return
        if self._broker.replica.leads:
            self.write_base()
        else:
            self.rebuild_or_note()

    def rebuild(self) -> None:
        """Make the tables what the log says: after a start, a truncation, or the end of a leadership."""
        self.write_for_waiting()  # refused, as what they wait for is about to be forgotten
        broker = self._broker
        store = broker.store
        store.confirm_offset = None  # what is not confirmed yet counts too: it is in the log
        try:
            self._base_offset, self.end_offset, self._bytes_since_base = None, 0, 0
            self._parts, self._bases = [], None  # until one is found retention deletes nothing
            self._lacks_topics = False
            first = self._find_base()
            if first is not None:
                records = list(self._read(first))
                broker.kept_messages.rebuild(self._apply(records, rebuilding=True))
                self.end_offset = records[-1].end_offset
                self._base_offset = records[0].begin_offset
                self._bytes_since_base = self.end_offset - self._base_offset if len(records) > 1 else 0
                if store.damaged_from is None:  # else the tables are rebuilt once that is put right
                    self._finish_deletions(records)
            else:
                self._bases = []
                self._undeleted.clear()
                broker.kept_messages.rebuild(())
                broker.consumer_offsets.forget_unwritten()
            self._is_stale = False
        finally:
            for table in self._tables():
                table.is_imported = False  # from now on a leader's base says what is so
            store.confirm_offset = broker.replica.confirm_offset

    def _finish_deletions(self, records: Iterable[Located]) -> None:
        """The process may have ended before the messages of a deleted topic were gone."""
        deleted = {name for found in records for name in found.record.deleted_topics}
        self._undeleted = sorted(name for name in deleted if self._broker.topic_configs.select(name) is None)
        try:
            self.finish_deletions()
        except (StoreError, OSError) as error:  # a full disk, say: it is tried again, and no reason not to start
            logger.error("the messages of deleted topics cannot be removed, trying again: %s", error)

    def _find_base(self) -> int | None:
        """The queue offset of the first record of the last complete base; None when there is none."""
        store = self._broker.store
        begin = store.min_offset(RMQ_SYS_METADATA, 0)
        end = store.max_offset(RMQ_SYS_METADATA, 0)
        while end > begin:
            first = max(begin, end - _ENTRIES_READ)
            entries = list(_ENTRY.iter_unpack(store.index_entries(RMQ_SYS_METADATA, 0, first, end - first)))
            for number in range(len(entries) - 1, -1, -1):
                if entries[number][2] == BASE_END_TAGS_CODE:
                    last = next(self._read(first + number)).record
                    base_begin = first + number - (last.parts - 1)
                    return base_begin if base_begin >= begin else None
            end = first
        return None

    def _read(self, queue_offset: int) -> Iterator[Located]:
        """Each from a queue offset on."""
        store = self._broker.store
        while True:
            result = store.get_messages(RMQ_SYS_METADATA, 0, queue_offset, _READ_MESSAGES, _READ_BYTES)
            if not result.count:
                return
            data = b"".join(result.chunks)
            position = 0
            while position < len(data):
                message = decode_record(data, position)
                yield Located(
                    message.physical_offset,
                    message.physical_offset + message.size_bytes,
                    decode_metadata(message),
                )
                position += message.size_bytes
            queue_offset = result.next_begin_offset

    def _apply(self, records: Iterable[Located], *, rebuilding: bool = False) -> list[MetadataRecord]:
        """Take over records of the log; returns them, bases whole."""
        broker = self._broker
        applied = []
        for found in records:
            record = self._whole(found)
            if record is None:
                continue
            for table in self._tables():
                if not table.is_imported:
                    table.apply(record)
            if record.is_base:
                broker.consumer_offsets.note_losses(record)  # whatever a file of others says
                self._base_losses = record.losses
            applied.append(record)
            if not rebuilding:
                broker.kept_messages.apply(record, found.end_offset)
                self._undeleted.extend(record.deleted_topics)
        broker.topic_configs.finish_applying()
        broker.subscription_groups.finish_applying()
        if not rebuilding:
            self.finish_deletions()
        return applied

    def _tables(self) -> tuple[TopicConfigManager, SubscriptionGroupManager, ConsumerOffsetManager]:
        return self._broker.topic_configs, self._broker.subscription_groups, self._broker.consumer_offsets

    def _whole(self, found: Located) -> MetadataRecord | None:
        """The record, or the base that it completes; None while more of its base is to come."""
        record = found.record
        if not record.is_base or record.part != len(self._parts):
            self._parts = []
        if not record.is_base:
            return record
        if record.part == 0:
            self._parts_begin_at = found.begin_offset
        if record.part == len(self._parts):
            self._parts.append(record)
        if len(self._parts) < record.parts:
            return None
        parts, self._parts = self._parts, []
        self._note_base(self._parts_begin_at, found.end_offset)
        return joined(parts)
