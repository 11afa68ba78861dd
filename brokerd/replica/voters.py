"""The voters of a quorum-led group, by the latest record in the log that names them.

A record that changes them is in force from its append, committed or not (the Raft paper, section 6; one at a time, as in
Ongaro's dissertation, section 4.1): two majorities of neighbouring sets always meet. Truncating such a record brings the
set before it back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

_KEPT = 16  # older sets than the last few are never needed: what is committed is not truncated


@dataclass(frozen=True, slots=True)
class Members:
    """The voters' replica ids, rising, and the one that the group prefers as leader when it is in sync."""

    voters: tuple[int, ...]
    preferred: int | None = None
    # Of each replica that is known by it: the incarnation of its disk. One that is no voter is to be one again: its disk
    # took the place of another, which counts no more, and it will count once it is a voter (adoption.py).
    incarnations: tuple[tuple[int, str], ...] = ()

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def replacing(self) -> dict[int, str]:
        """Replicas whose new disks wait to count: id -> incarnation."""
        return {replica_id: one for replica_id, one in self.incarnations if replica_id not in self.voters}

    def counts(self, replica_id: int) -> bool:
        return replica_id in self.voters

    def knows(self, replica_id: int, incarnation: str) -> bool:
        """Whether this is the disk that the group means; any is, where it has not seen one yet."""
        return dict(self.incarnations).get(replica_id, incarnation) == incarnation

    def with_voter(self, replica_id: int, incarnation: str = "") -> Members:
        voters = tuple(sorted({*self.voters, replica_id}))
        return replace(self.without(replica_id), voters=voters, preferred=self.preferred).having(
            {replica_id: incarnation}
        )

    def without(self, replica_id: int) -> Members:
        return Members(
            tuple(voter for voter in self.voters if voter != replica_id),
            None if self.preferred == replica_id else self.preferred,
            tuple(entry for entry in self.incarnations if entry[0] != replica_id),
        )

    def with_new_disk(self, replica_id: int, incarnation: str) -> Members:
        """The replica counts no more, and is to be a voter again by its new disk."""
        return replace(self.without(replica_id), preferred=self.preferred).having({replica_id: incarnation})

    def having(self, seen: Mapping[int, str]) -> Members:
        """With the disks of replicas of which none is known yet."""
        known = {replica_id: one for replica_id, one in seen.items() if one} | dict(self.incarnations)
        return replace(self, incarnations=tuple(sorted(known.items())))

    def preferring(self, replica_id: int | None) -> Members:
        return replace(self, preferred=replica_id)


def majority_offset(members: Members, held: Mapping[int, int]) -> int:
    """Up to where a majority of the voters holds the log; one that is not in `held` holds nothing."""
    offsets = sorted((held.get(voter, 0) for voter in members.voters), reverse=True)
    return offsets[members.majority - 1] if offsets else 0


