"""The epoch record: the message that begins an epoch, on RMQ_SYS_EPOCH, queue 0 (replication.md, "Words").

A record of type "voters" stands inside an epoch and only changes the voters (voters.py), one of type "mode" changes the
policy (mode_change.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.voters import MemberHistory, Members
from brokerd.store import GetMessageStatus, MessageStore, MessageToStore, RecordDamagedError
from brokerd.store.record import record_spans
from mqwire.errors import RemoteProtocolError
from mqwire.message import StoredMessage, decode_record, topic_bytes_of
from mqwire.mode import Mode
from mqwire.names import RMQ_SYS_EPOCH

EPOCH = "epoch"
VOTERS = "voters"
MODE = "mode"

_TOPIC = RMQ_SYS_EPOCH.encode()
_READ_MESSAGES = 64
_READ_BYTES = 1024 * 1024


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How the leader is decided, and when a send is acknowledged."""

    mode: Mode
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1


@dataclass(frozen=True, slots=True, order=True)
class Lacks:
    """What a leader's log may lack when it begins: `shown`, of the end of another one, which consumers may have read; `an_epoch`,
    all that someone led in, so that consumers may have read others in the place of any of its messages.
    """

    shown: bool = False
    an_epoch: bool = False


LACKS_NOTHING: Final = Lacks()


class EpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The body, JSON. `voters` and `mode` say who counts from here on; modes with an assigned leader write both for the record."""

    type: str = "epoch"
    epoch: int
    leader: int
    voters: list[int] = []
    mode: Mode = Mode.SINGLE
    timestamp_ms: int = 0
    # Where its leader's log ended before: the epoch begins there. In front of the record there may be a BLANK, which is of
    # this epoch too: another log may have messages of the epoch before in its place.
    start_offset: int | None = None
    # Its leader's log may have lacked what consumers had read of the one before.
    may_lack_shown: bool | msgspec.UnsetType = msgspec.UNSET
    lacks_an_epoch: bool | msgspec.UnsetType = msgspec.UNSET
    preferred: int | None = None
    incarnations: dict[int, str] | msgspec.UnsetType = msgspec.UNSET  # of the voters' disks, see voters.py
    in_sync_replicas: int | msgspec.UnsetType = msgspec.UNSET  # of a "mode" record, as the next
    min_in_sync_replicas: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def policy(self) -> Policy:
        return Policy(
            mode=self.mode,
            in_sync_replicas=self.in_sync_replicas or 1,
            min_in_sync_replicas=self.min_in_sync_replicas or 1,
        )

    @property
    def begins_epoch(self) -> bool:
        return self.type == EPOCH

    @property
    def members(self) -> Members | None:
        """Which replicas count from here on; None where the leader is assigned."""
        if self.mode != Mode.DLEDGER:
            return None
        return Members(tuple(sorted(self.voters)), self.preferred, tuple(sorted((self.incarnations or {}).items())))


def epoch_record(
    kind: str,
    epoch: int,
    leader: int,
    members: Members,
    mode: Mode,
    policy: Policy | None,
    start_offset: int | None,
    now_ms: int,
    *,
    lacks: Lacks = LACKS_NOTHING,
) -> EpochRecord:
    """The record of a leader in `mode`; `members` are the voters, or, where the leader is assigned, all replicas."""
    return EpochRecord(
        type=kind,
        epoch=epoch,
        leader=leader,
        voters=list(members.voters),
        mode=mode,
        timestamp_ms=now_ms,
        start_offset=start_offset,
        may_lack_shown=lacks.shown or msgspec.UNSET,
        lacks_an_epoch=lacks.an_epoch or msgspec.UNSET,
        preferred=members.preferred,
        incarnations=dict(members.incarnations) if mode == Mode.DLEDGER else msgspec.UNSET,
        in_sync_replicas=msgspec.UNSET if policy is None else policy.in_sync_replicas,
        min_in_sync_replicas=msgspec.UNSET if policy is None else policy.min_in_sync_replicas,
    )


def epoch_message(record: EpochRecord, store_host: bytes) -> MessageToStore:
    """The message to append; its sender is the broker itself."""
    return MessageToStore(
        RMQ_SYS_EPOCH,
        0,
        0,
        0,
        record.timestamp_ms,
        store_host,
        0,
        0,
        msgspec.json.encode(record),
        b"WAIT\x01true\x02",
        0,
    )


def read_epoch_map(store: MessageStore, remembered: tuple[tuple[int, int], ...]) -> EpochMap:
    """The map of an opened store: from the log's epoch records, in front of them what the epoch file remembers.

    Raises RemoteProtocolError when an epoch record cannot be read: the log is not ours then, or damaged.
    """
    found = [_start(message, record) for message, record in _epoch_records(store) if record.begins_epoch]
    if store.damaged_from is not None:  # some of them may not be readable just now
        known = dict(entry for entry in remembered if entry[1] < store.end_offset) | dict(found)
        return EpochMap(sorted(known.items()))
    first = found[0][1] if found else store.end_offset
    older = [entry for entry in remembered if entry[1] < min(first, store.end_offset)]
    if found:
        older = [entry for entry in older if entry[0] < found[0][0] and entry[1] < store.min_physical_offset]
    return EpochMap([*older, *found])


def read_members(store: MessageStore, configured: Members, remembered: Sequence[tuple[int, Members]]) -> MemberHistory:
    """Which replicas count by an opened store's log; in front of its first record that says so, what the epoch file remembers."""
    found = [(message.physical_offset, record.members) for message, record in _epoch_records(store)]
    named = [(offset, members) for offset, members in found if members is not None]
    if store.damaged_from is not None:  # as for epochs: a record between others may not be readable just now
        known = dict(entry for entry in remembered if entry[0] < store.end_offset) | dict(named)
        return MemberHistory(configured, sorted(known.items()))
    first = named[0][0] if named else store.end_offset
    older = [entry for entry in remembered if entry[0] < first]
    return MemberHistory(configured, [*older, *named])


