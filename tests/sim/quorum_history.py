"""What an observer that looks into every process of a quorum-led group judges at once. The end is judged by verdict.py.

one vote and one leader in each epoch           the Raft paper, section 5.2 (Election Safety)
a leader holds what older epochs committed      section 5.4.3 (Leader Completeness)
committed prefixes are one and the same         section 5.4.3 (State Machine Safety)
committed is what a majority's disks hold       section 5.3, with what the flush type calls held
only by a record of the leader's own epoch      section 5.4.2
nothing below the own confirmOffset is cut      replication.md, "Pull"
no one leads whom no majority pulls             replication.md, "Check quorum"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from brokerd.replica.epoch_map import EpochMap
from tests.sim.history import Attempt, Copy, History, Seen, Violation


class Record(NamedTuple):
    """A record of one replica's log."""

    start: int
    end: int
    epoch: int
    crc: int


def _copy(node: str, record: Record) -> Copy:
    return Copy(node, record.epoch, record.start, record.end, -1)


class ElectingHistory(History):
    """Of a group whose replicas vote: one vote of each in an epoch."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode=mode, in_sync_replicas=1)
        self.on_vote: Callable[[str], None] = lambda node: None
        self.committed_end = 0
        self.refused_by_leaders = 0
        self.trusting: set[str] = set()
        # Kept also where a disk is replaced: it must not vote before it has caught up, and then in a later epoch only.
        self._votes: dict[tuple[str, int], int] = {}

    def voted(self, node: str, epoch: int, candidate: int) -> None:
        """A vote has left, or the candidate's own has been counted."""
        if (node, epoch) not in self._votes:
            self.on_vote(node)
        other = self._votes.setdefault((node, epoch), candidate)
        if other != candidate:
            raise Violation(f"epoch {epoch}: {node} voted for both replica {other} and replica {candidate}")


class QuorumHistory(ElectingHistory):
    """See the module. With SYNC_FLUSH nothing may ever be lost.

    With ASYNC_FLUSH what was acknowledged may be lost when the power of a majority was cut before these had synced it, or of one
    that was then without a leader for so long that it took its log for whole (brokerd/README.md, "Groups that elect").
    """

    def __init__(self) -> None:
        super().__init__(mode="dledger")
        self.lacking_majority: Callable[[str, Copy], str | None] = lambda node, copy: None
        self.committed: dict[int, Record] = {}  # by offset
        self._committed_ends: dict[int, int] = {}  # epoch -> up to where its leader has committed
        self.shown: dict[tuple[int, int], int] = {}  # (queue, offset) -> message
        self.least_majority: Callable[[], int] = lambda: 0
        self.given_up_from: int | None = None  # the lowest place from which on a leader lacked what may be lost

    def elected(self, node: str, epoch: int, records: Iterable[Record], end_offset: int) -> None:
        """A process begins to lead: it must have all that older epochs committed.

        One that slept since it was voted for may begin when a later epoch has committed more; no one will follow it.
        """
        self.counts["elections"] += 1
        records = list(records)
        if self._taken:
            self._give_up(records)
        committed_end = max((end for older, end in self._committed_ends.items() if older < epoch), default=0)
        if end_offset < committed_end:
            raise Violation(
                f"{node} leads in epoch {epoch} and ends at {end_offset}, below {committed_end}, which is committed"
            )
        self.matches(node, [record for record in records if record.start < committed_end])

    def matches(self, node: str, records: Iterable[Record]) -> None:
        """Records that a replica calls confirmed: they must be the committed ones."""
        for record in records:
            committed = self.committed.get(record.start)
            if committed != record and not self.may_be_lost(_copy(node, record)):
                raise Violation(f"the committed prefixes diverge: {node} has {record}, and {committed} was committed")

    def commits(self, node: str, epoch: int, records: Iterable[Record]) -> None:
        """A leader's confirmOffset has risen over these."""
        last: Record | None = None
        for record in records:
            last = record
            if record.start < self.committed_end:
                self.matches(node, [record])
            else:
                self.committed[record.start] = record
                self.committed_end = record.end
                self.confirmed_records[(record.epoch, record.start)] = True
                self.counts["committed records"] += 1
        if last is None:
            return
        self._committed_ends[epoch] = max(last.end, self._committed_ends.get(epoch, 0))
        if last.epoch != epoch:
            raise Violation(
                f"{node} committed up to {last} by its place alone: nothing of its epoch {epoch} follows it"
            )

    # --- power cuts with ASYNC_FLUSH

    def power_cut(self, node: str, epochs: EpochMap, end_offset: int, left_until: int) -> None:
        self._take_memory(node, epochs, end_offset, left_until)

    @property
    def has_losses(self) -> bool:
        return bool(self._taken)

    def may_be_lost(self, copy: Copy) -> bool:
        losers = self.lost_by(copy)
        return bool(losers) and (len(losers) >= self.least_majority() or not losers.isdisjoint(self.trusting))

    def _give_up(self, records: list[Record]) -> None:
        """A leader without them: what may be lost is committed no more from there on."""
        own = {record.start: record for record in records}
        first = min(own, default=0)  # what lies below, retention has deleted
        missing = sorted(
            start for start, record in self.committed.items() if start >= first and own.get(start) != record
        )
        if not missing or not all(self.may_be_lost(_copy("", self.committed[start])) for start in missing):
            return  # what must not be lost is judged by the caller
        # Not to where the first of these began: what comes instead of it may begin earlier, where a file's end was left blank.
        kept_end = max((record.end for start, record in self.committed.items() if start < missing[0]), default=0)
        self.committed_end = kept_end
        self.given_up_from = kept_end if self.given_up_from is None else min(self.given_up_from, kept_end)
        self._committed_ends = {epoch: min(end, kept_end) for epoch, end in self._committed_ends.items()}
        for start in missing:
            del self.committed[start]
            self.counts["committed, and lost by power cuts"] += 1
        for seen in self.seen.values():
            if seen.copy.physical_offset >= missing[0]:
                self.shown.pop((self.attempts[seen.attempt].queue, seen.copy.queue_offset), None)

    def acknowledged(self, epoch: int, node: str, copy: Copy) -> None:
        lacking = None if copy.end_offset <= self.expired_below else self.lacking_majority(node, copy)
        if lacking is not None:
            raise Violation(f"{node} acknowledged {copy}: {lacking}")
        other = self._acknowledged_in.setdefault(copy.epoch, node)
        if other != node:
            raise Violation(f"epoch {copy.epoch}: both {other} and {node} acknowledged")

    def read(self, node: str, attempt: Attempt, queue_offset: int, epoch: int, start: int, end: int) -> None:
        committed = self.committed.get(start)
        if (committed is None or committed.epoch != epoch) and end > self.expired_below:
            copy = Copy(node, epoch, start, end, queue_offset)
            if (epoch, start) in self.confirmed_records and self.may_be_lost(copy):
                # It was committed, and a majority has lost it since; one that has not heard of that shows it still.
                self.counts["read where it was left, and lost"] += 1
                return
            raise Violation(
                f"{node} showed message {attempt.number} at {start}, epoch {epoch}, committed is {committed}"
            )
        other = self.shown.setdefault((attempt.queue, queue_offset), attempt.number)
        if other != attempt.number:
            raise Violation(
                f"queue {attempt.queue}, offset {queue_offset} was message {other}, and {node} shows {attempt.number}"
            )
        key = (attempt.queue, queue_offset, attempt.number)
        if key not in self.seen:
            self.seen[key] = Seen(attempt.number, Copy(node, epoch, start, end, queue_offset), safe=True)
            self.counts["read"] += 1