class MemberHistory:
    """The sets that the log names, with the offsets of the records that do.

    Invariant: offsets rise strictly; the configured set stands in front of all of them.
    """

    __slots__ = ("_configured", "_entries")

    def __init__(self, configured: Members, entries: Iterable[tuple[int, Members]] = ()) -> None:
        self._configured = configured
        self._entries: list[tuple[int, Members]] = []
        for offset, members in entries:
            self.note(offset, members)

    @property
    def current(self) -> Members:
        """In force now."""
        return self._entries[-1][1] if self._entries else self._configured

    def may_decide(self, replica_id: int, confirm_offset: int) -> bool:
        """Whether a replica is a voter of any set that may be in force: the last confirmed one, and those after it.

        A set that excludes it may have reached too few; then the group needs its log, and its candidacy, once more
        (Ongaro's dissertation, section 4.2.2).
        """
        confirmed = [self._configured, *(members for offset, members in self._entries if offset < confirm_offset)]
        later = [members for offset, members in self._entries if offset >= confirm_offset]
        return any(replica_id in members.voters for members in (confirmed[-1], *later))

    @property
    def entries(self) -> tuple[tuple[int, Members], ...]:
        """(offset of the record, what it says), oldest first."""
        return tuple(self._entries)

    def note(self, offset: int, members: Members) -> None:
        """A record at `offset` names the members; only what changes them is kept."""
        if self._entries and (offset <= self._entries[-1][0] or members == self._entries[-1][1]):
            return
        self._entries.append((offset, members))
        del self._entries[:-_KEPT]

    def truncate(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`."""
        self._entries = [entry for entry in self._entries if entry[0] < end_offset]


class Tally:
    """The answers to one round of a candidate's questions, counted: those that granted, the candidate itself included.

    Invariant: a voter counts once, and by the answer of the disk that the group knows (Members.knows) only.
    """

    def __init__(self) -> None:
        self._granted: dict[int, str] = {}  # the incarnation that answered
        self._incomplete: set[int] = set()
        self._trusting: set[int] = set()
        self._new: dict[int, str] = {}
        self._others: set[int] = set()

    @property
    def granted(self) -> Mapping[int, str]:
        """Replica id -> its disk's incarnation."""
        return self._granted

    def add(self, voter: int, incarnation: str, *, log_may_be_incomplete: bool, trusts_own_end: bool = False) -> None:
        """`log_may_be_incomplete`: its log may lack records at its end that it had before a power cut, and that counted;
        `trusts_own_end`: that was so, and no one who could know better was found.
        """
        self._granted[voter] = incarnation
        if log_may_be_incomplete:
            self._incomplete.add(voter)
        if trusts_own_end:
            self._trusting.add(voter)

    def add_others(self, known: Collection[int]) -> None:
        """One that granted knows these replicas, voters or not."""
        self._others.update(known)

    def add_new(self, replica_id: int, incarnation: str) -> None:
        """It does not vote: it has never held all that was committed, so no record has made this disk a voter."""
        self._new[replica_id] = incarnation

    @property
    def in_doubt(self) -> bool:
        """Whether a log of those that granted may be incomplete: then the other replicas must be asked, too (`wins`)."""
        return bool(self._incomplete)

    def may_lack_shown(self, members: Members, *, others: Collection[int] = ()) -> bool:
        """Of those that have won: whether consumers may have read what none of them has any more."""
        doubtful = self._incomplete | self._trusting
        return bool(doubtful) and not all(
            len(self._granted_by(one) - doubtful) > len(one.voters) - one.majority
            for one in (members, *self._neighbours(members, others))
        )

    def all_granted(self, members: Members) -> bool:
        """Whether every voter did."""
        return len(self._granted_by(members)) == len(members.voters)

    def wins(
        self, members: Members, *, founding: bool, others: Collection[int] = (), waited_long: bool = False
    ) -> bool:
        """Whether these are enough. `founding`: no one has led this log before. `others`: replicas that are known. `waited_long`:
        since all voters granted, for those of them that are none.
        """
        granted = self._granted_by(members)
        # All must agree to a founding, lest some empty disks found the group again without the one that has its log.
        if len(granted) < (len(members.voters) if founding else members.majority):
            return False
        if not self._hold_all(members):
            return False
        if not self._incomplete or (waited_long and self.all_granted(members)):
            return True
        # What is missing of those in doubt may name one voter less, or one more. Never two: a second change waits for the
        # first, and then those that answer for that one have its record.
        return all(self._hold_all(one) for one in self._neighbours(members, others))

    def _neighbours(self, members: Members, others: Collection[int]) -> list[Members]:
        fewer = [members.without(voter) for voter in members.voters]
        more = [
            replace(members, voters=(*members.voters, other))
            for other in {*others, *self._others} - {*members.voters}
            if not (other in self._new and members.knows(other, self._new[other]))
        ]
        return fewer + more

    def _granted_by(self, members: Members) -> set[int]:
        return {
            voter
            for voter, incarnation in self._granted.items()
            if members.counts(voter) and members.knows(voter, incarnation)
        }

    def _hold_all(self, members: Members) -> bool:
        """Whether those that granted have all that these members committed.

        A majority held what was acknowledged. Enough of those that vote must still have all that they held, that one of
        them is of that majority; or no one is left to ask.
        """
        granted, count = self._granted_by(members), len(members.voters)
        return len(granted - self._incomplete) > count - members.majority or len(granted) == count
