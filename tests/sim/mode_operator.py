"""The control plane of a group whose mode changes, and that grows and shrinks: what it asks for, and when it promotes.

What is asked next and what is accepted is mode/order.py's and membership/order.py's, on how many replicas a promotion may count
mode_ladder.py's, as in the Celery steps beside them. A worker that dies is followed by another, a second one may run
beside it, and an operation that takes too long has failed: then the operator asks again for the same mode. While an operation
is in progress no one promotes, nor where promotion/safety.py says that an election may be won.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

from brokerd.replica.epoch_record import Policy
from controlplane.clusters.operation_types import OperationType
from controlplane.failover.membership import order as membership
from controlplane.failover.mode import order
from controlplane.failover.mode.order import mode_stations
from controlplane.failover.mode_ladder import copies_for_certain, modes_on_the_way
from controlplane.failover.orders import Look, LookClosely, Pause
from controlplane.provisioning.errors import StepFailed, StepNotReady
from mqwire.mode import Mode
from tests.sim.control_plane import Asking, ControlPlane, Flow
from tests.sim.event_loop import EventLoop
from tests.sim.network import Network
from tests.sim.product_steps import steps_of
from tests.sim.sim_requests import ChangeMembers, ChangeMode, Status, TransferTo
from tests.sim.wire import GROUP

CHANGEABLE = (Mode.ASYNC, Mode.SYNC, Mode.DLEDGER)
_WORKER_AGAIN_S = 3.0
_REMOVAL_S = 12.0

OperationStep = Callable[[], Generator[Any, Any, object]]


@dataclass(slots=True)
class Resize:
    """One replica more or less: what is still to be done, and what the rows remember of a removal."""

    what: str
    replica_id: int
    to_do: list[OperationStep]
    until_s: float  # then it has failed
    settled: bool = False
    end_offset: int | None = None


@dataclass(slots=True)
class Operation:
    """One change of the mode, and what is still to be done; no one works on it any more after `until_s`."""

    before: Mode
    after: Mode
    to_do: list[OperationStep] = field(repr=False)
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
        auto_in_sync: bool = False,
        dying: float,
    ) -> None:
        super().__init__(loop, network, replicas=replicas, in_sync_replicas=1, dying=dying)
        self._sync_replicas = sync_replicas  # inSyncReplicas of mode sync, unless that is too few after elections
        self._auto_in_sync = auto_in_sync  # then so few are enough as minInSyncReplicas says, which is 1
        self.operation: Operation | None = None
        self.unfinished: Mode | None = None  # the mode that a failed operation was to bring
        self.completed = 0
        self._hanging: list[Operation] = []  # begun since the last that was completed
        self.resize: Resize | None = None
        # What the world has to know: before a leader is asked, and what is done to machines.
        self.on_voters_change: Callable[[str, int], None] = lambda change, replica_id: None
        self.on_stop_for_good: Callable[[int], None] = lambda replica_id: None
        self.on_stop_ended: Callable[[int], None] = lambda replica_id: None
        self.on_freed: Callable[[int], None] = lambda replica_id: None
        self.row_mode = row_mode
        self._addresses: dict[int, str] = {}  # of replicas that were added

    # --- rows

    def in_sync_replicas(self) -> int:
        on_the_way = (mode for change in self._hanging for mode in modes_on_the_way(change.before, change.after))
        return copies_for_certain((self.row_mode, *on_the_way), self._copies_for_sure)

    def _copies_for_sure(self, mode: Mode) -> int:
        return 1 if self._auto_in_sync else self._in_sync_replicas_of(mode)

    def _in_sync_replicas_of(self, mode: Mode) -> int:
        return self._sync_replicas if mode == Mode.SYNC else 1

    @property
    def elects(self) -> bool:
        return self.row_mode == Mode.DLEDGER

    @property
    def elections_in_doubt(self) -> bool:
        return any(Mode.DLEDGER in (change.before, change.after) for change in self._hanging)

    # --- promotions

    @property
    def settled(self) -> bool:
        """Whether no change of the mode and no replica comes or goes, or hangs."""
        return self.operation is None and self.unfinished is None and self.resize is None

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

    # --- growth and removal

    def begin_growth(self, replica: str, address: str) -> None:
        """A replica was started for the group: it becomes one that counts, in whichever mode the group is."""
        self.grow(replica)
        added = (self._ids[replica],)
        self._addresses[added[0]] = address
        by_votes: dict[str, OperationStep] = {
            "quorum_look": membership.look,
            "quorum_observe": partial(membership.observe, added),
            "quorum_catch_up": partial(membership.catch_up, added),
            "quorum_promote_added": partial(membership.make_voters, added),
        }
        elects = self.row_mode == Mode.DLEDGER
        steps = steps_of(OperationType.GROUP_GROW, by_votes) if elects else self._mode_steps((), {}, adds=True)
        self._begin_resize(Resize("growth", added[0], steps, until_s=inf))

    def begin_removal(self) -> None:
        """The last replica is to leave the group, if the others are enough."""
        others = len(self._replicas) - 1
        enough = others >= (3 if self.row_mode == Mode.DLEDGER else 2) and self._sync_replicas <= others
        if not enough or not self.settled or self.promotes or self.replaced or self.leader is None:
            return
        self._loop.note(f"{self._replicas[-1]} is to leave")
        by_votes: dict[str, OperationStep] = {
            "quorum_look": membership.look,
            "quorum_step_aside": partial(membership.step_aside, (others,)),
            "quorum_remove": partial(membership.take_votes, (others,)),
            "quorum_forget": partial(membership.leave, (others,)),
        }
        assigned = self._mode_steps((), {GROUP: (others,)}, removes=True)
        steps = steps_of(OperationType.GROUP_SHRINK, by_votes) if self.row_mode == Mode.DLEDGER else assigned
        self._begin_resize(Resize("removal", others, steps, self._loop.now_s + _REMOVAL_S))

    def _begin_resize(self, resize: Resize) -> None:
        self.resize = resize
        self._work_on_resize(resize)

    def _work_on_resize(self, resize: Resize) -> None:
        """By one worker, and by another one soon, whether the first has died or not; until all is done."""
        if self.resize is resize and self._loop.now_s >= resize.until_s:
            self._give_up(resize)
        elif self.resize is resize:
            self.start(self._resize(resize))
            self._loop.after(_WORKER_AGAIN_S, lambda: self._work_on_resize(resize))

    def _resize(self, resize: Resize) -> Flow:
        carry_out = partial(self._carry_out_resize, resize)
        done = yield from self._walked(resize.to_do, lambda: self.resize is resize, carry_out)
        if not done:
            self._give_up(resize)
        elif self.resize is resize:
            self._loop.note(f"{resize.what} completed")
            self.resize = None

    def _walked(
        self, to_do: list[OperationStep], is_current: Callable[[], bool], carry_out: Callable[[Any], Asking[Any]]
    ) -> Asking[bool]:
        """Run the steps, one after the other, each again from its beginning until it is done; beside another worker, too. Returns
        whether none has failed.
        """
        while is_current() and to_do:  # else another worker has finished it, or it took too long
            step = to_do[0]
            try:
                yield from self.carried_out(step(), carry_out)
            except StepNotReady as reason:
                yield reason.delay_s
                continue
            except StepFailed as reason:
                self._loop.note(f"refused: {reason}")
                return False
            if to_do and to_do[0] is step:
                to_do.pop(0)
        return True

    def _give_up(self, resize: Resize) -> None:
        """It has failed: what was stopped for it is started again, since no one holds it any more."""
        if self.resize is resize:
            self._loop.note(f"{resize.what} failed")
            self.resize = None
            self.on_stop_ended(resize.replica_id)

    def _carry_out_resize(self, resize: Resize, request: order.Request | membership.Request) -> Asking[Any]:
        match request:
            case Look():
                return (yield from self._sample())
            case LookClosely(replica_ids):
                statuses = yield {self._replicas[replica_id]: Status() for replica_id in replica_ids}
                return {self._ids[name]: status for name, status in statuses.items()}
            case Pause():
                yield 0.1
                return self._loop.random.random() < 0.9
            case order.LookAtGroups():
                return (yield from self._look_at_groups())
            case order.LookAndNote():
                return (yield from self._look_and_note())
            case membership.ChangeMembers(leader_id, change, int(replica_id)):
                if change in ("addVoter", "removeVoter"):
                    self.on_voters_change(change, replica_id)
                address = self._addresses[replica_id] if change == "addObserver" else None
                return (yield from self.ask(leader_id, ChangeMembers(change, replica_id, address)))
            case membership.Transfer(leader_id, target_id):
                return (yield from self.ask(leader_id, TransferTo(target_id)))
            case membership.NoteTarget() | order.NoteMode():
                pass  # no one reads of it, and the mode stays
            case membership.Forget(_, replica_id, by_id):
                return (yield from self.ask(by_id, ChangeMembers("forget", replica_id)))
            case order.SettleRemoval(leaders):
                resize.settled = resize.settled or resize.replica_id not in leaders.values()
                if not resize.settled:
                    raise StepFailed("it leads, and here no other goes in its place")
                return {GROUP: [resize.replica_id]}
            case membership.StopForGood() if self.resize is resize:
                self.on_stop_for_good(resize.replica_id)
            case order.NoteEnd(_, _, end_offset):
                if resize.end_offset is None:
                    resize.end_offset = end_offset
                return resize.end_offset
            case membership.Free() if self.resize is resize:
                if len(self._replicas) > resize.replica_id:
                    self.shrink()
                    self.on_freed(resize.replica_id)
        return None

    # --- changes of the mode

    def change_mode(self, wanted: Mode | None = None) -> None:
        """Begin an operation: what failed before is asked for again; else `wanted`, or any other mode."""
        if self.operation is not None or self.leader is None or self.promotes or self.resize is not None:
            return  # only a leader can change anything, and a cluster has one operation at a time
        modes = CHANGEABLE if len(self._replicas) >= 3 else CHANGEABLE[:2]
        others = [mode for mode in modes if mode != self.row_mode]
        after = self.unfinished or wanted or self._loop.random.choice(others)
        limit_s = self._loop.random.choice((2.0, 4.0, 8.0, 30.0))
        # One that failed when the row had its mode already is retried: that it hangs ends when its steps are done.
        before = self._hanging[-1].before if self._hanging and after == self.row_mode else self.row_mode
        steps = self._mode_steps(modes_on_the_way(before, after), {})
        self.operation = Operation(before, after, steps, self._loop.now_s + limit_s)
        self._loop.note(f"operation: from {before} to {after}")
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

    def _mode_steps(
        self, path: Sequence[Mode], going: order.Going, *, adds: bool = False, removes: bool = False
    ) -> list[OperationStep]:
        """The steps of an operation that changes the mode, or the number of replicas of a group whose leader is assigned."""
        stations = mode_stations(path)
        steps: dict[str, OperationStep] = {
            "mode_look": partial(order.begin, going, adds=adds),
            "mode_catch_up": partial(order.catch_up, going),
            "mode_pass": partial(order.pass_through, stations[:-1], going, self._in_sync_replicas_of),
            "mode_change": partial(order.change, stations[-1:], going, self._in_sync_replicas_of),
            "mode_remove_last": order.remove,
            "mode_note": order.note,
        }
        names = order.change_steps(modes=len(path), adds=adds, removes=removes)
        return steps_of(OperationType.CLUSTER_MODE, steps, names)

    def _change(self, operation: Operation) -> Flow:
        carry_out = partial(self._carry_out_change, operation)
        done = yield from self._walked(operation.to_do, lambda: self.operation is operation, carry_out)
        if not done:
            self._fail(operation)
        elif self.operation is operation:
            self._loop.note(f"operation completed: {operation.after}")
            self.operation = self.unfinished = None
            self.completed += 1
            self._hanging.clear()

    def _carry_out_change(self, operation: Operation, request: order.Request) -> Asking[Any]:
        match request:
            case order.LookAtGroups():
                return (yield from self._look_at_groups())
            case order.LookAndNote():
                return (yield from self._look_and_note())
            case order.ChangeMode(_, leader, mode, in_sync_replicas):
                # After elections the leader refuses fewer than a majority: `highwater admin changeMode` can ask for more at least.
                after_elections = self._auto_in_sync and leader.quorum is not None
                least = in_sync_replicas if after_elections else 1
                policy = Policy(mode=mode, in_sync_replicas=in_sync_replicas, min_in_sync_replicas=least)
                return (yield from self.ask(leader.replica_id, ChangeMode(policy, leader)))
            case order.NoteMode():
                if self.operation is operation:
                    self.row_mode = operation.after
                return None
        raise TypeError(f"no change asks for {request!r}")

    def _look_and_note(self) -> Asking[order.GroupsNoted]:
        view = yield from self._sample()
        return order.GroupsNoted([view], self._now())

    def _look_at_groups(self) -> Asking[order.Answers]:
        answers = yield {replica: Status() for replica in self._replicas}
        return {GROUP: {self._ids[name]: status for name, status in answers.items() if name in self._replicas}}

    def _fail(self, operation: Operation) -> None:
        if self.operation is operation:
            self._loop.note(f"operation failed: to {operation.after}")
            self.operation, self.unfinished = None, operation.after
