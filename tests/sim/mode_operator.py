"""The control plane of a group whose mode changes: which changes it asks for, in which order, and when it decrees.

What is asked next is mode_order.py's, as in platform/controlplane/failover/mode_steps.py; `mode_path` is mode_plan.py's, as a
test shows. A worker
that dies is followed by another, a second one may run beside it, and an operation that takes too long has failed: then the
operator asks again for the same mode. While an operation is in progress no one decrees, nor while the group elects, by the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerd.replica.epoch_record import DLEDGER, Policy
from controlplane.failover.mode_order import ModeSeen, mode_move
from highwater.promotion import election_may_be_won
from tests.sim.control_plane import ControlPlane, Flow
from tests.sim.event_loop import EventLoop
from tests.sim.network import Network
from tests.sim.sim_requests import ChangeMode, Status, StatusAnswer

CHANGEABLE = ("async", "sync", DLEDGER)
_WORKER_AGAIN_S = 3.0


def mode_path(present: str, wanted: str) -> tuple[str, ...]:
    """The modes to go through, the wanted one last."""
    begin, end = CHANGEABLE.index(present), CHANGEABLE.index(wanted)
    return CHANGEABLE[begin + 1 : end + 1] if end > begin else tuple(reversed(CHANGEABLE[end:begin]))


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of the mode; no one works on it any more after `until_s`."""

    before: str
    after: str
    until_s: float


class ModeOperator(ControlPlane):
    """See the module. `row_mode` is what the cluster's row says."""

    def __init__(
        self,
        loop: EventLoop,
        network: Network,
        *,
        replicas: list[str],
        row_mode: str,
        sync_replicas: int,
        dying: float,
    ) -> None:
        super().__init__(loop, network, replicas=replicas, in_sync_replicas=1, dying=dying)
        self._sync_replicas = sync_replicas  # inSyncReplicas of mode sync, unless that is too few behind elections
        self.operation: Operation | None = None
        self.unfinished: str | None = None  # the mode that a failed operation was to bring
        self.completed = 0
        self._note_mode(row_mode, sync_replicas if row_mode == "sync" else 1)

    def _note_mode(self, mode: str, in_sync_replicas: int) -> None:
        self.row_mode = mode
        self._count_on(in_sync_replicas)

    def _count_on(self, in_sync_replicas: int) -> None:
        """On how many replicas an acknowledged record is: who decrees needs one of each such set to answer."""
        self._in_sync_replicas = in_sync_replicas

    # --- decrees

    @property
    def _may_decree(self) -> bool:
        return self.operation is None and (self.row_mode != DLEDGER or not self.settled)

    def _others_may_elect(self, promised: dict[str, StatusAnswer]) -> bool:
        """A vote and a decree could make two leaders of one epoch: too many must act by decree for any majority."""
        by_decree = sum(not status.voters for status in promised.values())
        return election_may_be_won(len(self._replicas), len(self._replicas) - by_decree)

    @property
    def settled(self) -> bool:
        """Whether no change of the mode is under way, or hangs."""
        return self.operation is None and self.unfinished is None

    def failover(self, preferred: str | None = None) -> Flow:
        if self._may_decree:
            yield from super().failover(preferred)

    def switchover(self, candidate: str) -> Flow:
        if self._may_decree:
            yield from super().switchover(candidate)

    def promote_unclean(self, candidate: str) -> Flow:
        """Not while a change hangs in the middle: it is to be finished first."""
        as_noted = {(status.mode, status.pending_mode) for status in self.statuses.values()} == {(self.row_mode, None)}
        if self._may_decree and as_noted and self.settled:
            yield from super().promote_unclean(candidate)

    # --- changes of the mode

    def change_mode(self, wanted: str | None = None) -> None:
        """Begin an operation: what failed before is asked for again; else `wanted`, or any other mode."""
        if self.operation is not None or self.leader is None:
            return  # only a leader can change anything
        modes = CHANGEABLE if len(self._replicas) >= 3 else CHANGEABLE[:2]
        others = [mode for mode in modes if mode != self.row_mode]
        after = self.unfinished or wanted or self._loop.random.choice(others)
        limit_s = self._loop.random.choice((2.0, 4.0, 8.0, 30.0))
        self.operation = Operation(self.row_mode, after, self._loop.now_s + limit_s)
        self._loop.note(f"operation: from {self.row_mode} to {after}")
        # From the moment that a leader is asked, not only once all is done: the least of all modes on the way.
        self._count_on(1 if "async" in (self.row_mode, after) else 2)
        self._work(self.operation)

    def _work(self, operation: Operation) -> None:
        if self.operation is not operation:
            return
        if self._loop.now_s >= operation.until_s:
            self._loop.note(f"operation failed: to {operation.after}")
            self.operation, self.unfinished = None, operation.after
            return
        self.start(self._change(operation))
        self._loop.after(_WORKER_AGAIN_S, lambda: self._work(operation))

    def _change(self, operation: Operation) -> Flow:
        for mode in mode_path(operation.before, operation.after):
            done = operation.after
            while True:
                if self.operation is not operation:
                    return  # another worker has finished it, or it took too long
                answers = yield {replica: Status() for replica in self._replicas}
                statuses = [status for status in answers.values() if status is not None]
                seen = [
                    ModeSeen(
                        replica_id=status.replica_id,
                        mode=status.mode,
                        pending_mode=status.pending_mode,
                        leads=status.leads,
                        epoch=status.epoch,
                    )
                    for status in statuses
                ]
                move = mode_move(seen, (mode, done), silent=len(statuses) < len(self._replicas))
                if move.done:
                    break
                if move.ask is not None:
                    leader = self._replicas[move.ask]
                    yield {leader: ChangeMode(self._policy(mode, answers[leader]))}
                yield 0.3
        if self.operation is operation:
            self._loop.note(f"operation completed: {operation.after}")
            self.operation = self.unfinished = None
            self.completed += 1
            self._note_mode(operation.after, self._sync_replicas if operation.after == "sync" else 1)

    def _policy(self, mode: str, leader: StatusAnswer) -> Policy:
        if mode != "sync":
            return Policy(mode=mode)
        # Behind elections a majority of the voters at least; then the row may say less than is true, never more.
        return Policy(mode=mode, in_sync_replicas=max(self._sync_replicas, len(leader.voters) // 2 + 1))
