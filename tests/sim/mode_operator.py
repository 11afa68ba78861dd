"""The control plane of a group whose mode changes and that grows: which changes it asks for, and when it promotes.

What is asked next and what is accepted is mode/order.py's and membership/order.py's, on how many replicas a promotion may count
mode_ladder.py's, as in the Celery steps beside them. A worker that dies is followed by another, a second one may run
beside it, and an operation that takes too long has failed: then the operator asks again for the same mode. While an operation
is in progress no one promotes, nor where promotion/safety.py says that an election may be won.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from brokerd.replica.epoch_record import Policy
from controlplane.failover.membership import order as growth
from controlplane.failover.mode import order
from controlplane.failover.mode.order import mode_stations
from controlplane.failover.mode_ladder import copies_for_certain, modes_on_the_way
from controlplane.failover.orders import Look
from controlplane.provisioning.errors import StepFailed, StepNotReady
from mqwire.bodies import ReplicaStatus
from mqwire.mode import Mode
from tests.sim.control_plane import Asking, ControlPlane, Flow
from tests.sim.event_loop import EventLoop
from tests.sim.network import Network
from tests.sim.sim_requests import ChangeMembers, ChangeMode, Status
from tests.sim.wire import GROUP

CHANGEABLE = (Mode.ASYNC, Mode.SYNC, Mode.DLEDGER)
_WORKER_AGAIN_S = 3.0

GrowthStep = Callable[[Collection[int]], growth.Order[None]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One change of the mode; no one works on it any more after `until_s`."""

    before: Mode
    after: Mode
    until_s: float


