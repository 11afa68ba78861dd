"""The control plane and its operators in the simulation: promotions, clean and not, by rows that workers share. What is noted and
decided, which promotion is begun without anyone's asking, in which order it goes and what it changes in the rows, is
controlplane/failover's (samples.py, and automatic.py, order.py, rows.py, fencing.py, safety.py and verdict.py of promotion/) and
highwater/promotion.py's, as in services.py and steps.py there; here are the requests, and workers that die.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from controlplane.clusters.operation_types import OperationType
from controlplane.clusters.replica_answer import Answer
from controlplane.failover.orders import Look, LookClosely, Pause, Result
from controlplane.failover.promotion import order, rows
from controlplane.failover.promotion.agreement import agreement_holds
from controlplane.failover.promotion.automatic import promotion_to_begin
from controlplane.failover.promotion.verdict import GroupState, GroupView, ReplicaView, candidates_ranked, judge
from controlplane.failover.samples import (
    LeaderRow,
    answer_noted,
    leader_seen,
    leading_noted,
    looked_at,
    silence_noted,
)
from controlplane.provisioning.drivers.base import ProcessStatus
from controlplane.provisioning.errors import StepFailed, StepNotReady
from highwater import promotion_by_hand as by_hand
from highwater._admin_replica import GroupMember, PromotionPlan, plan_promotion
from highwater.errors import HighwaterError
from mqwire.bodies import ReplicaStatus
from tests.sim.event_loop import EventLoop
from tests.sim.network import Network
from tests.sim.product_steps import steps_of
from tests.sim.sim_requests import Demote, Freeze, Promote, RoleAnswer, Status
from tests.sim.wire import GROUP

Step = dict[str, Any] | float
Flow = Generator[Step, dict[str, Any], None]
Asking = Generator[Step, dict[str, Any], Result]
_TIMEOUT_S = 1.0
_WATCH_PERIOD_S = 0.7
_FREEZE_S = 2.0
_PATIENCE_LOOKS = 3  # so many an operator waits before giving up on a promotion that loses nothing
_AUTOMATIC_FROM = 0.7
_OPERATION_S = 5.0  # then a promotion that is not done has failed
_AGREED_FOR = timedelta(seconds=3)  # a typed loss; the product's agreement holds for minutes, as long as its operations
_LEASE_S = (0.2, 1.5)  # so long another worker waits for one that died; the product's are longer, as its operations are
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_OF_VIEW = {field.name for field in fields(ReplicaView)}


class WorkerDied(BaseException):
    """Nothing after this line runs in this worker."""


class Supervisor(Protocol):
    """What starts processes, and starts them again."""

    def stop(self, name: str) -> None:
        """Kill it; it is started again a few seconds later."""

    def status(self, name: str) -> ProcessStatus: ...


PromotionStep = Callable[[order.Promotion], order.Order[Any]]
_STEPS: dict[str, PromotionStep] = {
    "failover_preflight": order.preflight,
    "failover_drain": order.drain,
    "failover_fence": order.fence,
    "failover_promote": order.promote,
}


@dataclass(slots=True)
class PromotionRow:
    """One promotion's rows (models.Failover, clusters.models.Operation). No one works on it any more after `until_s`."""

    promotion: order.Promotion
    until_s: float
    to_do: list[PromotionStep] = field(default_factory=list)
    clean: bool = True  # what its operator believes, for the checker


def _answer(answer: RoleAnswer | None) -> Answer:
    """As the control plane reads it."""
    if answer is None:
        return Answer(error="no answer")
    return Answer(status=answer.status, error=answer.refusal or "", refused=answer.status is None)


