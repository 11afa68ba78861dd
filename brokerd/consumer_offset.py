"""ConsumerOffsetManager: how far each group has consumed each queue.

Persisted in config/consumerOffset.json each flushConsumerOffsetInterval, with keys "topic@group". Differences to
RocketMQ, after architecture.md's invariant 7:

- An offset is never lowered but by a reset. Clients that lost a queue commit late; believing them would deliver again
  what their successor has consumed.
- A reset that waits for the group's next pull is persisted too (`resetOffsetTable`, which RocketMQ ignores), so that a
  restart in between does not let an online client's next commit undo it.

Source: ConsumerOffsetManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from brokerd.config import BrokerConfig
from brokerd.metadata import MetadataFile, Snapshot
from brokerd.store import Disk
from mqwire.bodies import Body, ConsumerOffsetSerializeWrapper, DataVersion
from mqwire.header import Int32, Int64

logger = logging.getLogger("brokerd.consumer_offset")

_SEPARATOR = "@"
NO_OFFSET = -1


class ConsumerOffsetFile(Body, frozen=True, kw_only=True):
    """consumerOffset.json."""

    offset_table: dict[str, dict[Int32, Int64]] = {}
    reset_offset_table: dict[str, dict[Int32, Int64]] = {}
    reset_count_table: dict[str, dict[Int32, Int64]] = {}
    data_version: DataVersion = DataVersion()


class ConsumerOffsetManager:
    """The table of offsets. Offsets count messages of one queue: the next one to consume."""

    def __init__(self, config: BrokerConfig, clock_ms: Callable[[], int], disk: Disk) -> None:
        self._clock_ms = clock_ms
        self._file = MetadataFile(disk, config.config_folder, "consumerOffset.json")
        self._offsets: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        # How often each offset was reset: between replicas the higher count wins, and only then the higher offset.
        self._reset_counts: dict[str, dict[int, int]] = {}
        self._changed = False
        self.changes = 0  # grows with each change, also those that are not persisted yet
        self.data_version = DataVersion()

    def load(self) -> None:
        """Reads consumerOffset.json; raises UnreadableConfigFile."""
        stored = self._file.load(ConsumerOffsetFile)
        if stored is not None:
            self._offsets = dict(stored.offset_table)
            self._resets = dict(stored.reset_offset_table)
            self._reset_counts = dict(stored.reset_count_table)
            self.data_version = stored.data_version

    # --- the table ---

    def query(self, topic: str, group: str, queue_id: int) -> int:
        """A group's offset in a queue: of a pending reset, else as committed; NO_OFFSET (-1) when there is none."""
        key = topic + _SEPARATOR + group
        resets = self._resets.get(key)
        if resets is not None and queue_id in resets:
            return resets[queue_id]
        offsets = self._offsets.get(key)
        return NO_OFFSET if offsets is None else offsets.get(queue_id, NO_OFFSET)

    def query_all(self, topic: str, group: str) -> dict[int, int]:
        """All queues' offsets of a group in a topic, pending resets included; a copy."""
        key = topic + _SEPARATOR + group
        return {**self._offsets.get(key, {}), **self._resets.get(key, {})}

    def commit(self, topic: str, group: str, queue_id: int, offset: int, client_host: str = "") -> bool:
        """Raises the offset to `offset`; tells whether it counts. A lower one, or one during a reset, does not."""
        key = topic + _SEPARATOR + group
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        offsets = self._offsets.get(key)
        if offsets is None:
            offsets = self._offsets[key] = {}
        stored = offsets.get(queue_id, NO_OFFSET)
        if offset <= stored:
            if offset < stored:
                logger.info(
                    "%s commits offset %d of group %s in %s, queue %d; %d stays, for it is higher",
                    *(client_host, offset, group, topic, queue_id, stored),
                )
            return offset == stored
        offsets[queue_id] = offset
        self.mark_changed()
        return True

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Sets the offset, also to a lower one. Until the group's next pull no commit changes it (take_reset)."""
        key = topic + _SEPARATOR + group
        logger.warning("offset of group %s in %s, queue %d is reset to %d", group, topic, queue_id, offset)
        self._resets.setdefault(key, {})[queue_id] = offset
        self._offsets.setdefault(key, {})[queue_id] = offset
        counts = self._reset_counts.setdefault(key, {})
        counts[queue_id] = counts.get(queue_id, 0) + 1
        self.mark_changed()

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The pending reset of a queue, which is over now; None when there is none. For the pull that answers it."""
        if not self._resets:
            return None
        key = topic + _SEPARATOR + group
        resets = self._resets.get(key)
        if resets is None or queue_id not in resets:
            return None
        offset = resets.pop(queue_id)
        if not resets:
            del self._resets[key]
        self.mark_changed()
        return offset

    def has_reset(self, topic: str, group: str, queue_id: int) -> bool:
        return queue_id in self._resets.get(topic + _SEPARATOR + group, ())

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Gives `target_group` the offsets of `source_group`, as a reset does."""
        for queue_id, offset in self.query_all(topic, source_group).items():
            self.reset(topic, target_group, queue_id, offset)

    # --- between replicas ---

    def to_wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """The table as other replicas are told it; a copy."""
        file = self.to_file()
        return ConsumerOffsetSerializeWrapper(
            offset_table=file.offset_table,
            reset_count_table=file.reset_count_table or None,
            data_version=self.data_version,
        )

    def merge(self, theirs: ConsumerOffsetSerializeWrapper) -> list[tuple[str, str, int, int]]:
        """Take what another replica knows better; returns what this one does: (topic, group, queue, offset).

        An offset is raised, never lowered, unless it was reset there more often than here: a reset reaches every replica.
        """
        ahead: list[tuple[str, str, int, int]] = []
        for key, by_queue in theirs.offset_table.items():
            topic, separator, group = key.partition(_SEPARATOR)
            if not separator:
                continue
            counts = (theirs.reset_count_table or {}).get(key, {})
            for queue_id, offset in by_queue.items():
                own = self._offsets.get(key, {}).get(queue_id, NO_OFFSET)
                own_count = self._reset_counts.get(key, {}).get(queue_id, 0)
                count = counts.get(queue_id, 0)
                if count > own_count:
                    self._offsets.setdefault(key, {})[queue_id] = offset
                    self._reset_counts.setdefault(key, {})[queue_id] = count
                    self.mark_changed()
                elif count == own_count and own < offset:
                    self.commit(topic, group, queue_id, offset)
                elif count == own_count and own > offset:
                    ahead.append((topic, group, queue_id, own))
        return ahead

    def bound(self, queue_end_offset: Callable[[str, int], int | None]) -> None:
        """Take back offsets behind the ends of their queues: this replica's log has lost those messages, or never had them.

        Left as they are, they would pass over the messages that get these offsets next.
        """
        for key, by_queue in self._offsets.items():
            topic, _, group = key.partition(_SEPARATOR)
            for queue_id, offset in by_queue.items():
                end = queue_end_offset(topic, queue_id)
                if end is not None and offset > end:
                    logger.warning(
                        "offset %d of group %s in %s, queue %d is behind the queue's end here: taken back to %d",
                        *(offset, group, topic, queue_id, end),
                    )
                    by_queue[queue_id] = end
                    self.mark_changed()

    # --- who consumes what ---

    def all_offsets(self) -> list[tuple[str, str, int, int]]:
        """(topic, group, queue, offset) of the whole table, pending resets included."""
        found = []
        for key, offsets in self._offsets.items():
            topic, _, group = key.partition(_SEPARATOR)
            found += [(topic, group, queue_id, offset) for queue_id, offset in offsets.items()]
        return found

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
        """Forgets all groups' offsets in a deleted topic."""
        self._remove(lambda key: key.startswith(topic + _SEPARATOR))

    def remove_group(self, group: str) -> None:
        """Forgets a deleted group's offsets in all topics."""
        self._remove(lambda key: key.endswith(_SEPARATOR + group))

    def _remove(self, wanted: Callable[[str], bool]) -> None:
        for table in (self._offsets, self._resets, self._reset_counts):
            for key in [key for key in table if wanted(key)]:
                del table[key]
                self.mark_changed()

    # --- persistence ---

    def to_file(self) -> ConsumerOffsetFile:
        """A copy of the whole table."""
        return ConsumerOffsetFile(
            offset_table={key: dict(offsets) for key, offsets in self._offsets.items()},
            reset_offset_table={key: dict(offsets) for key, offsets in self._resets.items()},
            reset_count_table={key: dict(counts) for key, counts in self._reset_counts.items()},
            data_version=self.data_version,
        )

    def take_changes(self) -> Snapshot | None:
        """The file's new content, None when nothing has changed since the last call; for `write`.

        The two are apart because a write waits for the disk and may happen in another thread.
        """
        if not self._changed:
            return None
        self._changed = False
        self.data_version = self.data_version.next_version(self._clock_ms())
        return self._file.snapshot(self.to_file().to_json())

    def write(self, changes: Snapshot) -> None:
        """Replaces the file durably; raises OSError: call `mark_changed` then, so that the next round tries again."""
        self._file.store(changes)

    def mark_changed(self) -> None:
        self._changed = True
        self.changes += 1

    def persist(self) -> None:
        """Writes what has changed, at once."""
        changes = self.take_changes()
        if changes is not None:
            try:
                self.write(changes)
            except OSError:
                self.mark_changed()
                raise
