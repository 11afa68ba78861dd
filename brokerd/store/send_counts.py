"""What of the log counts as sends, by topic and kind: a pure function of the records, so that anyone can count it again.

The rules, in their order:

- The broker's own records on RMQ_SYS_METERING, RMQ_SYS_METADATA and RMQ_SYS_EPOCH don't count.
- A delayed message counts when it was sent, as "delayed" and under its real topic. Its delivered copy keeps the DELAY property,
  which no other record outside of SCHEDULE_TOPIC_XXXX has above 0, and doesn't count again.
- "transactional": the transaction bits of sysFlag are set, as in the message that a commit puts into its topic.
- "ordered": there is a `__SHARDINGKEY` property. Which queue a producer chose says nothing: all choose one.
- Everything else is "normal". Each message of a batch counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from brokerd.store.record import DispatchRequest, delay_level_of, property_of
from mqwire.metering import UNIT_BYTES, MessageKind, units_of
from mqwire.names import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_SHARDING_KEY,
    RMQ_SYS_EPOCH,
    RMQ_SYS_METADATA,
    RMQ_SYS_METERING,
    RMQ_SYS_SCHEDULE_TOPIC,
)

TRANSACTION_BITS: Final = 0xC  # of sysFlag: MessageSysFlag.TRANSACTION_ROLLBACK_TYPE holds both
SHARDING_KEY_PREFIX: Final = PROPERTY_SHARDING_KEY.encode() + b"\x01"

_REAL_TOPIC_PREFIX: Final = PROPERTY_REAL_TOPIC.encode() + b"\x01"
_SCHEDULE_TOPIC: Final = RMQ_SYS_SCHEDULE_TOPIC.encode()
_OWN_TOPICS: Final = frozenset((RMQ_SYS_METERING.encode(), RMQ_SYS_METADATA.encode(), RMQ_SYS_EPOCH.encode()))


class SendCounts:
    """[messages, body bytes, units] by topic, and by (topic, kind) for other kinds than "normal": sends are mostly that."""

    __slots__ = ("normal", "special")

    def __init__(self) -> None:
        self.normal: dict[str, list[int]] = {}
        self.special: dict[tuple[str, MessageKind], list[int]] = {}

    def add(self, topic: str, kind: MessageKind, messages: int, body_bytes: int, units: int) -> None:
        count = self.normal.get(topic) if kind == "normal" else self.special.get((topic, kind))
        if count is None:
            count = [0, 0, 0]
            if kind == "normal":
                self.normal[topic] = count
            else:
                self.special[topic, kind] = count
        count[0] += messages
        count[1] += body_bytes
        count[2] += units

    def add_special(self, topic: str, sys_flag: int, properties: bytes, body_bytes: int) -> None:
        """One message that may be of another kind than "normal"."""
        topic, kind = _kind_of(topic.encode(), sys_flag, properties)
        self.add(topic, kind, 1, body_bytes, units_of(body_bytes))

    def add_record(self, record: DispatchRequest) -> bool:
        """Count a record that was found in the log; returns whether it counts."""
        topic, properties = record.topic, record.properties
        if topic in _OWN_TOPICS or (topic != _SCHEDULE_TOPIC and delay_level_of(properties) > 0):
            return False
        name, kind = _kind_of(topic, record.sys_flag, properties)
        self.add(name, kind, 1, record.body_bytes, units_of(record.body_bytes))
        return True

    def rows(self) -> Iterator[tuple[str, MessageKind, int, int, int]]:
        """(topic, kind, messages, body bytes, units), without rows of nothing."""
        for topic, (messages, body_bytes, units) in self.normal.items():
            if messages:
                yield topic, "normal", messages, body_bytes, units
        for (topic, kind), (messages, body_bytes, units) in self.special.items():
            if messages:
                yield topic, kind, messages, body_bytes, units

    def clear(self) -> None:
        self.normal.clear()
        self.special.clear()


def extra_units_of(body_bytes: int) -> int:
    """The units of a body of more than one, beyond the first."""
    return (body_bytes - 1) // UNIT_BYTES


def _kind_of(topic: bytes, sys_flag: int, properties: bytes) -> tuple[str, MessageKind]:
    kind: MessageKind = "normal"
    if topic == _SCHEDULE_TOPIC:
        topic = property_of(properties, _REAL_TOPIC_PREFIX) or topic
        kind = "delayed"
    elif sys_flag & TRANSACTION_BITS:
        kind = "transactional"
    elif property_of(properties, SHARDING_KEY_PREFIX):
        kind = "ordered"
    return topic.decode("utf-8", "replace"), kind
