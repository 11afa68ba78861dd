"""ScheduleMessageService: messages with a delay level wait in SCHEDULE_TOPIC_XXXX and are delivered when they are due.

A message of level N waits in queue N - 1. All messages of one level wait equally long and were stored in order, so the
head of the queue is the next that is due: nothing else is looked at. Due messages are appended to their real topics many
at a time.

Progress (level -> offset) is persisted in config/delayOffset.json. It never runs ahead of the disk: an offset is written
only once the delivered records themselves are durable. So a crash repeats the last deliveries and loses none. With it is
written where the last deliveries are in the log: where that is truncated to before them, they are repeated too.

Sources: ScheduleMessageService, HookUtils.handleScheduleMessage, DelayOffsetSerializeWrapper.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import trio

from brokerd.config_file import UnreadableConfigFile
from brokerd.delay_levels import DelayLevels, level_of_queue_id, queue_id_of_level
from brokerd.metadata import MetadataFile, Snapshot
from brokerd.replies import Refusal
from brokerd.services.waiting_bytes import WaitingBytes
from brokerd.store import (
    KEYS_PREFIX,
    GetMessageStatus,
    MessageIllegalError,
    MessageToStore,
    RecordDamagedError,
    StoreError,
)
from mqwire.bodies import DataVersion, DelayOffsetSerializeWrapper
from mqwire.codes import ResponseCode
from mqwire.errors import RemoteProtocolError
from mqwire.message import (
    QUEUE_OFFSET_POSITION,
    StoredMessage,
    decode_record,
    pack_host,
    properties_to_string,
    string_to_properties,
    tags_code,
)
from mqwire.names import (
    PROPERTY_CRC32,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    RMQ_SYS_SCHEDULE_TOPIC,
)

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.config import BrokerConfig
    from brokerd.environment import Threads
    from brokerd.replica.replica import Replica
    from brokerd.store import AppendResult, Disk, MessageStore, MessageToStore
    from brokerd.topic_config import TopicConfigManager
    from mqwire.bodies import TopicConfig

logger = logging.getLogger("brokerd.services.delay_level")

# How late a message may be at most while all is well; RocketMQ looks each 100 ms too.
_LOOK_PERIOD_S: Final = 0.1
_AFTER_FAILURE_S: Final = 1.0
_AFTER_UNFORESEEN_S: Final = 10.0
# How long a level waits for a damaged record that another replica may have whole: also for one that is being restarted.
_REPAIR_PATIENCE_S: Final = 600.0
# One round of one level: enough to keep up with a full queue, little enough not to hold up the hot path.
_BATCH_MESSAGES: Final = 256
_BATCH_BYTES: Final = 1024 * 1024
# Of so many rounds it is known where in the log they are: two minutes of one level that is never late, some seconds of a backlog.
_REMEMBERED: Final = 1024


class _Broker(Protocol):
    """What the delivery of delayed messages uses of the broker."""

    config: BrokerConfig
    clock: SystemClock
    disk: Disk
    threads: Threads
    store: MessageStore
    replica: Replica
    topic_configs: TopicConfigManager

    def append(
        self, messages: Sequence[MessageToStore], *, any_size: bool, stored: Callable[[], None]
    ) -> list[AppendResult]: ...

    @property
    def delivers_messages(self) -> bool: ...


class Delivery(NamedTuple):
    """One round of one level, or what a slave took over of such."""

    end_offset_bytes: int  # of the last delivered record, in the log, or of the log where none was to be delivered
    level: int
    before: int  # the level's offset
    offset: int  # from then on


class DelayOffsetFile(DelayOffsetSerializeWrapper, frozen=True, kw_only=True):
    """delayOffset.json. RocketMQ's brokers do not read where the last deliveries are in the log."""

    deliveries: list[Delivery] = []


