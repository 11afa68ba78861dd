"""What must be true of a disturbed group's whole history. Pure: it is given what clients noted and what is there in the end.

- What was acknowledged is there once, at the offset that was answered.
- A group that commits and resumes has seen every acknowledged message below what it has committed.
- No committed offset falls: anyone who asks after a commit was answered gets that offset or a higher one.
- No consumer is sent back: no pull is answered with PULL_OFFSET_MOVED to a lower offset, for no one resets one.
- Every topic and consumer group whose making or deletion was answered is so on every replica; the replicas' logs are the same,
  byte for byte.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Queue = int
Place = tuple[Queue, int]  # queue, offset


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """SEND_OK for a message with this key."""

    key: str
    queue: Queue
    offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was answered with SUCCESS at `answered_s`."""

    group: str
    queue: Queue
    offset: int
    answered_s: float


@dataclass(frozen=True, slots=True)
class OffsetAnswer:
    """An offset that was asked for at `asked_s`; None: the group has none."""

    group: str
    queue: Queue
    offset: int | None
    asked_s: float
    replica: int


@dataclass(frozen=True, slots=True)
class SentBack:
    """A pull of `asked` was answered with PULL_OFFSET_MOVED to the lower `answered`."""

    group: str
    queue: Queue
    asked: int
    answered: int
    replica: int


class Table(enum.StrEnum):
    """What an administrator makes and deletes."""

    TOPIC = "topic"
    GROUP = "group"


@dataclass
class History:
    """What clients noted; each list is appended to by several threads."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    offset_answers: list[OffsetAnswer] = field(default_factory=list)
    sent_back: list[SentBack] = field(default_factory=list)
    # Whether it was made, or deleted, by the last answer; without those whose last change was not answered.
    made: dict[tuple[Table, str], bool] = field(default_factory=dict)
    consumers: int = 0  # how many push consumers, one after the other
    seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # group -> the keys that it got


@dataclass(frozen=True)
class End:
    """What is there when all is quiet."""

    content: Mapping[Queue, Sequence[str]]  # keys, from offset 0 on
    tables: Sequence[Mapping[Table, frozenset[str]]]  # of each replica
    logs: Sequence[str]  # a digest of each replica's log, as far as all go


def violations(history: History, end: End) -> list[str]:
    """What is wrong; empty when all is well."""
    return [
        *_messages(history, end),
        *_readers(history),
        *_offsets(history),
        *(
            f"replica {one.replica} sent group {one.group} back in queue {one.queue}: {one.asked} -> {one.answered}"
            for one in history.sent_back
        ),
        *_tables(history, end),
        *([] if len(set(end.logs)) <= 1 else [f"the replicas' logs differ: {', '.join(end.logs)}"]),
    ]


def _messages(history: History, end: End) -> list[str]:
    places: dict[str, list[Place]] = defaultdict(list)
    for queue, keys in end.content.items():
        for offset, key in enumerate(keys):
            places[key].append((queue, offset))
    found = [f"{key} is stored {len(there)} times: {there}" for key, there in places.items() if len(there) > 1]
    for one in history.acknowledged:
        if (one.queue, one.offset) not in places[one.key]:
            found.append(f"{one.key} was acknowledged at {one.queue}/{one.offset} and is at {places[one.key]}")
    return found


def _readers(history: History) -> list[str]:
    reached: dict[tuple[str, Queue], int] = defaultdict(int)
    for one in history.committed:
        reached[one.group, one.queue] = max(reached[one.group, one.queue], one.offset)
    found = []
    for (group, queue), offset in reached.items():
        seen = history.seen[group]
        missed = [
            one.key
            for one in history.acknowledged
            if one.queue == queue and one.offset < offset and one.key not in seen
        ]
        if missed:
            found.append(f"group {group} committed {offset} in queue {queue} and never saw {len(missed)}: {missed[:5]}")
    return found


def _offsets(history: History) -> list[str]:
    found = []
    by_queue: dict[tuple[str, Queue], list[Committed]] = defaultdict(list)
    for one in history.committed:
        by_queue[one.group, one.queue].append(one)
    for answer in history.offset_answers:
        commits = by_queue[answer.group, answer.queue]
        promised = max((one.offset for one in commits if one.answered_s < answer.asked_s), default=None)
        if promised is not None and (answer.offset is None or answer.offset < promised):
            found.append(
                f"group {answer.group} had committed {promised} in queue {answer.queue}; replica {answer.replica} answered"
                f" {answer.offset}"
            )
    return found


def _tables(history: History, end: End) -> list[str]:
    return [
        f"{table} {name} was made, and replica {number} does not have it"
        if is_made
        else f"{table} {name} was deleted, and replica {number} has it"
        for number, there in enumerate(end.tables)
        for (table, name), is_made in history.made.items()
        if (name in there[table]) is not is_made
    ]
