"""One run of a broker: brokerd itself, on a simulated machine, with an observer that looks into it after each of its steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from brokerd.broker import Broker
from brokerd.metadata_record import MetadataRecord
from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.epoch_record import Lacks
from brokerd.replica.replica import ReplicaSettings
from brokerd.run import open_broker, serve
from brokerd.store import AppendResult, BatchResult, BatchToStore, MessageStore, MessageToStore, RetentionReport
from brokerd.store.record import ENTRY
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import QueryConsumerOffsetResponseHeader
from mqwire.headers_pull import PullMessageResponseHeader
from mqwire.headers_send import SendMessageResponseHeader
from mqwire.message import decode_records
from mqwire.mode import Mode
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC
from tests.sim.history import Attempt, Copy
from tests.sim.made_topics import bytes_to_keep, is_made
from tests.sim.sim_environment import FILE_BYTES, StopOrders, config_of, environment_of
from tests.sim.sim_requests import ChangeGroup, ChangeTopic, CommitOffset, QueryOffset, Read, ResetOffset, Send
from tests.sim.sim_threads import SimThreads
from tests.sim.trio_process import TrioProcess
from tests.sim.wire import DELAY_MS, TOPICS, has_changed_nothing, queue_of, topic_of

if TYPE_CHECKING:
    from brokerd.replica.in_sync import InSyncSet
    from brokerd.replica.replica import Replica
    from brokerd.services.replica_follower import FollowerService
    from tests.sim.machine import Machine

_JUDGED = (*TOPICS, RMQ_SYS_SCHEDULE_TOPIC)
_PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
# With ASYNC_FLUSH a disk that is well has by then what was written before: flushes are half a second apart, and may be slow.
_UNFLUSHED_S = 1.5
_STEP_S = 0.5  # a process that takes no step for so long is stopped
BLANK_MAGIC = b"\xcb\xd4\x31\x94"


@dataclass(frozen=True, slots=True)
class _Inherited:
    """The replicas in sync when a leader began, until when it waits for them, and its confirmOffset then."""

    replica_ids: frozenset[int] = frozenset()
    until_s: float = 0.0
    confirm_offset: int = 0


class BrokerProcess:
    """Nothing here is a step of the broker: what it does is what ships. The methods record in the history what it did."""

    broker: Broker  # once it is open

    def __init__(self, machine: Machine, settings: ReplicaSettings) -> None:
        self.machine = machine
        self.loop = machine.loop
        self.history = machine.history
        self.name = machine.name
        self.settings = settings
        self.is_open = False
        self._observed = (0, 0, 0)
        self._log_bounds = (0, 0)
        self._died = False
        self._flush_mark, self._flush_since_s, self._stepped_s = 0, 0.0, 0.0
        self._inherited = _Inherited()
        self._config = config_of(
            *(settings, machine.name_servers, machine.reserved_hours),
            indexes=machine.indexes,
            gives_up_damage=machine.gives_up_damage,
        )
        random = Random(self.loop.random.getrandbits(64))
        self.trio = TrioProcess(
            self.loop,
            self._main,
            on_step=self._stepped,
            on_end=lambda error: machine.ended_by_itself(self, error),
            began_s=machine.began_s,
            rate=machine.rate,
        )
        self.threads = SimThreads(self.trio, machine.hand_over_s)
        self.orders = StopOrders(self.trio)
        self._environment = environment_of(machine, self.trio, self.threads, self.orders, random)

    async def _main(self) -> None:
        server, self.broker = open_broker(self._config, self._environment)
        self.watch()
        await serve(server, self.broker, self._environment, on_ready=lambda address: self._started())

    # --- what it is

    @property
    def store(self) -> MessageStore:
        return self.broker.store

    @property
    def replica(self) -> Replica:
        return self.broker.replica

    @property
    def follower(self) -> FollowerService:
        return self.broker.follower

    @property
    def flush_failed(self) -> bool:
        return self.broker._flush_failure is not None

    @property
    def reopening(self) -> bool:
        """Whether its log is being cut in a thread: what is read of it now is nothing."""
        return self.broker.store_gate.closed

    @property
    def now_s(self) -> float:
        return self.trio.monotonic()

    def describe(self) -> str:
        """Where it stands, for a violation's text."""
        replica, store = self.replica, self.store
        elections = replica.elections
        state = "" if elections is None else f"{elections.state.value} {elections.why_not_electable() or ''} "
        return (
            f"{state}{replica.settings.mode} epoch {replica.epoch} leads {replica.leads} must reclaim {replica.must_reclaim}"
            f" log {replica.epochs.last_epoch}:{store.end_offset} held {replica.held_offset} confirmed {replica.confirm_offset}"
            f" voters {replica.members.voters} follows {replica.leader_address} {self.follower.halted or ''} {store.refusal or ''}"
        )

    # --- what the observer records

    def _started(self) -> None:
        store = self.store
        rot = self.machine.rot  # looked at each time: recovery may have truncated the record
        if store.damaged_from is not None and rot is None:
            self.machine.violation(f"{self.name}: the store is damaged after a restart, from {store.damaged_from} on")
        self.loop.note(
            f"{self.name} starts run {self.machine.runs}: end {store.end_offset} epoch {self.replica.epoch}"
            f" leads {self.replica.leads}"
        )

    def watch(self) -> None:
        """Record what leaves no trace in the broker's state."""
        broker, replica = self.broker, self.broker.replica
        append, append_batch = broker.append, broker.append_batch
        promote, reclaimed, grant_reclaim = replica.promote, replica.reclaimed, replica.grant_reclaim
        start = replica.start

        def watched_start(now_s: float, now_ms: int) -> None:
            start(now_s, now_ms)
            self.is_open = True  # before, it knows nothing, and a disk that can't be read ends it with that

        def watched_append(
            messages: list[MessageToStore], *, counted_for: str | None = None, **options: Any
        ) -> list[AppendResult]:
            results = append(messages, counted_for=counted_for, **options)
            for message, result in zip(messages, results, strict=True):
                if message.topic in _JUDGED or is_made(message.topic):
                    self._appended(message.topic, bytes(message.body), result.physical_offset, result.size_bytes)
            return results

        def watched_batch(batch: BatchToStore, *, counted_for: str) -> BatchResult:
            result = append_batch(batch, counted_for=counted_for)
            if batch.topic in TOPICS:
                self._scan_appended(batch.topic, result.physical_offsets[0], result.end_offset)
            return result

        def watched_promote(
            expected_epoch: int,
            new_epoch: int,
            now_s: float,
            now_ms: int,
            in_sync: Collection[int] = (),
            **options: bool,
        ) -> None:
            led, epoch, confirmed = replica.leads, replica.epoch, replica.confirm_offset
            log = (EpochMap(replica.epochs.entries), broker.store.end_offset)
            promote(expected_epoch, new_epoch, now_s, now_ms, in_sync, **options)
            if not led or replica.epoch != epoch:
                self._inherits(in_sync, now_s, confirmed)
                self._promoted(expected_epoch, epoch, *log)

        def watched_reclaimed(epoch: int, now_s: float, now_ms: int, **options: Lacks) -> None:
            confirmed = replica.confirm_offset
            reclaimed(epoch, now_s, now_ms, **options)
            self._inherits(replica.known_replicas, now_s, confirmed)

        def watched_reclaim(*, last_epoch: int, end_offset: int, **others: Any) -> None:
            own = (replica.epochs.last_epoch, broker.store.end_offset)
            grant_reclaim(last_epoch=last_epoch, end_offset=end_offset, **others)
            self.history.granted(self.name, own, (last_epoch, end_offset))

        stop_leading = replica.stop_leading

        def watched_end() -> None:
            self._stepped()  # a leader may end in the step in which it began, with all that it has confirmed meanwhile
            stop_leading()

        delete_expired = broker.store.delete_expired

        def watched_retention(now_ms: int, **options: Any) -> RetentionReport:
            before = broker.store.min_physical_offset
            try:
                return delete_expired(now_ms, **options)
            finally:  # it may be killed between two of the files
                min_offset = broker.store.min_physical_offset
                if min_offset > before:
                    self.loop.note(f"{self.name} deletes what lies below {min_offset}")
                    if self.machine.reserved_hours:
                        self.machine.violation(
                            f"{self.name} deletes what lies below {min_offset}, and none of it has expired"
                        )
                    self.history.expired(min_offset)

        write = broker.metadata_log.write

        def watched_write(record: MetadataRecord) -> None:
            for topic, kept_from in record.kept_from.items():
                if is_made(topic):
                    self._check_excess(topic, kept_from)
            write(record)

        broker.metadata_log.write = watched_write  # type: ignore[method-assign] # the observer stands in between
        broker.store.delete_expired = watched_retention  # type: ignore[method-assign] # the observer stands in between
        broker.append = watched_append  # type: ignore[method-assign,assignment] # the observer stands in between
        broker.append_batch = watched_batch  # type: ignore[method-assign] # as above
        replica.start = watched_start  # type: ignore[method-assign] # the observer stands in between
        replica.promote = watched_promote  # type: ignore[method-assign] # as above
        replica.reclaimed = watched_reclaimed  # type: ignore[method-assign] # as above
        replica.grant_reclaim = watched_reclaim  # type: ignore[method-assign] # as above
        replica.stop_leading = watched_end  # type: ignore[method-assign] # as above

    def _appended(self, topic: str, body: bytes, physical_offset: int, size_bytes: int) -> None:
        attempt = self.history.by_body.get(body)
        if attempt is None:
            self.machine.violation(f"{self.name} stored a message that no one sent")
        end_offset = physical_offset + size_bytes
        record = self._read(physical_offset, size_bytes)[:size_bytes]
        (message,) = decode_records(record)
        copy = Copy(self.name, self.replica.epoch, physical_offset, end_offset, message.queue_offset)
        self.machine.contents[copy.epoch, physical_offset] = bytes(record)
        waits = topic == RMQ_SYS_SCHEDULE_TOPIC
        queue = queue_of(topic, message.queue_id) if topic in TOPICS else message.queue_id
        if not (attempt.delayed if waits else queue == attempt.queue and topic == (attempt.topic or topic_of(queue))):
            self.machine.violation(
                f"{self.name} stored message {attempt.number} in queue {message.queue_id} of {topic}"
            )
        if not attempt.delayed or waits:
            attempt.copies.append(copy)
        if topic in TOPICS:
            self.history.appended(attempt, queue, copy)
        elif topic in self.history.made_topics:
            self.history.made_topics[topic].grew_at_s = self.loop.now_s
        if attempt.delayed:
            self._check_delay(attempt, message.store_timestamp_ms if waits else None)

    def _check_excess(self, topic: str, kept_from: dict[int, int]) -> None:
        """Of a topic that keeps so many bytes no message goes without which it would hold no more than these."""
        kept_bytes = bytes_to_keep(self.history, topic)
        if kept_bytes is None:
            return
        sizes = [(0, 0)]  # of those that go, where they are
        left_bytes = 0
        for queue_id in self.store.topics()[topic]:
            first, end = self.store.min_offset(topic, queue_id), self.store.queue_end_offset(topic, queue_id) or 0
            with self.machine.disk.observed():
                entries = self.store.index_entries(topic, queue_id, first, max(0, end - first))
            for offset, (position, size, _) in enumerate(ENTRY.iter_unpack(entries), first):
                if offset < kept_from.get(queue_id, 0):
                    sizes.append((position, size))
                else:
                    left_bytes += size
        self.history.counts["messages of topics with a limit of bytes that went"] += len(sizes) - 1
        if len(sizes) > 1 and left_bytes + max(sizes)[1] <= kept_bytes:
            self.machine.violation(
                f"{self.name} expires messages of {topic}, which keeps {kept_bytes} bytes, down to {left_bytes}: {kept_from}"
            )

    def _check_delay(self, attempt: Attempt, stored_ms: int | None) -> None:
        """A message is not delivered before its time, as far as one clock says so, and this one was not set back before."""
        machine = self.machine
        clock = (self.name, machine.wall_skew_ms)
        if stored_ms is not None:
            is_later = stored_ms > machine.now_ms()  # time goes on where it was before the clock was set back
            if is_later:
                attempt.due = None
            elif len(attempt.copies) == 1:  # of one that was sent twice the earlier copy is due first
                attempt.due = (clock, stored_ms + DELAY_MS)
            elif any(map(self.history.may_be_lost, attempt.copies[:-1])):
                attempt.due = None  # it went by another machine's clock
        elif attempt.due is not None and attempt.due[0] == clock and machine.now_ms() < attempt.due[1]:
            machine.violation(
                f"{self.name} delivers message {attempt.number} {attempt.due[1] - machine.now_ms()} ms early"
            )

    def _scan_appended(self, topic: str, begin: int, end: int) -> None:
        for start, record in self.walk(begin, end):
            (message,) = decode_records(record)
            self._appended(topic, bytes(message.body), start, len(record))

    def _promoted(self, expected_epoch: int, epoch_before: int, epochs: EpochMap, end_offset: int) -> None:
        new_epoch = self.replica.epoch
        clean = self.history.is_clean(self.name, new_epoch)
        self.history.promoted(self.name, expected_epoch, epoch_before)
        self.history.led_after_fence(self.name, new_epoch)
        self.loop.note(f"{self.name} promoted to epoch {new_epoch} clean={clean} at {end_offset}")
        if not clean:
            self.history.unclean_promotion(new_epoch, epochs, end_offset)

    def _inherits(self, in_sync: Collection[int], now_s: float, confirmed: int) -> None:
        """It begins to lead, and these were in sync before."""
        settings = self.replica.settings
        waits_for = frozenset(in_sync) - {settings.replica_id} if settings.mode is Mode.SYNC else frozenset()
        self._inherited = _Inherited(waits_for, now_s + settings.follower_timeout_s, confirmed)

    def answer_leaves(self, request: Any, reply: RemotingCommand) -> None:
        """An answer is being written to a client."""
        if isinstance(request, Send):
            if reply.code == ResponseCode.SUCCESS:
                offset = reply.header(SendMessageResponseHeader).queue_offset
                for number, attempt in enumerate(map(self.history.attempts.__getitem__, request.attempts)):
                    self._acknowledged(attempt, offset + number)
            elif reply.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                self.refused()
        elif isinstance(request, QueryOffset) and reply.code == ResponseCode.SUCCESS:
            offset = reply.header(QueryConsumerOffsetResponseHeader).offset
            if self.leads_newest():
                self.history.check_offset(self.name, request.queue, offset, asked_at=request.asked_at)
        elif isinstance(request, CommitOffset | ResetOffset | ChangeTopic | ChangeGroup):
            if (
                reply.code == ResponseCode.SUCCESS and reply.remark is None
            ):  # a remark says that the master alone has it
                self.history.changed(request, self._last_confirmed())
            elif not isinstance(request, CommitOffset) and has_changed_nothing(reply):
                self.history.refused(request)
        elif isinstance(request, Read) and reply.code in _PULL_CODES:
            next_offset = reply.header(PullMessageResponseHeader).next_begin_offset
            if reply.code == ResponseCode.PULL_OFFSET_MOVED:
                self._moved(request, next_offset)
                return
            offsets = self._shown(bytes(reply.body)) if reply.code == ResponseCode.SUCCESS else []
            if request.tag == "*" and [*offsets, next_offset] != list(
                range(request.offset, request.offset + len(offsets) + 1)
            ):
                self.machine.violation(
                    f"{self.name} was asked for queue {request.queue} from {request.offset} on, shows {offsets}, and the client"
                    f" goes on at {next_offset}"
                )

    def _moved(self, request: Read, moved_to: int) -> None:
        if request.commits:
            self.history.sent_back(request.queue, request.offset, moved_to, newest=self.leads_newest())
        if not request.commits or not self.history.offsets.was_reset_to(request.queue, moved_to):
            self.history.sent_on(request.queue, request.offset, moved_to, commits=request.commits)

    def _last_confirmed(self) -> Copy:
        end = self.replica.confirm_offset
        return Copy(self.name, self.replica.epochs.epoch_at(end - 1), end - 1, end, -1)

    def leads_newest(self) -> bool:
        """Whether it leads, and no process has heard of a newer epoch: a leader of the past may know less."""
        return self.replica.leads and self.replica.epoch == self.history.newest_epoch

    def _acknowledged(self, attempt: Attempt, queue_offset: int) -> None:
        own = [copy for copy in attempt.copies if (copy.node, copy.queue_offset) == (self.name, queue_offset)]
        if not own:
            self.machine.violation(f"{self.name} acknowledged {attempt.number} at {queue_offset}, and it is not there")
        attempt.acknowledged.append(own[-1])
        self.history.acknowledged(own[-1].epoch, self.name, own[-1])

    def refused(self) -> None:
        """A send was refused."""

    def _shown(self, body: bytes) -> list[int]:
        """Returns the messages' offsets."""
        messages = decode_records(body)
        for message in messages:
            attempt = self.history.by_body.get(message.body)
            if attempt is None:
                self.machine.violation(f"{self.name} showed a message that no one sent")
            start = message.physical_offset
            epoch = self.replica.epochs.epoch_at(start)
            end = start + message.size_bytes
            self.history.read(self.name, attempt, message.queue_offset, epoch, start, end)
        return [message.queue_offset for message in messages]

    def _stepped(self) -> None:
        if self.is_open and not self.reopening:
            self._log_bounds = self.store.end_offset, self.store.durable_offset
            if not self.settings.durable_counts:
                self._check_flushed()
            self.observe()

    def _check_flushed(self) -> None:
        """What the power may take with ASYNC_FLUSH by a process's own word is young."""
        now_s, store = self.loop.now_s, self.store
        is_stopped, self._stepped_s = now_s - self._stepped_s > _STEP_S, now_s
        own_s = now_s - self.machine.disk.reads_took_s  # slow reads hold up all tasks of a process
        if store.durable_offset >= min(self._flush_mark, store.end_offset) or is_stopped or self.machine.syncs_slowly:
            self._flush_mark, self._flush_since_s = store.end_offset, own_s
        elif own_s - self._flush_since_s > _UNFLUSHED_S and not self._may_not_flush():
            self.machine.violation(
                f"{self.name} has not flushed in {_UNFLUSHED_S} s what lies below {self._flush_mark}: {store.durable_offset}"
            )

    def _may_not_flush(self) -> bool:
        store = self.store
        return store.refusal is not None or self.flush_failed or store.damaged_from is not None

    @property
    def log_bounds(self) -> tuple[int, int]:
        """The log's end and its durable offset; while it is opened again, those of before."""
        return self._log_bounds if self.reopening else (self.store.end_offset, self.store.durable_offset)

    def observe(self) -> None:
        """After each step: record what this process takes itself for."""
        replica = self.replica
        in_sync = replica.in_sync
        self.history.reported_epoch(self.name, replica.epoch)
        if in_sync is None:
            return
        epoch, confirmed = replica.epoch, in_sync.confirm_offset
        self._check_inherited(in_sync)
        self._note_keepers(in_sync)
        enough = in_sync.size >= replica.settings.surely_held_by
        safe = confirmed if enough else 0
        if self._observed == (epoch, confirmed, safe):
            return
        before_epoch, before_confirmed, before_safe = self._observed
        history = self.history
        history.leads(epoch, f"{self.name}#{self.machine.runs}")
        history.sends_back |= replica.saved.lacks_shown_from is not None
        history.confirm_offset(self.name, epoch, confirmed)
        if before_epoch != epoch:
            before_confirmed = before_safe = self.store.min_physical_offset
        begin = min(before_confirmed, before_safe) if enough else before_confirmed
        self._mark_confirmed(begin, confirmed, enough)
        self._observed = (epoch, confirmed, max(safe, before_safe if before_epoch == epoch else 0))

    def _note_keepers(self, in_sync: InSyncSet) -> None:
        replica, settings = self.replica, self.replica.settings
        ids = {settings.replica_id}
        if settings.mode is Mode.SYNC:
            ids |= {one.replica_id for one in in_sync.followers.values() if one.in_sync}
            if self.now_s < self._inherited.until_s:
                ids |= self._inherited.replica_ids - in_sync.followers.keys()
        nodes = None if settings.mode is Mode.DLEDGER else frozenset(f"r{one}" for one in ids)
        self.history.keeps(replica.epoch, nodes)

    def died(self) -> None:
        """It was killed within a step: what it had confirmed there may be on its disk, and be shown by its next run."""
        self._died = True
        in_sync = self.replica.in_sync
        epoch, before, _ = self._observed
        if in_sync is None or epoch != self.replica.epoch:
            return
        self._mark_confirmed(before, in_sync.confirm_offset, in_sync.size >= self.replica.settings.surely_held_by)

    def _check_inherited(self, in_sync: InSyncSet) -> None:
        """In mode sync readers are shown nothing more before the replicas in sync have reported,
        or were silent for as long as any may be.

        Else they see what no other replica holds, and the next promotion is not clean for that.
        """
        inherited = self._inherited
        if self.replica.settings.mode is not Mode.SYNC:
            self._inherited = _Inherited()
        elif in_sync.confirm_offset > inherited.confirm_offset and self.now_s < inherited.until_s:
            there = self.replica.known_replicas.keys()  # without those that have left the group since
            awaited = sorted(inherited.replica_ids.intersection(there) - in_sync.followers.keys())
            if awaited:
                self.machine.violation(
                    f"{self.name} shows up to {in_sync.confirm_offset} in epoch {self.replica.epoch}, and began at"
                    f" {inherited.confirm_offset}: replicas {awaited} were in sync, and have not reported yet"
                )

    def _mark_confirmed(self, begin: int, end: int, enough: bool) -> None:
        records = self.history.confirmed_records
        epochs = self.replica.epochs
        for start, _ in self.walk(begin, end):
            key = (epochs.epoch_at(start), start)
            records[key] = enough or records.get(key, False)

    def _read(self, offset: int, max_bytes: int) -> bytes:
        with self.machine.disk.observed():
            return self.store.read_raw(offset, max_bytes)

    def walk(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The log's records between two offsets, each with where it starts. Of one that has died: those on its disk."""
        begin, end = max(begin, self.store.min_physical_offset), min(end, self.store.end_offset)
        while begin < end:
            rots = self._died or self.machine.rot is not None
            data = self.machine.log_as_written(begin) if rots else self._read(begin, 1 << 16)
            if not data:
                return
            position = 0
            while position < len(data) and begin < end:
                size = int.from_bytes(data[position : position + 4], "big")
                if data[position + 4 : position + 8] == BLANK_MAGIC:
                    position += 8
                    begin += FILE_BYTES - begin % FILE_BYTES
                    if rots:
                        break
                    continue
                if self._died and not 0 < size <= len(data) - position:
                    return
                if size <= 0:
                    self.machine.violation(f"{self.name} has no record at {begin}, in front of its end {end}")
                yield begin, data[position : position + size]
                position += size
                begin += size