class DueHead:
    """Which messages at the head of one level's queue are due at `now_ms`; asked for one after the other.

    The ConsumeQueue holds the time of delivery in place of a tags code. The first message that is not due ends the head,
    also when later ones would be due (their level has become shorter since): they wait for it, so that none is passed
    over. A time further ahead than the level's delay comes from a clock that was set back: such a message is due at once
    (correctDeliverTimestamp).
    """

    __slots__ = ("_delay_ms", "_now_ms", "next_due_ms")

    def __init__(self, now_ms: int, delay_ms: int) -> None:
        self._now_ms = now_ms
        self._delay_ms = delay_ms
        self.next_due_ms: int | None = None  # when the first one after the head is due

    def accept(self, deliver_at_ms: int) -> bool:
        if self.next_due_ms is not None:
            return False
        if self._now_ms < deliver_at_ms <= self._now_ms + self._delay_ms:
            self.next_due_ms = deliver_at_ms
            return False
        return True


def delay_level_of(properties: dict[str, str]) -> int:
    """The DELAY property, 0 when there is none; raises Refusal when it is no number."""
    text = properties.get(PROPERTY_DELAY_TIME_LEVEL)
    if text is None:
        return 0
    try:
        return int(text)
    except ValueError:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"the property DELAY is {text[:40]!a}: write a delay level such as 3"
        ) from None


def to_schedule_topic(message: MessageToStore, levels: DelayLevels) -> MessageToStore:
    """The message that waits in place of one with a DELAY property; one without is returned as it is."""
    properties = string_to_properties(message.properties.decode("utf-8", "surrogatepass"))
    level = delay_level_of(properties)
    if level <= 0 or message.topic == RMQ_SYS_SCHEDULE_TOPIC:
        return message
    level = levels.clamp(level)
    properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
    properties[PROPERTY_REAL_TOPIC] = message.topic
    properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    return message._replace(
        topic=RMQ_SYS_SCHEDULE_TOPIC,
        queue_id=queue_id_of_level(level),
        properties=_encode(properties),
    )


