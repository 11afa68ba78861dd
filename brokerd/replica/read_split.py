"""Which broker a consumer's next pull should go to: the master, unless a slave serves it better and surely can.

Pure but for the store's offsets. Source: replication of RocketMQ's suggestWhichBrokerId (DefaultMessageStore.getMessage,
PullMessageProcessor), with one rule more: never a slave that does not hold the next message. A master at message
1,000,000 whose slave is at 960,000 keeps a consumer that is at 960,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mqwire.names import MASTER_ID

if TYPE_CHECKING:
    from brokerd.replica.replica import Replica
    from brokerd.store import GetResult, MessageStore


class ReadSplit:
    """Decides for one broker."""

    def __init__(
        self,
        replica: Replica,
        store: MessageStore,
        *,
        slave_read_enable: Callable[[], bool],
        memory_bytes: int,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`memory_bytes` is how much of the log's end is taken to be in memory (accessMessageInMemoryMaxRatio).

        A leader that is `busy` sends away readers of what is in memory, too.
        """
        self._replica = replica
        self._store = store
        self._slave_read_enable = slave_read_enable
        self._memory_bytes = memory_bytes
        self._busy = busy

    def with_whole_record(self, physical_offset: int) -> int | None:
        """The brokerId of a replica that has the record whole that is damaged here; None when none is known to."""
        in_sync = self._replica.in_sync
        if in_sync is None:
            return None if self._replica.leader_address is None else MASTER_ID
        for follower in in_sync.followers.values():
            if follower.in_sync and follower.end_offset > physical_offset:
                return follower.replica_id or self._replica.settings.replica_id
        return None

    def suggest(self, topic: str, queue_id: int, result: GetResult) -> int:
        """The brokerId for the pull after `result`."""
        in_sync = self._replica.in_sync
        if in_sync is None:
            # A slave gives what it has and sends its readers back: the master has it first. When the master is dead
            # clients ignore the suggestion, for its address is not in their route.
            return MASTER_ID
        if not self._slave_read_enable() or not result.count or not in_sync.followers:
            return MASTER_ID
        next_physical_offset = self._store.physical_offset_of(topic, queue_id, result.next_begin_offset)
        if next_physical_offset is None:
            return MASTER_ID
        if self._store.end_offset - next_physical_offset <= self._memory_bytes and not self._busy():
            return MASTER_ID
        for follower in in_sync.followers.values():
            # One byte after the record's start is not the whole record, but followers receive whole records only.
            if follower.in_sync and follower.end_offset > next_physical_offset:
                if follower.replica_id != MASTER_ID:
                    return follower.replica_id
                return self._replica.settings.replica_id  # replica 0 goes by the leader's replica id while it follows
        return MASTER_ID