class ControlPlane:
    """Its rows are linearizable, as PostgreSQL's are; its workers die anywhere."""

    name = "control-plane"

    def __init__(
        self, loop: EventLoop, network: Network, *, replicas: list[str], in_sync_replicas: int, dying: float
    ) -> None:
        self._loop = loop
        self._network = network
        self._replicas = replicas  # by replica id
        self._ids = {name: number for number, name in enumerate(replicas)}  # also of those that have left
        self._surely_held_by = in_sync_replicas
        self._dying = dying  # the chance of a worker to die, at each step
        # The chance that an operator promotes where a look finds no leader; the policy is to do so by itself where it is high.
        self.failovers = 0.0
        self.unclean = 0.0  # the chance that the operator gives up on a clean one
        self._careful = False
        self._leaderless_looks = 0
        self.leader: str | None = None
        self.statuses: dict[str, ReplicaStatus] = {}
        # Replicas with a new disk, one at a time: the next one is not replaced before it has caught up. Name -> the disk before.
        self.replaced: dict[str, str] = {}
        self.leadership = rows.GroupRow()
        self._samples = [ReplicaView(replica_id=number) for number in range(len(replicas))]
        self.supervisor: Supervisor | None = None
        self.sends_held_until_s = 0.0  # by hand, at most
        self._at_work = False  # whether a worker runs an operation that the detector began
        self._promotions: list[PromotionRow] = []
        network.join(self)

    def heal(self, *, may_lose: bool = False) -> None:
        """Workers no longer die, and operators do what is right."""
        self._dying = 0.0
        self.failovers = 1.0
        # Where memory was lost with the power, a log is damaged, or a new disk has not caught up and so says nothing, no promotion
        # may be provably clean: an operator types the loss, of the best log.
        self.unclean = 1.0 if may_lose else 0.0
        self._careful = True

    def grow(self, replica: str) -> None:
        """The group has one replica more, by the rows."""
        self._samples.append(ReplicaView(replica_id=len(self._replicas)))
        self._ids[replica] = len(self._replicas)
        self._replicas.append(replica)

    def shrink(self) -> None:
        """The group has its last replica no more, by the rows."""
        name = self._replicas.pop()
        self._samples.pop()
        self.statuses.pop(name, None)
        self.replaced.pop(name, None)

    def replaces(self, name: str) -> None:
        """An operator is about to give this replica a new disk."""
        self.replaced[name] = self._samples[self._ids[name]].disk

    # --- running flows

    def start(self, flow: Flow, *, immortal: bool = False) -> None:
        """Run a flow: it yields requests by replica and gets answers (None: none came), or it yields seconds to wait."""
        self._advance(flow, None, immortal)

    def _advance(self, flow: Flow, answers: dict[str, Any] | None, immortal: bool) -> None:
        try:
            if answers is None:
                step = next(flow)
            elif not immortal and self._loop.random.random() < self._dying:
                step = flow.throw(WorkerDied())
            else:
                step = flow.send(answers)
        except (StopIteration, WorkerDied):
            return
        if isinstance(step, float):
            self._loop.after(step, lambda: self._advance(flow, {}, immortal))
            return
        collected: dict[str, Any] = {}
        requests = step

        def answered(target: str, answer: Any) -> None:
            collected[target] = answer
            if len(collected) == len(requests):
                self._advance(flow, {target: collected[target] for target in requests}, immortal)

        for target, request in requests.items():
            self._network.call(
                self,
                target,
                request,
                partial(answered, target),
                timeout_s=_TIMEOUT_S,
            )

    @staticmethod
    def carried_out(requests: Generator[Any, Any, object], carry_out: Callable[[Any], Asking[Any]]) -> Flow:
        """Run an order to its end, each of its requests on the simulated network."""
        answer = None
        while True:
            try:
                request = requests.send(answer)
            except StopIteration:
                return
            answer = yield from carry_out(request)

    # --- rows

    def _now(self) -> datetime:
        return BEGAN + timedelta(seconds=self._loop.now_s)

    def in_sync_replicas(self) -> int:
        """On how many replicas an acknowledged record is, by the rows."""
        return self._surely_held_by

    @property
    def elects(self) -> bool:
        """Whether the group elects its leader, by the cluster's row."""
        return False

    @property
    def elections_in_doubt(self) -> bool:
        """Whether a change into or out of elections is not completed."""
        return False

    def _sample(self) -> Asking[GroupView]:
        """Ask every replica, and note what they say."""
        asked_at = self._now()
        answers = yield {replica: Status() for replica in self._replicas}
        self.statuses = {
            replica: status for replica, status in answers.items() if status is not None and replica in self._replicas
        }
        return self._note(asked_at)

    def _note(self, asked_at: datetime) -> GroupView:
        now = self._now()
        reported = {status.replica_id: status for status in self.statuses.values()}
        row = self.leadership
        read = LeaderRow(epoch=row.epoch, leader=row.leader_id, led_epoch=row.led_epoch, asked_epoch=row.asked_epoch)
        look = looked_at(reported, read)
        seen = leader_seen(read, read, look)
        self.leadership = replace(row, epoch=seen.epoch, leader_id=seen.leader)
        for number, name in enumerate(self._replicas):
            status, before = reported.get(number), self._samples[number]
            if status is not None:
                values = answer_noted(
                    status,
                    look.leading,
                    known=before.known_disk,
                    asked_at=asked_at,
                    now=now,
                )
            else:
                values = silence_noted(
                    None if self.supervisor is None else self.supervisor.status(name),
                    unreachable_since=before.unreachable_since,
                    last_seen_at=before.last_seen_at,
                    process_ended_at=before.process_ended_at,
                    ran_unseen=before.ran_unseen,
                    now=now,
                )
            noted: dict[str, Any] = {key: value for key, value in values.items() if key in _OF_VIEW}
            self._samples[number] = replace(before, **noted)
        if look.leading is not None:
            self._note_leading(look.leading)
        row = self.leadership
        return GroupView(
            name=GROUP,
            in_sync_replicas=self.in_sync_replicas(),
            replicas=tuple(self._samples),
            elects=self.elects,
            elections_in_doubt=self.elections_in_doubt,
            leader_id=row.leader_id,
            led_at=row.led_at,
            led_epoch=row.led_epoch,
            led_to_offset=row.led_to_offset,
            asked_id=row.asked_id,
            asked_epoch=row.asked_epoch,
            foreign_epoch=row.foreign_epoch,
            epoch=row.epoch,
        )

    def _note_leading(self, status: ReplicaStatus) -> None:
        """If the row names it (sampling.leader_note)."""
        if status.role == "master" and self.leadership.leader_id == status.replica_id:
            noted: dict[str, Any] = {**leading_noted(status, self._now())}
            self.leadership = replace(self.leadership, **noted)

    @property
    def promotes(self) -> bool:
        """Whether a promotion is under way."""
        self._promotions = [row for row in self._promotions if row.to_do and self._loop.now_s < row.until_s]
        return bool(self._promotions)

    # --- flows

    def watch(self) -> Flow:
        """Look for ever. What the control plane does by itself is decided as in the product; an operator, who sees the same,
        promotes where that does nothing.
        """
        while True:
            yield _WATCH_PERIOD_S
            view = yield from self._sample()
            master, now = view.master, self._now()
            self.leader = None if master is None else self._replicas[master.replica_id]
            self._look_at_replaced(view)
            if judge(view, now).state is not GroupState.NO_MASTER:
                self._leaderless_looks = 0
                continue
            self._leaderless_looks += 1
            if self._at_work:
                continue
            promotion = promotion_to_begin(view, now, when_lossless=self.failovers >= _AUTOMATIC_FROM)
            if promotion is not None:
                self.start(self._alone(self.failover(self._replicas[promotion.candidate_id])))
            elif self._loop.random.random() < self.failovers:
                self._promote_as_operator(view)

    def _promote_as_operator(self, view: GroupView) -> None:
        gives_up = self._leaderless_looks > _PATIENCE_LOOKS and self._loop.random.random() < self.unclean
        if gives_up and self.statuses:
            self.start(self._alone(self.promote_unclean(self._to_promote_unclean(view))))
        else:
            self.start(self._alone(self.failover()))

    def _alone(self, flow: Flow) -> Flow:
        """A cluster has one operation at a time: the next begins when this one has ended, or its worker died."""
        self._at_work = True
        try:
            yield from flow
        finally:
            self._at_work = False

    def _look_at_replaced(self, view: GroupView) -> None:
        """A new disk counts once its replica is level, and the control plane has seen it so: until then losses must be typed."""
        if self.leader is None:
            return
        new_disks = {one.replica_id for one in view.replicas if one.disk_is_new}
        leader = self.statuses[self.leader]
        for replica in sorted(self.replaced.keys() & self.statuses.keys()):
            status = self.statuses[replica]
            is_new = (
                status.incarnation != self.replaced[replica]
            )  # else it is what the old disk held when it was asked last
            level = status.log_epoch == leader.log_epoch and status.held_offset >= leader.held_offset
            if is_new and level and status.replica_id in leader.in_sync and status.replica_id not in new_disks:
                del self.replaced[replica]

    def _to_promote_unclean(self, view: GroupView) -> str:
        """Any that answers, or, by a careful operator, the one with the most of those whose disks are not new."""
        ranked = candidates_ranked(view)
        if self._careful and ranked:
            best = next((one for one in ranked if not one.disk_is_new), ranked[0])
            return self._replicas[best.replica_id]
        return self._loop.random.choice(sorted(self.statuses))

    # --- promotions

    def failover(self, preferred: str | None = None, *, may_lose: bool = False, drained: bool = False) -> Flow:
        """A promotion: of the best, or of whom an operator prefers; `may_lose`: the loss was typed; `drained`: a switchover."""
        begun_at = self._now()
        view = yield from self._sample()
        ranked = candidates_ranked(view)
        if preferred is None and not ranked:
            return
        candidate_id = ranked[0].replica_id if preferred is None else self._replicas.index(preferred)
        former = view.former_master
        promotion = order.Promotion(
            candidate_id=candidate_id,
            old_master_id=None if former is None else former.replica_id,
            begun_at=begun_at,
            may_lose=may_lose,
            drains=drained,
        )
        operation_type = OperationType.GROUP_SWITCHOVER if drained else OperationType.GROUP_PROMOTE
        row = PromotionRow(promotion, self._loop.now_s + _OPERATION_S, steps_of(operation_type, _STEPS))
        self._promotions.append(row)
        if self._loop.random.random() < self._dying:  # the lease of the first has ended, and yet it goes on
            self._loop.after(self._loop.random.uniform(*_LEASE_S), lambda: self.start(self._work_on(row)))
        yield from self._work_on(row)

    def _work_on(self, row: PromotionRow) -> Flow:
        """Run its steps, one after the other, each again from its beginning until it is done."""
        while row.to_do:
            step = row.to_do[0]
            try:
                yield from self.carried_out(step(self._read(row)), partial(self._carry_out, row, self._loop.now_s))
            except StepNotReady as reason:
                pause_s = reason.delay_s
            except StepFailed:
                row.to_do.clear()
                return
            except WorkerDied:
                pause_s = self._loop.random.uniform(*_LEASE_S)
            else:
                if row.to_do and row.to_do[0] is step:
                    row.to_do.pop(0)
                continue
            if self._loop.now_s + pause_s > row.until_s:
                row.to_do.clear()
                return
            yield pause_s

    def _carry_out(self, row: PromotionRow, began_s: float, request: order.Request) -> Asking[Any]:
        """Do what the order of a promotion asks for, and return what it wants to know."""
        match request:
            case Look():
                return (yield from self._sample())
            case LookClosely(replica_ids):
                statuses = yield {self._replicas[replica_id]: Status() for replica_id in replica_ids}
                return {self._ids[name]: status for name, status in statuses.items()}
            case Pause():
                yield 0.1
                return self._loop.now_s - began_s < _FREEZE_S
            case order.Reserve(promotion, view):
                return self._reserve(row, promotion, view)
            case order.HoldSends(replica_id, epoch, hold):
                return (yield from self.ask(replica_id, Freeze(epoch, _FREEZE_S if hold else 0.0)))
            case order.Fence(replica_ids, epoch):
                asked_at_s = self._now().timestamp()
                known = [replica_id for replica_id in replica_ids if replica_id < len(self._replicas)]
                targets = {self._replicas[replica_id]: Demote(epoch) for replica_id in known}
                answers = (yield targets) if targets else {}
                said = {self._ids[name]: _answer(answer) for name, answer in answers.items()}
                return order.FenceAnswers(asked_at_s, said)
            case order.Stop(replica_id):
                if self.supervisor is not None and replica_id < len(self._replicas):
                    self.supervisor.stop(self._replicas[replica_id])
            case order.Decide(promotion, candidate_id, fenced):
                return self._decide(row, promotion, candidate_id, fenced)
            case order.Promote(replica_id, ballot, in_sync, with_incomplete_log, lacks):
                self._loop.note(
                    f"promotion: {self._replicas[replica_id]} shall lead in {ballot.epoch}, clean={row.clean}"
                )
                promote = Promote(ballot.fence, ballot.epoch, row.clean, in_sync, with_incomplete_log, lacks)
                return (yield from self.ask(replica_id, promote))
            case order.NoteLeader(promotion, status):
                self.leadership = rows.led(self.leadership, promotion)
                if status is not None:
                    self._note_leading(status)
            case order.NoteGivenBack(status):
                self._note_leading(status)
            case order.LetGo() | order.NoteSendsStopped():
                pass  # what was stopped starts by itself here, and no one reads of it
        return None

    def ask(self, replica_id: int, request: Any) -> Asking[Answer]:
        """Ask one replica for a change of its role or mode."""
        if replica_id >= len(self._replicas):
            return Answer(error="it is gone")
        name = self._replicas[replica_id]
        return _answer((yield {name: request})[name])

    def _read(self, row: PromotionRow) -> order.Promotion:
        """The row as a worker reads it now; no one retries a promotion that has failed."""
        promotion = row.promotion
        holds = agreement_holds(promotion.begun_at, self._now(), was_retried=False, agreed_for=_AGREED_FOR)
        return replace(promotion, may_lose=promotion.may_lose and holds)

    def _reserve(self, row: PromotionRow, promotion: order.Promotion, view: GroupView) -> order.Promotion:
        row.promotion, self.leadership = rows.reserved(row.promotion, promotion, self.leadership, view)
        return self._read(row)

    def _decide(
        self, row: PromotionRow, promotion: order.Promotion, candidate_id: int, fenced: order.Fenced
    ) -> order.Promotion:
        changed = rows.decided(row.promotion, promotion, self.leadership, candidate_id, fenced)
        row.promotion, self.leadership = changed
        row.clean = fenced.decision.cleanness.clean or not promotion.may_lose
        return self._read(row)

    def switchover(self, candidate: str) -> Flow:
        """Planned: drain, let the candidate catch up, switch."""
        if self.leader is not None and self.leader != candidate:
            yield from self.failover(candidate, drained=True)

    def asked_to_switch_over(self, candidate: str) -> Flow:
        """As the cluster's one operation."""
        return self._alone(self.switchover(candidate))

    def promote_unclean(self, candidate: str) -> Flow:
        """An operator has read what may be lost, and typed the name."""
        if not self._samples[self._replicas.index(candidate)].disk_is_new:
            yield from self.failover(candidate, may_lose=True)

    def promote_by_hand(self, candidate: str) -> Flow:
        """`highwater admin promote`: no row, and no one is stopped. With --yes where the operator agrees to a loss."""
        answers = yield {replica: Status() for replica in self._replicas}
        members = tuple(
            GroupMember(name if status is None else status.address, None, status) for name, status in answers.items()
        )
        loop = self._loop
        try:
            plan = plan_promotion(members, GROUP, self._ids[candidate], loop.random)
        except HighwaterError:
            return
        yes = not plan.cleanness.clean and loop.random.random() < self.unclean
        if not (plan.cleanness.clean or yes):
            return
        requests = by_hand.promotion_by_hand(plan, may_lose=yes)
        with suppress(HighwaterError):
            yield from self.carried_out(requests, partial(self._carry_out_by_hand, plan, loop.now_s))

    def _carry_out_by_hand(self, plan: PromotionPlan, began_s: float, request: by_hand.Request) -> Asking[Any]:
        if isinstance(request, by_hand.Wait):
            yield request.seconds
            return self._loop.now_s - began_s < request.most_s
        name = next((name for name, replica_id in self._ids.items() if replica_id == request.replica_id), None)
        said = None if name is None else (yield {name: self._by_hand(plan, request)})[name]
        status = said if isinstance(said, ReplicaStatus) else getattr(said, "status", None)
        return status or HighwaterError(getattr(said, "refusal", None) or "no answer")

    def _by_hand(self, plan: PromotionPlan, request: by_hand.Request) -> Any:
        match request:
            case by_hand.AskStatus():
                return Status()
            case by_hand.HoldSends():
                self.sends_held_until_s = self._loop.now_s + request.for_ms / 1000 + _TIMEOUT_S
                return Freeze(request.epoch, request.for_ms / 1000)
            case by_hand.Promise():
                return Demote(request.epoch)
            case by_hand.Follow():
                return Demote(request.epoch, request.leader_address)
            case by_hand.Promote():
                decision = request.decision
                self._loop.note(
                    f"by hand: {request.replica_id} shall lead in {request.new_epoch}: {decision.cleanness}"
                )
                return Promote(
                    request.expected_epoch,
                    request.new_epoch,
                    clean=decision.cleanness.clean or decision.gives_back,
                    in_sync=request.in_sync,
                    with_incomplete_log=request.with_incomplete_log,
                    lacks_an_epoch=request.lacks_an_epoch,
                    fenced={*request.in_sync} == plan.group.replica_ids,
                )
            case _:
                raise AssertionError(f"not a request to a replica: {request}")

    def mistaken_promotion(self, candidate: str) -> Flow:
        """On the command line, past the row: what an old page showed is expected, and the new epoch is too low or too high."""
        status = self.statuses.get(candidate)
        if status is None or candidate in self.replaced:
            return  # a disk that is new has not heard of the epochs that its replica had: nothing can tell them from a new group's
        random = self._loop.random
        expected = status.epoch - random.choice((1, 2))
        new = random.choice((max(expected, 0), max(expected, 0) + 1, status.epoch + 1))
        yield {candidate: Promote(expected, new, clean=False, with_incomplete_log=True, fenced=False)}

    def mistaken_demotion(self, replica: str) -> Flow:
        """A leader is demoted for no reason; then a replica must be promoted."""
        status = self.statuses.get(replica)
        if status is not None:
            yield {replica: Demote(status.epoch)}
