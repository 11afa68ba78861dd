"""What must be true of a disturbed group's whole history. Pure: it is given what clients noted and what is there in the end.

- What was acknowledged is there once, at the offset that was answered.
- A group that commits and resumes has seen every acknowledged message below what it has committed.
- No committed offset falls: anyone who asks after a commit was answered gets that offset or a higher one. So it is with an offset
  that a leader answered while it could have others hold it.
- No consumer is sent back: no pull, whatever its code, is answered with a lower offset than it asked for, and no push consumer
  goes back by itself. Where messages may be lost that were shown (decisions.md, 13), it is moved with PULL_OFFSET_MOVED, and to no
  offset below what its group had committed. A leader that says that they may be lost has a reason: something that can lose them.
- Every topic and consumer group whose making or deletion was answered is so on every replica; the replicas' logs are the same,
  byte for byte.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mqwire.codes import ResponseCode

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
    """An offset that was asked for at `asked_s`, and answered at `answered_s`; None: the group has none.

    `held`: the replica led, with as many in sync as it needs, both before and after it answered. A follower that has lost its
    leader also answers what it was sent meanwhile, and no one else may have that.
    """

    group: str
    queue: Queue
    offset: int | None
    asked_s: float
    answered_s: float
    replica: int
    held: bool = False


@dataclass(frozen=True, slots=True)
class SentBack:
    """A pull of `asked`, at `asked_s`, was answered with the lower `answered`."""

    group: str
    queue: Queue
    asked: int
    answered: int
    asked_s: float
    replica: int
    code: int


@dataclass(frozen=True, slots=True)
class WentBack:
    """A push consumer that was done up to `finished` goes on from the lower `offset`, whichever broker told it to."""

    group: str
    queue: Queue
    finished: int
    offset: int
    at_s: float


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
    went_back: list[WentBack] = field(default_factory=list)
    may_have_lost: list[str] = field(default_factory=list)  # what happened that may cost a leader the end of its log
    # Whether it was made, or deleted, by the last answer; without those whose last change was not answered.
    made: dict[tuple[Table, str], bool] = field(default_factory=dict)
    consumers: int = 0  # how many push consumers, one after the other
    seen: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # group -> the keys that it got


@dataclass(frozen=True)
class End:
    """What is there when all is quiet; what could not be read is left out, and not judged."""

    content: Mapping[Queue, Sequence[str]] | None = None  # keys, from offset 0 on
    tables: Mapping[int, Mapping[Table, frozenset[str]]] = field(default_factory=dict)  # by replica
    logs: Mapping[int, str] = field(default_factory=dict)  # a digest of each replica's log, as far as all go
    losses: Sequence[int] = ()  # where leaders began that may have lacked what was shown, in bytes of the log


def violations(history: History, end: End) -> list[str]:
    """What is wrong; empty when all is well."""
    promises = _Promises(history)
    return [
        *([] if end.content is None else _messages(history, end.content)),
        *_readers(history),
        *_offsets(history, promises),
        *_sent_back(history, end, promises),
        *_went_back(history, end, promises),
        *_losses(history, end),
        *_tables(history, end),
        *_logs(end),
    ]


class _Promises:
    """Offsets of groups that may not fall any more: committed, or answered by a leader."""

    def __init__(self, history: History) -> None:
        said: dict[tuple[str, Queue], list[tuple[float, int, str]]] = defaultdict(list)
        for commit in history.committed:
            said[commit.group, commit.queue].append((commit.answered_s, commit.offset, "had committed"))
        for answer in history.offset_answers:
            if answer.held and answer.offset:  # 0 is also what a group without an offset is answered, of a young topic
                said[answer.group, answer.queue].append((answer.answered_s, answer.offset, "had been answered"))
        self._times: dict[tuple[str, Queue], list[float]] = {}
        self._highest: dict[tuple[str, Queue], list[tuple[int, str]]] = {}
        for key, promises in said.items():
            promises.sort()
            self._times[key] = [at_s for at_s, _, _ in promises]
            highest = [promises[0][1:]]
            for _, offset, how in promises[1:]:
                highest.append((offset, how) if offset > highest[-1][0] else highest[-1])
            self._highest[key] = highest

    def before(self, group: str, queue: Queue, at_s: float) -> tuple[int, str] | None:
        """The highest offset that was promised before, and how; None when none was."""
        count = bisect_left(self._times.get((group, queue), ()), at_s)
        return self._highest[group, queue][count - 1] if count else None


def _messages(history: History, content: Mapping[Queue, Sequence[str]]) -> list[str]:
    places: dict[str, list[Place]] = defaultdict(list)
    for queue, keys in content.items():
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


def _offsets(history: History, promises: _Promises) -> list[str]:
    found = []
    for answer in history.offset_answers:
        promise = promises.before(answer.group, answer.queue, answer.asked_s)
        if promise is not None and (answer.offset is None or answer.offset < promise[0]):
            found.append(
                f"group {answer.group} {promise[1]} {promise[0]} in queue {answer.queue}; replica {answer.replica} answered"
                f" {answer.offset}"
            )
    return found


def _sent_back(history: History, end: End, promises: _Promises) -> list[str]:
    found = []
    for one in history.sent_back:
        moved = f"{one.asked} -> {one.answered}"
        if not end.losses or one.code != ResponseCode.PULL_OFFSET_MOVED:
            by = f" by {_name(one.code)}"
        else:
            by = _below(promises.before(one.group, one.queue, one.asked_s), one.answered)
        if by:
            found.append(f"replica {one.replica} sent group {one.group} back in queue {one.queue}: {moved}{by}")
    return found


def _went_back(history: History, end: End, promises: _Promises) -> list[str]:
    found = []
    for one in history.went_back:
        below = _below(promises.before(one.group, one.queue, one.at_s), one.offset)
        if below or not end.losses:
            found.append(
                f"a consumer of group {one.group} went back in queue {one.queue}: {one.finished} -> {one.offset}{below}"
            )
    return found


def _below(promise: tuple[int, str] | None, offset: int) -> str:
    """How an offset breaks a promise; empty where it does not."""
    return f"; it {promise[1]} {promise[0]}" if promise is not None and offset < promise[0] else ""


def _losses(history: History, end: End) -> list[str]:
    if not end.losses or history.may_have_lost:
        return []
    return [
        f"a leader says that messages which were shown may be lost, from {end.losses} on, and nothing can have lost any"
    ]


def _name(code: int) -> str:
    try:
        return ResponseCode(code).name
    except ValueError:
        return f"code {code}"


def _tables(history: History, end: End) -> list[str]:
    return [
        f"{table} {name} was made, and replica {number} does not have it"
        if is_made
        else f"{table} {name} was deleted, and replica {number} has it"
        for number, there in end.tables.items()
        for (table, name), is_made in history.made.items()
        if (name in there[table]) is not is_made
    ]


def _logs(end: End) -> list[str]:
    if len(set(end.logs.values())) <= 1:
        return []
    return [f"the replicas' logs differ: {', '.join(f'{number} {digest}' for number, digest in end.logs.items())}"]
