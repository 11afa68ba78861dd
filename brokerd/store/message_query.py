"""Messages by key, from the index and the log together: the index offers places, the record there decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerd.store.get_message import MessageReader
from brokerd.store.index_format import keys_of
from brokerd.store.index_service import IndexService
from brokerd.store.topic_tombstones import TopicTombstones

_ANSWER_MAX_BYTES = 15 * 1024 * 1024  # stock clients take frames of 16 MiB at most
# Read for one query, matches or not: some ten milliseconds. Of one hash a client may have stored any number of large messages.
QUERY_READ_MAX_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What the index knew. `records` in the log's order; times and offsets are those of the last record with a key."""

    records: list[bytes]
    index_last_update_timestamp_ms: int
    index_last_update_physical_offset: int
    lag_bytes: int  # what readers may see already and the index has not read yet
    is_given_up: bool = False  # QUERY_READ_MAX_BYTES were read, and older candidates not looked at


class MessageQueries:
    """Main thread only."""

    def __init__(self, index: IndexService, reader: MessageReader, tombstones: TopicTombstones) -> None:
        self._index = index
        self._reader = reader
        self._tombstones = tombstones
        self._left_bytes = 0  # of what the query under way may read

    def query(
        self, topic: str, key: str, count_max: int, begin_ms: int, end_ms: int, *, unique: bool = False
    ) -> QueryResult:
        """The newest messages of a topic with this key or UNIQ_KEY (`unique`: UNIQ_KEY only), stored between the times.

        Only what is indexed by now: see lag_bytes. At most `count_max`, and 15 MiB of them, but one at least. Others of the
        same hash, records that retention or a truncation has taken, and a deleted topic's are not among them; but they are
        read too, and after 32 MiB of all it looks no further. Raises OSError.
        """
        self._left_bytes = QUERY_READ_MAX_BYTES
        records: list[bytes] = []
        total = 0
        for record in self._matching(topic, key, begin_ms, end_ms, unique) if count_max > 0 else ():
            if records and total + len(record) > _ANSWER_MAX_BYTES:
                break
            records.append(record)
            total += len(record)
            if len(records) == count_max:
                break
        records.reverse()
        timestamp_ms, offset = self._index.last_update
        lag_bytes = max(0, self._reader.bound - self._index.indexed_until)
        return QueryResult(records, timestamp_ms, offset, lag_bytes, self._left_bytes <= 0)

    def _matching(self, topic: str, key: str, begin_ms: int, end_ms: int, unique: bool) -> Iterator[bytes]:
        tombstone = self._tombstones.get(topic)
        floor = 0 if tombstone is None else tombstone.physical_offset
        topic_bytes, key_bytes = topic.encode(), key.encode()
        for offset in self._index.candidates(topic, key, begin_ms, end_ms):
            if offset < floor or self._left_bytes <= 0:
                return
            record, data = self._reader.record_at(offset)
            self._left_bytes -= len(data)
            if record is None or record.topic != topic_bytes or not self._reader.is_readable(record):
                continue
            if not begin_ms <= record.store_timestamp_ms <= end_ms or not self._reader.is_indexed(offset):
                continue
            unique_key, keys = keys_of(record.properties)
            if key_bytes == unique_key or (not unique and key_bytes in keys):
                yield data
