"""What an observer judges at once of a group whose mode changes: the promises of whichever mode is in force.

Committed is what a leader confirmed while enough replicas held it, as its mode has it. Each later leader has it all, in every
mode, but for what an unclean promotion gave up. Lost and doubled messages are judged at the end (verdict.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerd.replica.epoch_map import EpochMap
from tests.sim.history import Copy, LostRange, Violation
from tests.sim.quorum_history import ElectingHistory, Record


class ChangingHistory(ElectingHistory):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(mode="changing")
        self.lacking: Callable[[str, Copy], str | None] = lambda node, copy: None
        self.least_majority: Callable[[], int] = lambda: 0
        self._taken_from_voters: list[LostRange] = []  # while a leader was elected
        self.committed: dict[int, tuple[Record, int]] = {}  # by offset: the record, and the epoch that committed it

    def acknowledged(self, epoch: int, node: str, copy: Copy) -> None:
        self._check_not_deposed(epoch, node, copy)
        lacking = None if self.may_be_gone(copy) else self.lacking(node, copy)
        if lacking is not None:
            raise Violation(f"{node} acknowledged {copy}: {lacking}")
        other = self._acknowledged_in.setdefault(epoch, node)
        if other != node:
            raise Violation(f"epoch {epoch}: both {other} and {node} acknowledged")

    def begins_to_lead(self, node: str, epoch: int, records: Iterable[Record]) -> None:
        """Elected, promoted or leading by all replicas' agreement: it must have what older epochs committed."""
        self.counts["leaderships"] += 1
        own = {record.start: record for record in records}
        for start, (record, committed_in) in self.committed.items():
            is_gone = record.end <= self.expired_below or self._given_up(record)
            if committed_in < epoch and own.get(start) != record and not is_gone:
                raise Violation(f"{node} leads in epoch {epoch} without {record}, which epoch {committed_in} committed")

    def commits_safely(self, node: str, epoch: int, records: Iterable[Record]) -> None:
        """A leader's confirmOffset has risen over these, and enough replicas hold them."""
        for record in records:
            known = self.committed.get(record.start)
            if known is None:
                if not self._given_up(record):
                    self.committed[record.start] = (record, epoch)
                    self.committed_end = max(self.committed_end, record.end)
                    self.counts["committed records"] += 1
            elif known[0] != record and not self._given_up(record) and not self._given_up(known[0]):
                raise Violation(f"the committed prefixes diverge: {node} has {record}, and {known[0]} was committed")

    def unclean_promotion(self, new_epoch: int, epochs: EpochMap, end_offset: int) -> None:
        super().unclean_promotion(new_epoch, epochs, end_offset)
        self.committed = {start: known for start, known in self.committed.items() if not self._given_up(known[0])}

    def power_cut(self, node: str, epochs: EpochMap, end_offset: int, left_until: int) -> None:
        if self._keepers is None:
            self._take_memory(node, epochs, end_offset, left_until)
            self._taken_from_voters.append(self._taken[-1][1])
        else:
            super().power_cut(node, epochs, end_offset, left_until)
        self.committed = {start: known for start, known in self.committed.items() if not self._given_up(known[0])}

    @property
    def has_losses(self) -> bool:
        return super().has_losses or bool(self._taken_from_voters)

    def may_be_lost(self, copy: Copy) -> bool:
        """As the mode has it in which power was cut: of a group that elects as in QuorumHistory."""
        if super().may_be_lost(copy):
            return True
        if not any(lost.explains(copy) for lost in self._taken_from_voters):
            return False
        losers = self.lost_by(copy)
        return len(losers) >= self.least_majority() or not losers.isdisjoint(self.trusting)

    def _given_up(self, record: Record) -> bool:
        return self.may_be_lost(Copy("", record.epoch, record.start, record.end, -1))