class ModeOperator(ControlPlane):
    """See the module. `row_mode` is what the cluster's row says."""

    def __init__(
        self,
        loop: EventLoop,
        network: Network,
        *,
        replicas: list[str],
        row_mode: Mode,
        sync_replicas: int,
        dying: float,
    ) -> None:
        super().__init__(loop, network, replicas=replicas, in_sync_replicas=1, dying=dying)
        self._sync_replicas = sync_replicas  # inSyncReplicas of mode sync, unless that is too few after elections
        self.operation: Operation | None = None
        self.unfinished: Mode | None = None  # the mode that a failed operation was to bring
        self.completed = 0
        self._hanging: list[Operation] = []  # begun since the last that was completed
        self.growing: list[GrowthStep] = []  # what is still to be done for the replica that was added
        self.on_voter_added: Callable[[int], None] = lambda replica_id: None  # before a leader is asked for it
        self.row_mode = row_mode
        self._addresses: dict[int, str] = {}  # of replicas that were added

    # --- rows

    def in_sync_replicas(self) -> int:
        on_the_way = (mode for change in self._hanging for mode in modes_on_the_way(change.before, change.after))
        return copies_for_certain(
            (self.row_mode, *on_the_way), lambda mode: self._sync_replicas if mode == Mode.SYNC else 1
        )

    @property
    def elects(self) -> bool:
        return self.row_mode == Mode.DLEDGER

    @property
    def elections_in_doubt(self) -> bool:
        return any(Mode.DLEDGER in (change.before, change.after) for change in self._hanging)

    # --- promotions

    @property
    def settled(self) -> bool:
        """Whether no change of the mode and no growth is under way, or hangs."""
        return self.operation is None and self.unfinished is None and not self.growing

    def failover(self, preferred: str | None = None, *, may_lose: bool = False, drained: bool = False) -> Flow:
        if self.operation is None:  # a cluster has one operation at a time
            yield from super().failover(preferred, may_lose=may_lose, drained=drained)

    def promote_unclean(self, candidate: str) -> Flow:
        """Not while a change hangs in the middle: it is to be finished first, unless no replica that may lead has heard of it
        and none leads. A careful operator asks then for what loses nothing, and types the loss where that is not offered, as the
        page says then: without a leader no change is ever finished."""
        able = [status for status in self.statuses.values() if status.promotable]
        as_noted = {(status.mode, status.pending_mode) for status in able} == {(self.row_mode, None)}
        unheard = self._careful and self.operation is None and self.leader is None
        if as_noted and (self.settled or unheard):
            yield from super().promote_unclean(candidate)
        elif self._careful:
            yield from self.failover()
            view = yield from self._sample()
            if view.master is None and self.operation is None:
                yield from super().promote_unclean(candidate)

    # --- growth

    def begin_growth(self, replica: str, address: str) -> None:
        """A replica was started for the group: it becomes one that counts, in whichever mode the group is."""
        self.grow(replica)
        replica_id = self._replicas.index(replica)
        self._addresses[replica_id] = address
        steps: list[GrowthStep] = [growth.catch_up]
        if self.row_mode == Mode.DLEDGER:
            steps = [growth.observe, growth.catch_up, growth.make_voters]
        self.growing = steps
        self._work_on_growth(replica_id)

    def _work_on_growth(self, replica_id: int) -> None:
        """By one worker, and by another one soon, whether the first has died or not; until all is done."""
        if self.growing:
            self.start(self._grow(replica_id))
            self._loop.after(_WORKER_AGAIN_S, lambda: self._work_on_growth(replica_id))

    def _grow(self, replica_id: int) -> Flow:
        while self.growing:
            step = self.growing[0]
            try:
                yield from self.carried_out(step((replica_id,)), self._carry_out_growth)
            except StepNotReady as reason:
                yield reason.delay_s
                continue
            if self.growing and self.growing[0] is step:
                self.growing.pop(0)

    def _carry_out_growth(self, request: growth.Request) -> Asking[Any]:
        match request:
            case Look():
                return (yield from self._sample())
            case growth.ChangeMembers(leader_id, change, int(replica_id)):
                if change == "addVoter":
                    self.on_voter_added(replica_id)
                address = self._addresses[replica_id] if change == "addObserver" else None
                return (yield from self.ask(leader_id, ChangeMembers(change, replica_id, address)))
        raise TypeError(f"no growth asks for {request!r}")

    # --- changes of the mode

    def change_mode(self, wanted: Mode | None = None) -> None:
        """Begin an operation: what failed before is asked for again; else `wanted`, or any other mode."""
        if self.operation is not None or self.leader is None or self.promotes or self.growing:
            return  # only a leader can change anything, and a cluster has one operation at a time
        modes = CHANGEABLE if len(self._replicas) >= 3 else CHANGEABLE[:2]
        others = [mode for mode in modes if mode != self.row_mode]
        after = self.unfinished or wanted or self._loop.random.choice(others)
        limit_s = self._loop.random.choice((2.0, 4.0, 8.0, 30.0))
        self.operation = Operation(self.row_mode, after, self._loop.now_s + limit_s)
        self._loop.note(f"operation: from {self.row_mode} to {after}")
        self._hanging.append(self.operation)
        self._work(self.operation)

    def _work(self, operation: Operation) -> None:
        if self.operation is not operation:
            return
        if self._loop.now_s >= operation.until_s:
            self._fail(operation)
            return
        self.start(self._change(operation))
        self._loop.after(_WORKER_AGAIN_S, lambda: self._work(operation))

    def _change(self, operation: Operation) -> Flow:
        stations = mode_stations(modes_on_the_way(operation.before, operation.after))
        while self.operation is operation:  # else another worker has finished it, or it took too long
            try:
                yield from self.carried_out(order.pass_through(stations, going={}), self._carry_out_change)
            except StepNotReady as reason:
                yield reason.delay_s
                continue
            except StepFailed as reason:
                self._loop.note(f"refused: {reason}")
                self._fail(operation)
                return
            break
        if self.operation is operation:
            self._loop.note(f"operation completed: {operation.after}")
            self.operation = self.unfinished = None
            self.completed += 1
            self.row_mode = operation.after
            self._hanging.clear()

    def _carry_out_change(self, request: order.Request) -> Asking[Any]:
        match request:
            case order.LookAtGroups():
                answers = yield {replica: Status() for replica in self._replicas}
                return {GROUP: {self._replicas.index(name): status for name, status in answers.items()}}
            case order.ChangeMode(_, leader, mode):
                return (yield from self.ask(leader.replica_id, ChangeMode(self._policy(mode, leader))))

    def _fail(self, operation: Operation) -> None:
        if self.operation is operation:
            self._loop.note(f"operation failed: to {operation.after}")
            self.operation, self.unfinished = None, operation.after

    def _policy(self, mode: Mode, leader: ReplicaStatus) -> Policy:
        if mode != Mode.SYNC:
            return Policy(mode=mode)
        voters = 0 if leader.quorum is None else len(leader.quorum.voters)
        # After elections a majority of the voters at least; then the row may say less than is true, never more.
        return Policy(mode=mode, in_sync_replicas=max(self._sync_replicas, voters // 2 + 1))
