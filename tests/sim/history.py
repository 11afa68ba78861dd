"""What happened to each message, as seen by an observer that looks into every process: the basis of the verdict.

Raises Violation as soon as something happens that must never happen; the rest is judged at the end (verdict.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from brokerd.replica.epoch_map import EpochMap
from tests.sim.group_offsets import GroupOffsets
from tests.sim.sim_requests import ChangeGroup, ChangeTopic, CommitOffset, ResetOffset


class Violation(BaseException):
    """A promise was broken. It passes through whatever the broker catches, for it is often found in the middle of a step."""


@dataclass(slots=True)
class Attempt:
    """One try to send one message; its body is unlike any other's."""

    number: int
    body: bytes
    queue: int
    delayed: bool = False  # it waits in another topic, and is delivered from there, at least once
    code: str = "no answer"
    queue_offset: int = -1
    topic: str = (
        ""  # one that was made for a while; `queue` is the queue's id in it then, and else its number (wire.py)
    )
    life: int = 0  # of this topic
    asks: int = 1  # how often it was sent: each may be stored
    copies: list[Copy] = field(default_factory=list)  # every append by a leader, of a delayed one where it waits
    acknowledged: list[Copy] = field(default_factory=list)
    due: tuple[tuple[str, int], int] | None = None  # of a delayed one: by which clock, and when in milliseconds
    deliveries: list[Copy] = field(default_factory=list)  # of a delayed one: every append by a leader to its own topic

    @property
    def promised(self) -> Copy:
        """What the client's answer named."""
        return next(copy for copy in reversed(self.acknowledged) if copy.queue_offset == self.queue_offset)


@dataclass(frozen=True, slots=True)
class Copy:
    """Where a leader appended a message."""

    node: str
    epoch: int
    physical_offset: int
    end_offset: int
    queue_offset: int


def is_in_log(copy: Copy, epochs: EpochMap, end_offset: int) -> bool:
    """Whether a log with these epochs has the record."""
    return epochs.contains(copy.epoch) and copy.end_offset <= epochs.end_of(copy.epoch, end_offset)


def common_end(epochs: EpochMap, end_offset: int, others_epochs: EpochMap, others_end_offset: int) -> int:
    """Up to where two logs of one group are the same."""
    epoch = max(one for one in (0, *(entry.epoch for entry in epochs.entries)) if others_epochs.contains(one))
    ends = (epochs.end_of(epoch, end_offset), others_epochs.end_of(epoch, others_end_offset))
    return min(*ends, end_offset, others_end_offset)


@dataclass(frozen=True, slots=True)
class LostRange:
    """A log of the past, of which a range is gone for a reason that may cost messages and was reported.

    An unclean promotion: everything that the candidate's log does not hold. A power cut with ASYNC_FLUSH: what the disk lost, and
    no replica kept that has to (docs/guarantees.md).
    """

    why: str
    epochs: EpochMap
    end_offset: int
    below_epoch: int  # an unclean promotion: records of older epochs only
    lost_from: int | None  # a power cut: this log's records from here on

    def explains(self, copy: Copy) -> bool:
        held = is_in_log(copy, self.epochs, self.end_offset)
        if self.lost_from is None:
            return copy.epoch < self.below_epoch and not held
        return held and copy.end_offset > self.lost_from


@dataclass(slots=True)
class Seen:
    """A message that a reader was shown, where it was, and whether enough replicas held it."""

    attempt: int
    copy: Copy
    safe: bool


@dataclass(slots=True)
class MadeTopic:
    """One that an administrator makes, deletes with messages in it, and makes again."""

    exists: bool | None = None  # None: its last change was not answered, and may be done yet
    copy: Copy | None = None  # what the last answered change survives with
    lives: int = 0  # how often it was made
    queues: int | None = None  # that may be read, by the last change; None: that was not answered, and may be done yet
    limits: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)  # by life: bytes and hours kept
    made: dict[int, Copy] = field(
        default_factory=dict
    )  # by life, each with what it survives with; an update says no limit
    deletions: dict[int, Copy] = field(default_factory=dict)  # the same
    grew_at_s: float = -inf  # when a leader last appended a message to it


@dataclass(slots=True)
class MadeGroup:
    """A consumer group; `retries` is what it was given as retryMaxTimes; None: it was deleted."""

    retries: int | None = None
    is_known: bool = True  # the last change was answered; else it may be done yet
    copy: Copy | None = None  # what the last answered change survives with