def to_real_topic(message: StoredMessage) -> MessageToStore | None:
    """The message as it is delivered, its DELAY property kept as RocketMQ does; None when it names no real topic."""
    properties = dict(message.properties)
    properties.pop(PROPERTY_CRC32, None)  # it belongs to the record that waited
    topic = properties.get(PROPERTY_REAL_TOPIC)
    queue_id = properties.get(PROPERTY_REAL_QUEUE_ID, "")
    if not topic or not queue_id.isascii() or not queue_id.isdigit() or topic == RMQ_SYS_SCHEDULE_TOPIC:
        return None
    return MessageToStore(
        topic=topic,
        queue_id=int(queue_id),
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=pack_host(*message.born_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=0,
        body=message.body,
        properties=_encode(properties),
        tags_code=tags_code(properties[PROPERTY_TAGS]) if PROPERTY_TAGS in properties else 0,
    )


def to_readable_queue(message: MessageToStore, config: TopicConfig | None) -> MessageToStore:
    """The message in a queue that consumers read: its topic may have fewer read queues than when it was sent. A retry names one of
    as many queues as its group asks for, and its retry topic may have been made with fewer.
    """
    if config is None or message.queue_id < config.read_queue_nums or not config.read_queue_nums:
        return message
    return message._replace(queue_id=message.queue_id % config.read_queue_nums)


def _decode(chunks: Sequence[bytes]) -> Iterator[tuple[int, StoredMessage | None]]:
    """Each record with its queue offset; None for one that cannot be read (properties that are not UTF-8)."""
    for chunk in chunks:
        position = 0
        while position < len(chunk):
            queue_offset_at = position + QUEUE_OFFSET_POSITION
            queue_offset = int.from_bytes(chunk[queue_offset_at : queue_offset_at + 8], "big")
            try:
                yield queue_offset, decode_record(chunk, position)
            except RemoteProtocolError as error:
                logger.error("the delayed message at offset %d cannot be read: %s", queue_offset, error)
                yield queue_offset, None
            position += int.from_bytes(chunk[position : position + 4], "big")


def _offsets_in(table: str) -> dict[int, int]:
    parts = [one.split("=") for one in table.split(";") if one]
    return {int(level): int(offset) for level, offset in parts}


def _encode(properties: dict[str, str]) -> bytes:
    return properties_to_string(properties).encode("utf-8", "surrogatepass")


class ScheduleMessageService:
    """Sends delayed messages to their queues, and delivers them from there."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._levels = broker.config.message_delay_level
        self._file = MetadataFile(broker.disk, broker.config.config_folder, "delayOffset.json")
        self._top_level = self._levels.maximum
        self._offsets: dict[int, int] = {}
        self._next_due_ms: dict[int, int] = {}
        self._damaged: dict[int, int] = {}  # level -> the offset of a record that the store cannot read
        self._repair_until_s: dict[int, float] = {}  # level -> so long its head, which is damaged, is waited for
        self._unproven: deque[Delivery] = deque()  # perhaps not durable yet
        # The last of the others: an unclean promotion takes from the log also what had been as safe as the mode promises.
        self._delivered: deque[Delivery] = deque(maxlen=_REMEMBERED)
        self._proven: dict[int, int] = {}
        self._persisted: dict[int, int] = {}
        self._taken_over: str | None = ""  # the master's last table; None since a truncation
        self._data_version = DataVersion()
        self._waiting = WaitingBytes(broker.store)
        self._waiting_is_known = False
        self._changed_levels: set[int] = set()  # of which there was a send, or a delivery, since the last look
        self._keyed_levels: set[int] = set()  # of which there was a send of a message with keys

    def load(self) -> None:
        """Reads delayOffset.json; raises UnreadableConfigFile. Those in front of the queue are corrected later."""
        self.look_for_levels()
        stored = self._file.load(DelayOffsetFile)
        if stored is not None:
            self._take_over(stored)
        self._count_waiting(range(1, self._top_level + 1))

    def _take_over(self, stored: DelayOffsetFile) -> None:
        for level, offset in stored.offset_table.items():
            if level < 1 or offset < 0:
                raise UnreadableConfigFile(
                    f"{self._file.path} says offset {offset} for delay level {level}: restore it from a backup"
                )
        self._offsets = dict(stored.offset_table)
        self._proven = dict(stored.offset_table)
        self._persisted = dict(stored.offset_table)
        self._data_version = stored.data_version or DataVersion()
        self._delivered.extend(one for one in stored.deliveries if one.end_offset_bytes)  # 0: of an older version
        self._take_back(self._broker.store.end_offset)  # it may have been stopped right after the truncation
        self._end_with_queues()
        self._persist_at_once()

    def look_for_levels(self) -> None:
        """Levels that the configuration lacks are delivered too: their messages were promised, here or by another leader."""
        waiting = [level_of_queue_id(queue) for queue in self._broker.store.topics().get(RMQ_SYS_SCHEDULE_TOPIC, [])]
        self._top_level = max([self._levels.maximum, *waiting])

    # --- sends ---

    def transform_on_send(self, message: MessageToStore) -> MessageToStore:
        """What to store for `message`: itself, or the message that waits when it has a DELAY property.

        Raises Refusal when DELAY is no number. A level above the highest is taken as the highest.
        """
        stored = to_schedule_topic(message, self._levels)
        if stored is not message:  # it is appended after this, and to be counted until the next look
            level = level_of_queue_id(stored.queue_id)
            self._changed_levels.add(level)
            if KEYS_PREFIX in stored.properties:
                self._keyed_levels.add(level)
        return stored

    @property
    def waiting_bytes(self) -> int:
        """What the log and its index will take for the messages that wait here, when they are delivered."""
        if not self._waiting_is_known:
            self._count_waiting(range(1, self._top_level + 1))
        elif self._changed_levels:
            self._count_waiting(self._changed_levels)
        return self._waiting.total

    def _count_waiting(self, levels: Iterable[int]) -> None:
        config = self._broker.config
        if not config.quota_stored_bytes:
            return
        try:
            with_keys = self._keyed_levels if config.message_index_enable else ()
            self._waiting.update(self._offsets, levels, with_keys=with_keys)
            self._waiting_is_known = True
        except (OSError, StoreError) as error:  # those that need what is there say so
            logger.debug("the messages that wait cannot be counted: %s", error)

    # --- delivery ---

    async def run(self) -> None:
        """Delivers what is due, until cancelled; progress is persisted each flushDelayOffsetInterval."""
        persist_at_s = trio.current_time() + self._broker.config.flush_delay_offset_interval_ms / 1000
        while True:
            try:
                busy = False
                if self._broker.delivers_messages:
                    busy = self.deliver_due()
                else:
                    self._repair_until_s.clear()  # nothing is repaired for a look of this one
                self._count_waiting(range(1, self._top_level + 1))
                self._changed_levels.clear()
                self._keyed_levels.clear()
                await trio.sleep(0 if busy else _LOOK_PERIOD_S)
            except StoreError as error:
                logger.warning("delayed messages wait, for the store takes none: %s", error)
                await trio.sleep(_AFTER_FAILURE_S)
            except Exception:
                # One bad record must not take the broker down with it, nor end all deliveries.
                logger.exception("delivering delayed messages failed, trying again in %g s", _AFTER_UNFORESEEN_S)
                await trio.sleep(_AFTER_UNFORESEEN_S)
            if trio.current_time() >= persist_at_s:
                persist_at_s = trio.current_time() + self._broker.config.flush_delay_offset_interval_ms / 1000
                await self._persist_in_thread()

    def deliver_due(self) -> bool:
        """One round over all levels; returns whether some level may have more that is due. Raises StoreError."""
        now_ms = self._broker.clock.time_ms()
        busy = False
        for level in range(1, self._top_level + 1):
            if self._next_due_ms.get(level, 0) > now_ms and not self._clock_was_set_back(level, now_ms):
                continue
            busy |= self._deliver_level(level, now_ms)
        return busy

    def _clock_was_set_back(self, level: int, now_ms: int) -> bool:
        return self._next_due_ms[level] > now_ms + self._levels.delay_ms(level)

    def _deliver_level(self, level: int, now_ms: int) -> bool:
        store = self._broker.store
        queue_id = queue_id_of_level(level)
        offset = self._offsets.get(level, 0)
        if store.max_offset(RMQ_SYS_SCHEDULE_TOPIC, queue_id) == offset:
            return False
        head = DueHead(now_ms, self._levels.delay_ms(level))
        count = self._damaged.get(level, offset + _BATCH_MESSAGES) - offset
        try:
            result = store.get_messages(
                RMQ_SYS_SCHEDULE_TOPIC, queue_id, offset, count, _BATCH_BYTES, accept=head.accept
            )
        except RecordDamagedError as error:
            if error.queue_offset > offset:
                self._damaged[level] = error.queue_offset  # what is in front of it comes first
                return True
            self._damaged.pop(level, None)
            if self._may_be_repaired(level):
                self._next_due_ms[level] = now_ms + round(1000 * _AFTER_FAILURE_S)
                return False
            logger.error("delay level %d: %s, and no replica has given it whole; it is not delivered", level, error)
            self._advance(level, offset + 1)
            return True
        if result.status is GetMessageStatus.FOUND:
            self._deliver(level, result.chunks)
        elif result.status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            if result.next_begin_offset == offset:
                return False
            logger.error(
                "delay level %d: offset %d is outside of its queue (%d to %d), going on at %d",
                *(level, offset, result.min_offset, result.max_offset, result.next_begin_offset),
            )
            self._advance(level, result.next_begin_offset)
            return True
        self._next_due_ms[level] = head.next_due_ms or 0
        return head.next_due_ms is None

    def _deliver(self, level: int, chunks: Sequence[bytes]) -> None:
        deliverable = []
        next_offset = 0
        for queue_offset, message in _decode(chunks):
            next_offset = queue_offset + 1
            real = None if message is None else to_real_topic(message)
            if real is None:
                logger.error("delay level %d: the message at offset %d names no real topic", level, queue_offset)
            else:
                deliverable.append(to_readable_queue(real, self._broker.topic_configs.select(real.topic)))

        def stored() -> None:  # a slave that is sent these records is sent with them that they were delivered
            self._advance(level, next_offset)

        while deliverable:
            try:
                self._broker.append(deliverable, any_size=True, stored=stored)
            except MessageIllegalError as error:
                logger.error("delay level %d: a message cannot be delivered: %s", level, error.reason)
                del deliverable[error.index]
            else:
                return
        self._advance(level, next_offset)

    def _may_be_repaired(self, level: int) -> bool:
        """Whether the damaged head of a level is worth waiting for: the broker fetches it from a replica that has it."""
        if not self._broker.replica.known_replicas:
            return False
        now_s = self._broker.clock.monotonic()
        return now_s < self._repair_until_s.setdefault(level, now_s + _REPAIR_PATIENCE_S)

    def _advance(self, level: int, offset: int) -> None:
        """By the log as it is now: also where nothing was delivered, for the queue need not be so long in a shorter one."""
        self._repair_until_s.pop(level, None)
        end_offset_bytes = self._broker.store.end_offset
        self._unproven.append(Delivery(end_offset_bytes, level, self._offsets.get(level, 0), offset))
        self._offsets[level] = offset
        self._changed_levels.add(level)

    def table_at(self, log_offset: int) -> str | None:
        """How far each level is delivered by the log up to `log_offset`, as `take_over` takes it; None: that is not remembered.

        So a slave learns of a delivery with its records, and of none of which it has no records.
        """
        offsets = dict(self._offsets)
        for one in chain(reversed(self._unproven), reversed(self._delivered)):
            if one.end_offset_bytes > log_offset:
                offsets[one.level] = min(one.before, offsets.get(one.level, 0))
            else:
                break
        else:
            if log_offset < self._broker.store.end_offset:
                return None
        return ";".join([f"{level}={offset}" for level, offset in offsets.items()])

    def take_over(self, table: str | None) -> None:
        """A slave takes over how far its master has delivered by the log that is here; it delivers from there when it leads. Never
        lowers.

        But once after a truncation (`log_was_truncated`): what this replica delivered beyond its master's log is not delivered.
        The log has the delivered records by now, perhaps not durably yet.
        """
        if table is None or table == self._taken_over:
            return
        again, self._taken_over = self._taken_over is None, table
        offsets = _offsets_in(table)
        for level in [*offsets, *(self._offsets.keys() - offsets.keys() if again else ())]:
            offset, own = offsets.get(level, 0), self._offsets.get(level, 0)
            if offset > own or (again and offset < own):
                self._advance(level, offset)
                self._next_due_ms.pop(level, None)

    def log_was_truncated(self) -> None:
        """Records that were delivered are gone from this replica's log: its master knows how far deliveries really are.

        Until that one has said so, only deliveries of which the log has the record count: this replica may lead before.
        """
        self._taken_over = None
        self._waiting.forget()
        self._waiting_is_known = False
        self._take_back(self._broker.store.end_offset)
        self._end_with_queues()
        for level in self._offsets:
            self._next_due_ms.pop(level, None)
        self._persist_at_once()

    def _persist_at_once(self) -> None:
        """At the next start the log and the queues may have grown past what the file says, by other messages."""
        try:
            self.persist()
        except OSError as error:
            logger.error("the progress of delayed messages cannot be written, trying again: %s", error)

    def _end_with_queues(self) -> None:
        """A log that was truncated, or started over, may have shorter queues, and other messages there soon."""
        self._unproven = deque(
            one._replace(offset=min(one.offset, self._queue_end(one.level))) for one in self._unproven
        )
        self._proven = {level: min(offset, self._queue_end(level)) for level, offset in self._proven.items()}
        self._offsets = {level: min(offset, self._queue_end(level)) for level, offset in self._offsets.items()}

    def _queue_end(self, level: int) -> int:
        store = self._broker.store
        if store.damaged_from is not None:
            return sys.maxsize  # what is damaged may be put right: then the queue is longer
        return store.queue_end_offset(RMQ_SYS_SCHEDULE_TOPIC, queue_id_of_level(level)) or 0

    def _take_back(self, log_end_offset: int) -> None:
        """Have each level go on where it was before the first delivery of which the log has no record any more."""
        lost = [one for one in (*self._delivered, *self._unproven) if one.end_offset_bytes > log_end_offset]
        for one in lost:
            self._offsets[one.level] = min(one.before, self._offsets.get(one.level, 0))
            self._proven[one.level] = min(one.before, self._proven.get(one.level, 0))
        if lost:
            kept = [one for one in self._delivered if one.end_offset_bytes <= log_end_offset]
            self._delivered = deque(kept, maxlen=_REMEMBERED)
            self._unproven = deque(one for one in self._unproven if one.end_offset_bytes <= log_end_offset)

    def first_waiting(self) -> int | None:
        """Where in the log the first message begins that waits here, or was not delivered durably; None when none does.

        Raises StoreError.
        """
        self._prove()
        store = self._broker.store
        found = []
        for level in range(1, self._top_level + 1):
            queue_id = queue_id_of_level(level)
            offset = max(self._proven.get(level, 0), store.min_offset(RMQ_SYS_SCHEDULE_TOPIC, queue_id))
            position = store.physical_offset_of(RMQ_SYS_SCHEDULE_TOPIC, queue_id, offset)
            if position is not None:
                found.append(position)
        return min(found, default=None)

    # --- persistence ---

    @property
    def offsets(self) -> dict[int, int]:
        """How far each level has been delivered; a copy."""
        return dict(self._offsets)

    def to_wrapper(self) -> DelayOffsetSerializeWrapper:
        """The table as it is answered: only what is durable."""
        self._prove()
        return DelayOffsetSerializeWrapper(offset_table=dict(self._proven), data_version=self._data_version)

    def persist(self) -> None:
        """Writes durable progress; raises OSError."""
        changes = self._take_changes()
        if changes is not None:
            self._write(*changes)

    async def _persist_in_thread(self) -> None:
        changes = self._take_changes()
        if changes is None:
            return
        try:
            await self._broker.threads.run(self._write, *changes)
        except OSError as error:
            logger.error("the progress of delayed messages cannot be written, trying again: %s", error)

    def _take_changes(self) -> tuple[Snapshot, dict[int, int]] | None:
        self._prove()
        if self._proven == self._persisted:
            return None
        self._data_version = self._data_version.next_version(self._broker.clock.time_ms())
        table = DelayOffsetFile(
            offset_table=dict(self._proven), data_version=self._data_version, deliveries=list(self._delivered)
        )
        return self._file.snapshot(table.to_json()), dict(self._proven)

    def _write(self, snapshot: Snapshot, offsets: dict[int, int]) -> None:
        self._file.store(snapshot)
        self._persisted = offsets

    def _prove(self) -> None:
        # A delivery counts once it is durable here and as safe as the mode promises: what a promotion could lose is
        # delivered again by the next master.
        safe_offset = min(self._broker.store.durable_offset, self._broker.replica.confirm_offset)
        while self._unproven and self._unproven[0].end_offset_bytes <= safe_offset:
            one = self._unproven.popleft()
            self._proven[one.level] = one.offset
            self._delivered.append(one)