def epochs_in(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) of the records among `data`, whole ones as a leader sent them, that begin an epoch."""
    return [_start(message, record) for message, record in _records_in(data) if record.begins_epoch]


def losses_in(data: bytes) -> list[tuple[int, Lacks]]:
    """Where epochs begin whose leaders' logs may have lacked what consumers had read, by the records among `data`, and what."""
    found = ((message, record) for message, record in _records_in(data) if record.may_lack_shown is True)
    return [
        (_start(message, record)[1], Lacks(shown=True, an_epoch=record.lacks_an_epoch is True))
        for message, record in found
    ]


def members_in(data: bytes) -> list[tuple[int, Members]]:
    """(offset of the record, the replicas that count) of the records among `data` that say so."""
    found = [(message.physical_offset, record.members) for message, record in _records_in(data)]
    return [(offset, members) for offset, members in found if members is not None]


def modes_in(data: bytes) -> list[tuple[int, int, EpochRecord]]:
    """(where it begins, where it ends, the record) of those among `data` that change the mode."""
    return [_extent(message, record) for message, record in _records_in(data) if record.type == MODE]


def pending_modes(store: MessageStore) -> list[tuple[int, int, EpochRecord]]:
    """Those of an opened store."""
    return [_extent(message, record) for message, record in _epoch_records(store) if record.type == MODE]


def _extent(message: StoredMessage, record: EpochRecord) -> tuple[int, int, EpochRecord]:
    return message.physical_offset, message.physical_offset + message.size_bytes, record


def _records_in(data: bytes) -> list[tuple[StoredMessage, EpochRecord]]:
    if _TOPIC not in data:
        return []
    found: list[tuple[StoredMessage, EpochRecord]] = []
    for position, _ in record_spans(data):
        # Of a message that anyone sent nothing but its topic is looked at: a batch may hold what can't be decoded.
        if topic_bytes_of(data, position) == _TOPIC:
            message = decode_record(data, position)
            found.append((message, _decode(message)))
    return found


def _epoch_records(store: MessageStore) -> Iterator[tuple[StoredMessage, EpochRecord]]:
    offset = store.min_offset(RMQ_SYS_EPOCH, 0)
    while True:
        try:
            result = store.get_messages(RMQ_SYS_EPOCH, 0, offset, _READ_MESSAGES, _READ_BYTES)
        except RecordDamagedError:
            if store.damaged_from is None:
                raise
            offset += 1  # another replica is going to put it right
            continue
        if result.status is not GetMessageStatus.FOUND:
            return
        position = 0
        data = b"".join(result.chunks)
        while position < len(data):
            message = decode_record(data, position)
            yield message, _decode(message)
            position += message.size_bytes
        offset = result.next_begin_offset


def _start(message: StoredMessage, record: EpochRecord) -> tuple[int, int]:
    start_offset = message.physical_offset if record.start_offset is None else record.start_offset
    if not 0 <= start_offset <= message.physical_offset:
        raise RemoteProtocolError(
            f"the epoch record at {message.physical_offset} says that it begins at {start_offset}"
        )
    return record.epoch, start_offset


def _decode(message: StoredMessage) -> EpochRecord:
    try:
        return msgspec.json.decode(message.body, type=EpochRecord)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"the epoch record at {message.physical_offset} cannot be read: {error}") from error
