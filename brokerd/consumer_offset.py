"""ConsumerOffsetManager: how far each group has consumed each queue.

The table is what the log says (metadata_record.py): the leader changes it in memory and writes what has changed as one
record, at once where an answer waits for it (services/metadata_log.py). config/consumerOffset.json is written each
flushConsumerOffsetInterval, for RocketMQ's tools. Differences to RocketMQ, after architecture.md's invariant 7:

- An offset is never lowered but by a reset. Clients that lost a queue commit late; believing them would deliver again
  what their successor has consumed.
- A reset that waits for the group's next pull is kept too (`resetOffsetTable`, which RocketMQ ignores), so that a restart
  or failover in between does not let an online client's next commit undo it.
- What is committed on a follower while the leader is away is a hint: queries there see it, and the leader is sent it when
  it is back, unless the offset was reset meanwhile.

Source: ConsumerOffsetManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from brokerd.config import BrokerConfig
from brokerd.metadata import MetadataFile, Snapshot
from brokerd.metadata_record import MetadataRecord, Offsets, record_max_bytes, split_offsets
from brokerd.store import Disk, StoreError
from mqwire.bodies import Body, ConsumerOffsetSerializeWrapper, DataVersion
from mqwire.header import Int32, Int64

logger = logging.getLogger("brokerd.consumer_offset")

_SEPARATOR = "@"
NO_OFFSET = -1
# Of all groups in all queues: a bound on memory (some 120 bytes each), far above what one broker's consumers have. Only the leader
# heeds it, before it writes: what a log says counts.
OFFSETS_MAX: Final = 1_000_000
# So many of the hints are about queues in which their groups have no offset yet.
NEW_HINTS_MAX: Final = 100_000


class ConsumerOffsetFile(Body, frozen=True, kw_only=True):
    """consumerOffset.json. What RocketMQ or an operator has written lacks the mark, and counts more than the log then."""

    offset_table: dict[str, dict[Int32, Int64]] = {}
    reset_offset_table: dict[str, dict[Int32, Int64]] = {}
    reset_count_table: dict[str, dict[Int32, Int64]] = {}
    data_version: DataVersion = DataVersion()
    in_log: bool = False


class ConsumerOffsetManager:
    """The table of offsets. Offsets count messages of one queue: the next one to consume."""

    def __init__(
        self,
        config: BrokerConfig,
        clock_ms: Callable[[], int],
        disk: Disk,
        write: Callable[[MetadataRecord], None] | None = None,
    ) -> None:
        """`write` puts a change into the log; it raises StoreError, and the table stays as it was."""
        self._clock_ms = clock_ms
        self._write = write
        self._record_max_bytes = record_max_bytes(config)
        self._file = MetadataFile(disk, config.config_folder, "consumerOffset.json")
        self._offsets: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._reset_counts: dict[str, dict[int, int]] = {}  # how often each offset was reset
        self._unwritten: dict[str, set[int]] = {}  # queues whose offsets have changed since the last record
        self._hints: dict[str, dict[int, int]] = {}
        self._new_hints = 0  # at most so many of them are about queues in which their groups have no offset yet
        # Where in the log leaders began that may have lacked what consumers had read, oldest first; in bytes.
        self._losses: list[int] = []
        self._count: int | None = 0  # of the offsets; None: they are to be counted
        self._changed = False
        self.is_imported = False  # whether consumerOffset.json was written by others since the log was
        self._file_outranks_log = False  # as `is_imported`, until the file is replaced by our own
        self.data_version = DataVersion()

    def load(self) -> None:
        """Reads consumerOffset.json; raises UnreadableConfigFile."""
        stored = self._file.load(ConsumerOffsetFile)
        if stored is not None:
            self._offsets = dict(stored.offset_table)
            self._count = None
            self._resets = dict(stored.reset_offset_table)
            self._reset_counts = dict(stored.reset_count_table)
            self.data_version = stored.data_version
            self.is_imported = self._file_outranks_log = not stored.in_log

    # --- the table ---

    def query(self, topic: str, group: str, queue_id: int) -> int:
        """A group's offset in a queue: of a pending reset, else as committed; NO_OFFSET (-1) when there is none."""
        key = topic + _SEPARATOR + group
        resets = self._resets.get(key)
        if resets is not None and queue_id in resets:
            return resets[queue_id]
        offsets = self._offsets.get(key)
        offset = NO_OFFSET if offsets is None else offsets.get(queue_id, NO_OFFSET)
        return max(offset, self._hints[key].get(queue_id, NO_OFFSET)) if key in self._hints else offset

    def query_all(self, topic: str, group: str) -> dict[int, int]:
        """All queues' offsets of a group in a topic, pending resets included; a copy."""
        key = topic + _SEPARATOR + group
        return {**self._offsets.get(key, {}), **self._resets.get(key, {})}

    def refusal(self, topic: str, group: str, queue_ids: Iterable[int]) -> str | None:
        """Why the group gets no offset in these queues, as a remark; None when it may, or has them already."""
        known = self._offsets.get(topic + _SEPARATOR + group, {})
        new = sum(queue_id not in known for queue_id in queue_ids)
        if not new:
            return None
        if self._count is None:
            self._count = sum(map(len, self._offsets.values()))
        if self._count + new <= OFFSETS_MAX:
            return None
        return (
            f"this broker keeps {OFFSETS_MAX} offsets of groups in queues, and has them: delete groups that no one uses"
        )

    def commit(self, topic: str, group: str, queue_id: int, offset: int, client_host: str = "") -> bool:
        """Raises the offset to `offset`; returns whether it counts. A lower one, or one during a reset, does not. Ask `refusal`
        first.
        """
        key = topic + _SEPARATOR + group
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        offsets = self._offsets.get(key)
        stored = NO_OFFSET if offsets is None else offsets.get(queue_id, NO_OFFSET)
        if offset <= stored:
            if offset < stored:
                logger.info(
                    "%s commits offset %d of group %s in %s, queue %d; %d stays, for it is higher",
                    *(client_host, offset, group, topic, queue_id, stored),
                )
            return offset == stored
        if stored == NO_OFFSET and self._count is not None:
            self._count += 1
        if offsets is None:
            offsets = self._offsets[key] = {}
        offsets[queue_id] = offset
        self._changed = True
        unwritten = self._unwritten.get(key)
        if unwritten is None:
            unwritten = self._unwritten[key] = set()
        unwritten.add(queue_id)
        return True

    def hint(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Remember a commit on a follower, until the leader is sent it (`hints`)."""
        key = topic + _SEPARATOR + group
        known = self.query(topic, group, queue_id)
        if offset > known and queue_id not in self._resets.get(key, ()):
            if known == NO_OFFSET:
                self._new_hints = self._new_hints + 1 if self._hints else 1
                if self._new_hints > NEW_HINTS_MAX:
                    return
            self._hints.setdefault(key, {})[queue_id] = offset

    @property
    def has_hints(self) -> bool:
        return bool(self._hints)

    def hints(self) -> list[tuple[str, str, int, int]]:
        """(topic, group, queue, offset) of the hints."""
        return _rows(self._hints)

    def has_hint(self, topic: str, group: str, queue_id: int, offset: int) -> bool:
        """Whether this one is there still."""
        return self._hints.get(topic + _SEPARATOR + group, {}).get(queue_id) == offset

    def drop_hint(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """The leader was sent this one."""
        key = topic + _SEPARATOR + group
        if self._hints.get(key, {}).get(queue_id) == offset:
            _drop(self._hints, key, queue_id)

    def drop_hints(self) -> None:
        """They may be of another log."""
        self._hints = {}

    def drop_hints_of_known(self) -> None:
        """Of groups with an offset what was heard as a follower is not to be believed: they go on where they have committed."""
        for topic, group, queue_id, offset in self.hints():
            if self.has_offset(topic, group, queue_id):
                self.drop_hint(topic, group, queue_id, offset)

    def commit_hints(self, is_proven: Callable[[str, str, int, int], bool]) -> None:
        """This replica leads now. `is_proven` says whether a group can be there (unproven_offsets.py)."""
        hints, self._hints = self._hints, {}
        for topic, group, queue_id, offset in _rows(hints):
            if is_proven(topic, group, queue_id, offset):
                self.commit(topic, group, queue_id, offset)

    def reset(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        """Sets offsets by queue, also to lower ones; raises StoreError, also where there would be too many of them.

        Until the group pulls a queue from there no commit changes it (take_reset).
        """
        key = topic + _SEPARATOR + group
        refusal = self.refusal(topic, group, offsets)
        if refusal is not None:
            raise StoreError(refusal)
        logger.warning("offsets of group %s in %s are reset: %s", group, topic, offsets)
        record = MetadataRecord(resets={key: offsets})
        self._write_down(record)
        self.apply(record)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The pending reset of a queue, which is over now; None when there is none. For the pull that goes on from there.

        Raises StoreError when that cannot be written down: the reset is pending still.
        """
        offset = self.pending_reset(topic, group, queue_id)
        if offset is not None:
            record = MetadataRecord(taken_resets={topic + _SEPARATOR + group: [queue_id]})
            self._write_down(record)
            self.apply(record)
        return offset

    def pending_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where a reset sends the group's next pull of a queue; None when none is pending."""
        if not self._resets:
            return None
        return self._resets.get(topic + _SEPARATOR + group, {}).get(queue_id)

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        return self.pending_reset(topic, group, queue_id) is not None

    def reset_count(self, topic: str, group: str, queue_id: int) -> int:
        """How often the group's offset in a queue was reset."""
        return self._reset_counts.get(topic + _SEPARATOR + group, {}).get(queue_id, 0)

    def send_back(self, loss_offset: int, *, from_the_beginning: bool = False) -> None:
        """Reset every group's offset in every queue to where it is: what its members have read beyond that may be lost. It is so
        from `loss_offset` on, where the leader's epoch begins in the log, in bytes. Or groups without an offset may have read
        others from the beginning on.

        The next messages get the same numbers. A member that still had its old position would pass over them, and its commits
        would have its successors do so, too. In memory only: for the base that a leader begins with.
        """
        if from_the_beginning and 0 not in self._losses:
            self._losses.insert(0, 0)
        self._losses.append(loss_offset)
        for topic, group, queue_id, offset in _rows(self._offsets):
            key = topic + _SEPARATOR + group
            if queue_id not in self._resets.get(key, ()):
                self._resets.setdefault(key, {})[queue_id] = offset
                counts = self._reset_counts.setdefault(key, {})
                counts[queue_id] = counts.get(queue_id, 0) + 1
        self._changed = True

    @property
    def losses(self) -> list[int]:
        """Where leaders began whose log may have lacked what consumers had read, oldest first, in bytes of the CommitLog."""
        return self._losses

    def forget_losses(self, below_offset: int, *, but: int | None) -> None:
        """Retention has deleted the log up to there: who has not asked since then is not looked after any more. 0, which stands
        beside another loss (`send_back`), goes when no other is left.
        """
        kept = [offset for offset in self._losses if offset >= below_offset or offset == but]
        self._losses = [0, *kept] if 0 in self._losses and kept and 0 not in kept else kept

    def note_losses(self, base: MetadataRecord) -> None:
        """As the log's last base says."""
        if set(base.losses) - set(self._losses):
            self.drop_hints()  # they may be of what is lost
        self._losses = list(base.losses)

    def has_offset(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether the group has one in the queue, or a reset that is pending; a hint is none."""
        key = topic + _SEPARATOR + group
        return queue_id in self._offsets.get(key, ()) or queue_id in self._resets.get(key, ())

    def clone(self, source_group: str, target_group: str, topic: str) -> list[int]:
        """Gives `target_group` the offsets of `source_group`, as a reset does; returns the queues."""
        offsets = self.query_all(topic, source_group)
        if offsets:
            self.reset(topic, target_group, offsets)
        return list(offsets)

    # --- the log ---

    def is_unwritten(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether the offset has changed since it was last written to the log."""
        return queue_id in self._unwritten.get(topic + _SEPARATOR + group, ())

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def write_offsets(self) -> None:
        """Writes what has changed since the last record; raises StoreError."""
        if self._unwritten:
            offsets = {
                key: {queue_id: self._offsets[key][queue_id] for queue_id in queue_ids}
                for key, queue_ids in self._unwritten.items()
            }
            for part in split_offsets(offsets, self._record_max_bytes):
                self._write_down(MetadataRecord(offsets=part))
                for key, by_queue in part.items():
                    unwritten = self._unwritten.get(key, set())
                    unwritten.difference_update(by_queue)
                    if not unwritten:
                        self._unwritten.pop(key, None)

    def forget_unwritten(self) -> None:
        """What has changed is in a base, or not to be written by this replica any more."""
        self._unwritten = {}

    def _write_down(self, record: MetadataRecord) -> None:
        if self._write is not None:
            self._write(record)

    def apply(self, record: MetadataRecord) -> None:
        """Take over what a record of the log says."""
        self._count = None
        counted = self._reset_counts
        if record.is_base:
            self._offsets, self._resets, self._reset_counts = {}, {}, {}
            self._unwritten = {}
        for table, changes in (
            (self._offsets, record.offsets),
            (self._offsets, record.resets),
            (self._resets, record.resets),
            (self._reset_counts, record.reset_counts),
        ):
            for key, by_queue in changes.items():
                table.setdefault(key, {}).update(by_queue)
        if record.is_base:
            self._drop_hints_before_resets(counted)
        else:
            self._count_resets(record.resets)
        for key, queue_ids in record.taken_resets.items():
            pending = self._resets.get(key, {})
            for queue_id in queue_ids:
                pending.pop(queue_id, None)
            if not pending:
                self._resets.pop(key, None)
        prefixes = tuple(topic + _SEPARATOR for topic in record.deleted_topics)
        suffixes = tuple(_SEPARATOR + group for group in record.forgotten_groups)
        if prefixes or suffixes:
            self._remove(prefixes, suffixes)
        self._changed = True

    def _drop_hints_before_resets(self, counted: Offsets) -> None:
        """A base replaced the tables: what was committed here before a reset that it has counted is not to come back after it."""
        for topic, group, queue_id, _ in _rows(self._hints):
            key = topic + _SEPARATOR + group
            if self._reset_counts.get(key, {}).get(queue_id, 0) > counted.get(key, {}).get(queue_id, 0):
                _drop(self._hints, key, queue_id)

    def _count_resets(self, resets: Offsets) -> None:
        for key, by_queue in resets.items():
            counts = self._reset_counts.setdefault(key, {})
            for queue_id in by_queue:
                counts[queue_id] = counts.get(queue_id, 0) + 1
                # What was committed or hinted before the reset is not to come back after it.
                for table in (self._unwritten, self._hints):
                    if key in table:
                        _drop(table, key, queue_id)

    def base(self) -> tuple[Offsets, Offsets, Offsets]:
        """Offsets, pending resets and how often each offset was reset, for a base."""
        return self._offsets, self._resets, self._reset_counts

    # --- between replicas ---

    def to_wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """The table as it is sent to RocketMQ's slaves; a copy, hints included."""
        file = self.to_file()
        for key, by_queue in self._hints.items():
            offsets = file.offset_table.setdefault(key, {})
            for queue_id, offset in by_queue.items():
                offsets[queue_id] = max(offset, offsets.get(queue_id, NO_OFFSET))
        return ConsumerOffsetSerializeWrapper(
            offset_table=file.offset_table,
            reset_count_table=file.reset_count_table or None,
            losses=self._losses or None,
            data_version=self.data_version,
        )

    def merge(self, theirs: ConsumerOffsetSerializeWrapper, is_proven: Callable[[str, str, int, int], bool]) -> None:
        """Take what was committed at a follower while this leader was away. `is_proven` as in commit_hints.

        An offset is raised, never lowered, and only where both know of the same resets: which reset came when, the log says. None
        of a follower that has not heard of a loss: its offsets may be of what is lost.
        """
        if set(self._losses) - set(theirs.losses or ()):
            return
        for key, by_queue in theirs.offset_table.items():
            topic, separator, group = key.partition(_SEPARATOR)
            if not separator:
                continue
            counts = (theirs.reset_count_table or {}).get(key, {})
            for queue_id, offset in by_queue.items():
                if not is_proven(topic, group, queue_id, offset):
                    continue
                same_resets = counts.get(queue_id, 0) == self._reset_counts.get(key, {}).get(queue_id, 0)
                if same_resets and offset > self._offsets.get(key, {}).get(queue_id, NO_OFFSET):
                    self.commit(topic, group, queue_id, offset)

    def bound(self, queue_end_offset: Callable[[str, int], int | None]) -> None:
        """Take back offsets, and pending resets, beyond the ends of their queues: this replica's log has lost those messages, or
        never had them.

        Left as they are, they would pass over the messages that get these offsets next.
        """
        for what, table in (("offset", self._offsets), ("the pending reset to offset", self._resets)):
            for topic, group, queue_id, offset in _rows(table):
                end = queue_end_offset(topic, queue_id)
                if end is not None and offset > end:
                    logger.warning(
                        "%s %d of group %s in %s, queue %d is beyond the queue's end here: taken back to %d",
                        *(what, offset, group, topic, queue_id, end),
                    )
                    table[topic + _SEPARATOR + group][queue_id] = end
                    self._changed = True

    # --- who consumes what ---

    def all_offsets(self) -> list[tuple[str, str, int, int]]:
        """(topic, group, queue, offset) of the whole table, pending resets included."""
        return _rows(self._offsets)

    def offsets_by_group(self) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """(topic, group, its offsets by queue) of the whole table; not to be changed meanwhile."""
        for key, offsets in self._offsets.items():
            topic, _, group = key.partition(_SEPARATOR)
            yield topic, group, offsets

    def topics_of(self, group: str) -> list[str]:
        """The topics in which the group has offsets."""
        suffix = _SEPARATOR + group
        return sorted(key[: -len(suffix)] for key in self._offsets if key.endswith(suffix))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in the topic."""
        prefix = topic + _SEPARATOR
        return sorted(key[len(prefix) :] for key in self._offsets if key.startswith(prefix))

    # --- clean-up ---

    def remove_topic(self, topic: str) -> None:
        """Forgets all groups' offsets in a deleted topic, as the record of its deletion says."""
        self.apply(MetadataRecord(deleted_topics=[topic]))

    def remove_group(self, group: str) -> None:
        """Forgets a deleted group's offsets in all topics; raises StoreError."""
        record = MetadataRecord(forgotten_groups=[group])
        self._write_down(record)
        self.apply(record)

    def _remove(self, prefixes: tuple[str, ...], suffixes: tuple[str, ...]) -> None:
        tables: tuple[dict[str, dict[int, int]] | dict[str, set[int]], ...] = (
            *(self._offsets, self._resets, self._reset_counts, self._unwritten, self._hints),
        )
        for table in tables:
            for key in [key for key in table if key.startswith(prefixes) or key.endswith(suffixes)]:
                del table[key]

    # --- persistence ---

    def to_file(self) -> ConsumerOffsetFile:
        """A copy of the whole table."""
        return ConsumerOffsetFile(
            offset_table={key: dict(offsets) for key, offsets in self._offsets.items()},
            reset_offset_table={key: dict(offsets) for key, offsets in self._resets.items()},
            reset_count_table={key: dict(counts) for key, counts in self._reset_counts.items()},
            data_version=self.data_version,
            in_log=True,
        )

    @property
    def file_name(self) -> str:
        return self._file.name

    def take_changes(self) -> Snapshot | None:
        """The file's new content, None when nothing has changed since the last call; for `write_changes`.

        The two are apart because a write waits for the disk and may happen in another thread.
        """
        if not self._changed:
            return None
        self._changed = False
        self.data_version = self.data_version.next_version(self._clock_ms())
        return self._file.snapshot(self.to_file().to_json())

    def write_changes(self, changes: Snapshot) -> None:
        """Replaces the file durably; raises OSError: call `mark_changed` then, so that the next round tries again."""
        self._file.store(changes)
        self._file_outranks_log = False

    def mark_changed(self) -> None:
        self._changed = True

    def own_file(self) -> None:
        """As LoggedTable.own_file: a reset that was answered must not be taken back by a file that others wrote."""
        if not self._file_outranks_log:
            return
        try:
            self.write_changes(self._file.snapshot(self.to_file().to_json()))
        except OSError as error:
            raise StoreError(f"{self._file.name}, which others wrote, cannot be replaced: {error}") from error

    def persist(self) -> None:
        """Writes what has changed, at once."""
        changes = self.take_changes()
        if changes is not None:
            try:
                self.write_changes(changes)
            except OSError:
                self.mark_changed()
                raise


def _rows(table: Offsets) -> list[tuple[str, str, int, int]]:
    rows = []
    for key, offsets in table.items():
        topic, _, group = key.partition(_SEPARATOR)
        rows += [(topic, group, queue_id, offset) for queue_id, offset in offsets.items()]
    return rows


def _drop(table: dict[str, set[int]] | dict[str, dict[int, int]], key: str, queue_id: int) -> None:
    by_queue = table[key]
    if isinstance(by_queue, set):
        by_queue.discard(queue_id)
    else:
        by_queue.pop(queue_id, None)
    if not by_queue:
        del table[key]
