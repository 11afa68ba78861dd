"""The answers to one round of a candidate's questions, counted."""

from __future__ import annotations

from collections.abc import Mapping

from brokerd.replica.voters import Members


class Tally:
    """Who granted, the candidate itself included.

    Invariant: a voter counts once, and by the answer of the disk that the group knows (Members.knows) only.
    """

    def __init__(self) -> None:
        self._granted: dict[int, str] = {}  # the incarnation that answered
        self._incomplete: set[int] = set()

    @property
    def granted(self) -> Mapping[int, str]:
        """Replica id -> its disk's incarnation."""
        return self._granted

    def add(self, voter: int, incarnation: str, *, log_may_be_incomplete: bool) -> None:
        """`log_may_be_incomplete`: its log may lack records at its end that it had before a power cut, and that counted."""
        self._granted[voter] = incarnation
        if log_may_be_incomplete:
            self._incomplete.add(voter)

    def wins(self, members: Members, *, founding: bool) -> bool:
        """Whether these are enough. `founding`: no one has led this log before."""
        granted = {
            voter
            for voter, incarnation in self._granted.items()
            if members.counts(voter) and members.knows(voter, incarnation)
        }
        count = len(members.voters)
        # All must agree to a founding, lest some empty disks found the group anew without the one that has its log.
        if len(granted) < (count if founding else members.majority):
            return False
        # A majority held what was acknowledged. Enough of those who vote must still have all that they held, that one of
        # them is of that majority; or no one is left to ask.
        return len(granted - self._incomplete) > count - members.majority or len(granted) == count