class History:
    """The observer."""

    def __init__(self, *, mode: str, in_sync_replicas: int) -> None:
        self.mode = mode
        self.in_sync_replicas = in_sync_replicas
        self.attempts: list[Attempt] = []
        self.by_body: dict[bytes, Attempt] = {}
        self.at: dict[tuple[int, int], list[Attempt]] = {}  # by queue and offset, what leaders have appended there
        self._delivered: frozenset[int] = frozenset()  # as `note_delivered` saw it
        self._not_again: frozenset[int] = frozenset()  # of messages that no leader may deliver from now on
        self._each_once = False  # none is delivered again from now on
        self.lost_ranges: list[LostRange] = []
        self.counts: Counter[str] = Counter()
        self.holders: Callable[[Copy], list[str]] = lambda copy: []  # whose disks hold a record, whatever they say
        # Of each replica: its log, with what is in memory only.
        self.logs: Callable[[], dict[str, tuple[EpochMap, int]]] = dict
        # By the newest leader: which replicas must all have lost a record before it may be lost; None: a majority of the voters.
        self._keepers: frozenset[str] | None = frozenset()
        self._keepers_epoch = 0
        self._taken: list[tuple[str, LostRange]] = []  # what each power cut took from one replica's memory
        self.seen: dict[tuple[int, int, int], Seen] = {}  # by queue, offset, attempt
        self.contents: dict[tuple[int, int], bytes] = {}  # (epoch, offset) -> the record that a leader appended there
        self.clean_promotions: set[tuple[str, int]] = set()  # (replica, epoch) of those that were asked for as such
        self.fenced_promotions: set[tuple[str, int]] = set()  # those before which everyone older was fenced
        self._led_after_fence = 0  # the newest epoch of such a one
        self.sends_back = False  # some leader's log was in doubt: groups were reset to what they had committed
        self.expired_below = 0  # up to there some replica's retention has deleted the log
        self.consumed: set[bytes] = set()  # by the consumer that commits and resumes
        self.offsets = GroupOffsets(lambda copy: self.may_be_lost(copy))
        self.queue_ends: dict[int, int] = {}  # by queue, up to where a sender knows of messages
        self.made_topics: dict[str, MadeTopic] = {}
        self.made_groups: dict[str, MadeGroup] = {}
        self._leaders: dict[int, str] = {}
        self._reported_epochs: dict[str, int] = {}
        self.latest_ms = 0  # by any machine's clock at any time
        self.newest_epoch = 0  # that any process has reported
        self._acknowledged_in: dict[int, str] = {}
        self._confirmed: dict[tuple[str, int], int] = {}
        # (epoch of the record, its offset) of everything that a leader has confirmed; value: by enough replicas.
        self.confirmed_records: dict[tuple[int, int], bool] = {}

    # --- clients

    def sending(self, queue: int, body: bytes, *, delayed: bool = False, topic: str = "", life: int = 0) -> Attempt:
        attempt = Attempt(len(self.attempts), body, queue, delayed, topic=topic, life=life)
        self.attempts.append(attempt)
        self.by_body[body] = attempt
        return attempt

    def answered(self, attempt: int, code: str, queue_offset: int) -> None:
        """The client got (or gave up on) its answer."""
        one = self.attempts[attempt]
        one.code, one.queue_offset = code, queue_offset
        if code == "SEND_OK" and not one.delayed and not one.topic:
            self.queue_ends[one.queue] = max(queue_offset + 1, self.queue_ends.get(one.queue, 0))
        self.counts[code] += 1

    def changed(self, request: CommitOffset | ResetOffset | ChangeTopic | ChangeGroup, copy: Copy) -> None:
        """A broker answers that the change is done. Its record is not after `copy`, the last one that is confirmed there: who
        has that has the change."""
        if isinstance(request, CommitOffset | ResetOffset):
            self.counts["commits" if isinstance(request, CommitOffset) else "resets of offsets"] += 1
            self.offsets.done(request.change, copy)
        elif isinstance(request, ChangeGroup):
            self.made_groups[request.group] = MadeGroup(request.retries, True, copy)
            self.counts["changes of groups"] += 1
        else:
            topic = self.made_topics[request.topic]
            topic.copy = copy
            if request.exists:
                topic.queues = request.queues
            if request.updates:
                self.counts["updates of topics"] += 1
                return
            topic.exists = request.exists
            if request.exists:
                topic.lives += 1
                topic.made[topic.lives] = copy
                topic.limits[topic.lives] = request.kept_bytes, request.kept_hours
                self.counts["topics made again"] += topic.lives > 1
            else:
                topic.deletions[topic.lives] = copy
            self.counts["changes of topics"] += 1

    def refused(self, request: ResetOffset | ChangeTopic | ChangeGroup) -> None:
        """A broker answers that nothing has changed."""
        if isinstance(request, ResetOffset):
            self.offsets.over(request.change)
        elif isinstance(request, ChangeGroup):
            self.made_groups[request.group].is_known = True
        elif not request.updates:
            self.made_topics[request.topic].exists = not request.exists

    def count_changes(self) -> None:
        """Count how many answered changes are judged at the end, and how many may be lost."""
        copies = [change.copy for change in self.offsets.answered() if change.copy is not None]
        copies += [
            topic.copy for topic in self.made_topics.values() if topic.exists is not None and topic.copy is not None
        ]
        copies += [group.copy for group in self.made_groups.values() if group.is_known and group.copy is not None]
        lost = sum(map(self.may_be_lost, copies))
        self.counts["answered changes judged"] += len(copies) - lost
        self.counts["answered changes that may be lost"] += lost

    # --- brokers

    def appended(self, attempt: Attempt, queue: int, copy: Copy) -> None:
        """A leader appended it to a queue that clients read."""
        self.at.setdefault((queue, copy.queue_offset), []).append(attempt)
        if attempt.delayed:
            self.counts["deliveries of delayed messages"] += 1
            attempt.deliveries.append(copy)
            if attempt.number in self._not_again or (self._each_once and len(attempt.deliveries) > len(attempt.copies)):
                raise Violation(
                    f"{copy.node} delivers message {attempt.number} again, though all is well, and it was delivered at"
                    f" {attempt.deliveries[0]}"
                )

    def note_delivered(self) -> None:
        """All is well."""
        self._delivered = frozenset(attempt.number for attempt in self.attempts if attempt.deliveries)

    def another_is_to_lead(self, *, planned: bool) -> None:
        """And all is well, for a while: each replica knows what had been delivered when that was noted, and where it is planned
        also what is delivered from then on: the leader hands it over.
        """
        self._not_again = self._delivered
        self._each_once = planned

    def acknowledged(self, epoch: int, node: str, copy: Copy) -> None:
        """A broker said SEND_OK: enough disks must hold the record now, or must have been allowed to lose it."""
        self._check_not_deposed(epoch, node, copy)
        holders = self.holders(copy)
        # Memory that a power cut took after the report counts by it.
        reported = {*holders, *self.lost_by(copy)}
        if len(reported) < self.in_sync_replicas and not self.may_be_gone(copy):
            raise Violation(f"{node} acknowledged {copy} when only {holders} held it")
        other = self._acknowledged_in.setdefault(epoch, node)
        if other != node:
            raise Violation(f"epoch {epoch}: both {other} and {node} acknowledged")

    def _check_not_deposed(self, epoch: int, node: str, copy: Copy) -> None:
        """Nor may a fenced leader acknowledge what was not reported to the operator who promoted another."""
        if epoch < self._led_after_fence and self.may_be_lost(copy):
            raise Violation(f"{node} acknowledged {copy}, and epoch {self._led_after_fence} has begun without it")

    def led_after_fence(self, node: str, epoch: int) -> None:
        """A promotion was taken."""
        if (node, epoch) in self.fenced_promotions:
            self._led_after_fence = max(self._led_after_fence, epoch)

    def reported_epoch(self, node: str, epoch: int) -> None:
        """A process may have reported its epoch, by an answer or as a promise: no later one of that machine may know less."""
        before = self._reported_epochs.get(node, 0)
        if epoch < before:
            raise Violation(f"{node} has forgotten epoch {before}: it is in epoch {epoch}")
        self._reported_epochs[node] = epoch
        self.newest_epoch = max(self.newest_epoch, epoch)

    def disk_replaced(self, node: str) -> None:
        """A new disk knows nothing."""
        self.counts["new disks"] += 1
        self._reported_epochs.pop(node, None)

    def promoted(self, node: str, expected_epoch: int, epoch_before: int) -> None:
        """A promotion was accepted."""
        if expected_epoch != epoch_before:
            raise Violation(
                f"{node} was promoted from epoch {epoch_before} by a promotion that expected {expected_epoch}"
            )

    def is_clean(self, node: str, epoch: int) -> bool:
        """Whether this promotion was requested as one that loses nothing."""
        return (node, epoch) in self.clean_promotions

    def granted(self, node: str, own_log: tuple[int, int], others_log: tuple[int, int]) -> None:
        """A replica agreed that a restarted leader leads; both logs as (last epoch, end offset)."""
        if others_log < own_log:
            raise Violation(f"{node} holds {own_log} and agreed that a replica leads that holds {others_log}")

    def leads(self, epoch: int, process: str) -> None:
        """A process leads in that epoch. A restarted one is another process."""
        other = self._leaders.setdefault(epoch, process)
        if other != process:
            raise Violation(f"epoch {epoch}: both {other} and {process} led")

    @property
    def last_leader(self) -> str | None:
        """The machine that leads in the newest epoch, or led in it; None before the first."""
        return self._leaders[max(self._leaders)].partition("#")[0] if self._leaders else None

    def confirm_offset(self, node: str, epoch: int, offset: int) -> None:
        """A leader's confirmOffset is that now."""
        before = self._confirmed.get((node, epoch), 0)
        if offset < before:
            raise Violation(f"epoch {epoch}: confirmOffset of {node} fell from {before} to {offset}")
        self._confirmed[(node, epoch)] = offset

    def read(self, node: str, attempt: Attempt, queue_offset: int, epoch: int, start: int, end: int) -> None:
        """A reader was shown a message."""
        confirmed = self.confirmed_records.get((epoch, start))
        if confirmed is None and end <= self.expired_below:
            confirmed = False  # the leader deleted it in front of its observer
        if confirmed is None:
            raise Violation(f"{node} showed message {attempt.number} at {start} before any leader had confirmed it")
        key = (attempt.queue, queue_offset, attempt.number)
        seen = self.seen.get(key)
        if seen is None:
            self.seen[key] = Seen(attempt.number, Copy(node, epoch, start, end, queue_offset), confirmed)
            self.counts["read"] += 1

    def check_offset(self, node: str, queue: int, offset: int, *, asked_at: float = inf) -> None:
        """A group's offset, which someone asked for at that moment, may not have fallen but by a reset, nor risen after one but
        by later commits.
        """
        least, most = self.offsets.least(queue, asked_at), self.offsets.most(queue, asked_at)
        if least is not None and offset < least:
            raise Violation(
                f"the offset of queue {queue} is {offset} on {node}, and {least} was committed, or reset to"
            )
        if offset > most:
            raise Violation(
                f"the offset of queue {queue} is {offset} on {node}; it was reset, and {most} is the most since"
            )

    def sent_back(self, queue: int, asked: int, moved_to: int, *, newest: bool) -> None:
        """A consumer that asked for the messages from one offset on is sent to another by the answer that leaves just now. A
        leader of the past may know less than what was committed at the newest one.
        """
        may_be_sent = self.has_losses or self.sends_back or self.offsets.was_reset_to(queue, moved_to)
        least = (self.offsets.least(queue) or 0) if newest else 0
        if moved_to < asked and (not may_be_sent or moved_to < least):
            raise Violation(f"a consumer of queue {queue} was sent back from {asked} to {moved_to}")
        if (
            newest
            and moved_to < asked
            and self.offsets.least(queue) is not None
            and not self.offsets.was_reset_to(queue, moved_to)
        ):
            # It has read a log's lost end: from where its group has committed there may be other messages than it has read.
            for attempt in self._there(queue, range(int(self.offsets.most(queue)), moved_to)):
                if attempt.body not in self.consumed:
                    raise Violation(
                        f"a consumer of queue {queue} was sent back from {asked} to {moved_to}, and past message {attempt.number}"
                    )

    def _there(self, queue: int, offsets: range) -> Iterator[Attempt]:
        """What was acknowledged at these offsets, and may not be gone."""
        for offset in offsets:
            for attempt in self.at.get((queue, offset), ()):
                is_there = attempt.code == "SEND_OK" and not attempt.delayed and attempt.queue_offset == offset
                if is_there and not self.may_be_gone(attempt.promised):
                    yield attempt

    def sent_on(self, queue: int, asked: int, moved_to: int, *, commits: bool = False) -> None:
        """A client that asked for the messages from one offset on is sent to a later one, and by no reset that stands: past what is
        gone, or, of the group that `commits`, past what it has consumed, or a reset passed over, and was sent back from by a
        reset that is lost.
        """
        for attempt in self._there(queue, range(asked, moved_to)):
            if commits and (attempt.body in self.consumed or self.offsets.may_be_skipped(queue, attempt.queue_offset)):
                continue
            raise Violation(
                f"a client of queue {queue} was sent from {asked} on to {moved_to}, past message {attempt.number}"
            )

    # --- what may be lost

    def unclean_promotion(self, new_epoch: int, epochs: EpochMap, end_offset: int) -> None:
        """An operator promoted a replica that may lack something, and was warned."""
        self.counts["unclean promotions"] += 1
        self.lost_ranges.append(LostRange("unclean promotion", EpochMap(epochs.entries), end_offset, new_epoch, None))

    def keeps(self, epoch: int, nodes: frozenset[str] | None) -> None:
        """By this leader's mode nothing may be lost with ASYNC_FLUSH as long as one of these keeps its memory: mode sync promises
        that of the replicas in sync, single and async only of the leader, dledger of a majority, which is None
        (docs/guarantees.md).
        """
        if epoch >= self._keepers_epoch:
            self._keepers_epoch, self._keepers = epoch, nodes

    def power_cut(self, node: str, epochs: EpochMap, end_offset: int, left_until: int) -> None:
        """A disk forgot what was not synced, with ASYNC_FLUSH: what no other replica keeps that has to may be lost."""
        self._take_memory(node, epochs, end_offset, left_until)
        logs, keepers = self.logs(), self._keepers or ()
        kept = [logs[other] for other in keepers if other != node and other in logs]
        self.counts["power cuts that may lose messages"] += self._lose(self._taken[-1][1], kept)

    def _lose(self, taken: LostRange, kept: Iterable[tuple[EpochMap, int]]) -> bool:
        """What was taken from one log, and none of these has, may be lost; returns whether that is anything."""
        assert taken.lost_from is not None, "it is no unclean promotion"
        common = (common_end(taken.epochs, taken.end_offset, *log) for log in kept)
        lost_from = max(taken.lost_from, *common, 0)
        if lost_from < taken.end_offset:
            self.lost_ranges.append(replace(taken, lost_from=lost_from))
        return lost_from < taken.end_offset

    def disk_lost(
        self,
        node: str,
        epochs: EpochMap,
        end_offset: int,
        others: dict[str, tuple[EpochMap, int]],
        *,
        led: bool,
        memory_counts: bool,
    ) -> None:
        """A disk is gone: what it had reported counts. Where the leader is enough for an acknowledgement, what only its disk had
        may be lost. Elsewhere one disk costs nothing, but with ASYNC_FLUSH power cuts may have taken the rest from memory before.
        """
        taken = LostRange("lost disk", EpochMap(epochs.entries), end_offset, 0, 0)
        self._taken.append((node, taken))
        if self.in_sync_replicas == 1:
            kept = list(others.values()) if led else None
        else:
            kept = [log for name, log in others.items() if name in (self._keepers or ())] if memory_counts else None
        if kept is not None:
            self.counts["lost disks that may lose messages"] += self._lose(taken, kept)

    def _take_memory(self, node: str, epochs: EpochMap, end_offset: int, left_until: int) -> None:
        self.counts["power cuts that took memory"] += left_until < end_offset
        self._taken.append((node, LostRange("power cut", EpochMap(epochs.entries), end_offset, 0, left_until)))

    def lost_by(self, copy: Copy) -> set[str]:
        """Whose power was cut while it held this in memory only."""
        return {node for node, lost in self._taken if lost.explains(copy)}

    def expired(self, min_offset: int) -> None:
        """Retention has deleted what a log held below that offset."""
        self.counts["logs that retention shortened"] += 1
        self.expired_below = max(self.expired_below, min_offset)

    def may_be_gone(self, copy: Copy) -> bool:
        """Whether it may be lost, or was old enough to be deleted."""
        return copy.end_offset <= self.expired_below or self.may_be_lost(copy)

    @property
    def has_losses(self) -> bool:
        """Whether anything may be lost at all."""
        return bool(self.lost_ranges)

    def may_be_lost(self, copy: Copy) -> bool:
        return any(lost.explains(copy) for lost in self.lost_ranges)
