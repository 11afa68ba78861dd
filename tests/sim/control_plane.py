"""The control plane and its operators in the simulation: promotions, clean and not, with a row of epochs that is compared and
set. What is decided, and in which order, is highwater/promotion.py's, as in controlplane/failover/steps.py; here are the
requests, the row, and workers that die.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, Protocol

from highwater.promotion import (
    FormerLeader,
    Group,
    Standing,
    ballot_above,
    decide,
    disk_that_counts,
    promises_in,
    ranked_by_position,
)
from tests.sim.event_loop import EventLoop
from tests.sim.network import Network
from tests.sim.sim_requests import Demote, Freeze, Promote, RoleAnswer, Status, StatusAnswer

Step = dict[str, Any] | float
Flow = Generator[Step, dict[str, Any], None]
_TIMEOUT_S = 1.0
_WATCH_PERIOD_S = 0.7


class Supervisor(Protocol):
    """What starts processes, and starts them again."""

    def stop(self, name: str) -> None:
        """Kill it; it is started again a few seconds later."""

    def runs(self, name: str) -> bool: ...


class ControlPlane:
    """Its row is linearizable, as PostgreSQL's is; its workers die anywhere."""

    name = "control-plane"

    def __init__(
        self, loop: EventLoop, network: Network, *, replicas: list[str], in_sync_replicas: int, dying: float
    ) -> None:
        self._loop = loop
        self._network = network
        self._replicas = replicas
        self._in_sync_replicas = in_sync_replicas
        self._dying = dying  # the chance of a worker to die, at each step
        self.row_epoch = 0
        self.failovers = 0.0  # the chance that a look that finds no leader begins a failover
        self.unclean = 0.0  # the chance that the operator gives up on a clean one
        self._careful = False
        self._leaderless_looks = 0
        self.leader: str | None = None
        self.statuses: dict[str, StatusAnswer] = {}
        # Replicas with a new disk, one at a time: the next one is not replaced before it has caught up.
        self.replaced: set[str] = set()
        self._disks: dict[int, str] = {}  # that last counted, by replica id
        self._leases: dict[
            int, tuple[int, float]
        ] = {}  # the last word of each replica's leader, and until when it is good
        self._ended: dict[str, float] = {}  # whose process was seen to have ended, since when it has not answered again
        self.supervisor: Supervisor | None = None
        self._at_work = False  # whether a worker runs an operation that the detector began
        self._led_last: tuple[int, int] | None = None  # (epoch, replica id) of who was last seen leading
        network.join(self)

    def heal(self, *, memory_lost: bool = False) -> None:
        """Workers no longer die, and operators do what is right."""
        self._dying = 0.0
        self.failovers = 1.0
        # Where memory was lost with the power no promotion may be provably clean: an operator types the loss, of the best log.
        self.unclean = 1.0 if memory_lost else 0.0
        self._careful = True

    # --- running flows

    def start(self, flow: Flow, *, immortal: bool = False) -> None:
        """Run a flow: it yields requests by replica and gets answers (None: none came), or it yields seconds to wait."""
        self._advance(flow, None, immortal)

    def _advance(self, flow: Flow, answers: dict[str, Any] | None, immortal: bool) -> None:
        if answers is not None and not immortal and self._loop.random.random() < self._dying:
            return  # this worker died
        try:
            step = flow.send(answers) if answers is not None else next(flow)
        except StopIteration:
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

    def _compare_and_set(self, expected: int, new: int) -> bool:
        if self.row_epoch != expected:
            return False
        self.row_epoch = new
        return True

    # --- flows

    def watch(self) -> Flow:
        """The detector: for ever."""
        while True:
            yield _WATCH_PERIOD_S
            asked_at_s = self._loop.now_s
            answers = yield {replica: Status() for replica in self._replicas}
            self.statuses = {replica: status for replica, status in answers.items() if status is not None}
            for status in self.statuses.values():
                self._disks[status.replica_id] = self._disk(status)
                self._note_lease(status, asked_at_s)
            self._note_leaders()
            self._note_ends()
            leaders = [replica for replica, status in self.statuses.items() if status.leads]
            self.leader = max(leaders, key=lambda replica: self.statuses[replica].epoch) if leaders else None
            highest = max((status.epoch for status in self.statuses.values()), default=0)
            # Claims raise epochs without the control plane; what it has once seen it must not forget with the replica.
            self.row_epoch = max(self.row_epoch, highest)
            self._look_at_replaced()
            if self.leader is not None and self.statuses[self.leader].epoch == highest:
                self._leaderless_looks = 0
                continue
            self._leaderless_looks += 1
            if self._at_work or self._leaderless_looks < 3 or self._loop.random.random() >= self.failovers:
                continue
            if self._leaderless_looks > 6 and self._loop.random.random() < self.unclean and self.statuses:
                self.start(self._alone(self.promote_unclean(self._to_promote_unclean())))
            else:
                self.start(self._alone(self.failover()))

    def _alone(self, flow: Flow) -> Flow:
        """A cluster has one operation at a time: the next begins when this one has ended, or its worker died."""
        self._at_work = True
        try:
            yield from flow
        finally:
            self._at_work = False

    def _note_leaders(self) -> None:
        leading = [(status.epoch, status.replica_id) for status in self.statuses.values() if status.leads]
        if leading and (self._led_last is None or max(leading) > self._led_last):
            self._led_last = max(leading)

    def _note_promoted(self, answer: Any) -> None:
        """Who answered that it leads did, though no look may have found it leading before the next fence."""
        if isinstance(answer, RoleAnswer) and answer.status is not None and answer.status.leads:
            led = (answer.status.epoch, answer.status.replica_id)
            self._led_last = led if self._led_last is None else max(self._led_last, led)

    def _former(self, leader: StatusAnswer | None, row: int, told: list[StatusAnswer]) -> FormerLeader | None:
        """Who led until now, or last: no one since, if the row knows of no newer epoch, or if all say that there is none."""
        if leader is not None and leader.epoch >= row:
            ended_at_s = self._ended.get(self._replicas[leader.replica_id])
            return FormerLeader(
                replica_id=leader.replica_id, epoch=leader.epoch, no_one_since=True, ended_at_s=ended_at_s
            )
        if self._led_last is None:
            return None
        epoch, replica_id = self._led_last
        everyone = len(told) == len(self._replicas) and max(status.log_epoch for status in told) == epoch
        ended_at_s = self._ended.get(self._replicas[replica_id])
        return FormerLeader(replica_id=replica_id, epoch=epoch, no_one_since=everyone, ended_at_s=ended_at_s)

    def _note_lease(self, status: StatusAnswer, asked_at_s: float) -> None:
        if status.in_sync_epoch is not None and status.in_sync_for_s is not None:
            self._leases[status.replica_id] = (status.in_sync_epoch, asked_at_s + status.in_sync_for_s)

    def _note_ends(self) -> None:
        for replica in self._replicas:
            if replica in self.statuses:
                self._ended.pop(replica, None)
            elif self.supervisor is not None and not self.supervisor.runs(replica):
                self._ended.setdefault(replica, self._loop.now_s)

    def _stop_silent(self, silent: set[str], leader: StatusAnswer | None) -> None:
        """Have the supervisor kill who led last and did not answer, unless it does not answer either; it starts it later."""
        led_last = None if self._led_last is None else self._led_last[1]
        former = led_last if leader is None else leader.replica_id
        if former is None or self._replicas[former] not in silent or self.supervisor is None:
            return
        if self._dying and self._loop.random.random() < 0.3:
            return
        self.supervisor.stop(self._replicas[former])
        self._ended.setdefault(self._replicas[former], self._loop.now_s)

    def _disk(self, status: StatusAnswer) -> str:
        return disk_that_counts(
            self._disks.get(status.replica_id, ""), status.incarnation, has_caught_up=status.has_caught_up
        )

    def _standing(self, status: StatusAnswer) -> Standing:
        lease = self._leases.get(status.replica_id)
        return Standing(
            replica_id=status.replica_id,
            epoch=status.epoch,
            log_epoch=status.log_epoch,
            held_offset=status.held_offset,
            end_offset=status.end_offset,
            leads=status.leads,
            promotable=status.promotable,
            elects=bool(status.voters),
            disk_is_new=self._disk(status) != status.incarnation,
            log_may_be_incomplete=status.log_may_be_incomplete,
            shows_below=status.shows_below,
            in_sync_epoch=None if lease is None else lease[0],
            in_sync_until_s=None if lease is None else lease[1],
        )

    def _look_at_replaced(self) -> None:
        if self.leader is None:
            return
        leader = self.statuses[self.leader]
        for replica in sorted(self.replaced & self.statuses.keys()):
            status = self.statuses[replica]
            level = status.log_epoch == leader.log_epoch and status.held_offset >= leader.held_offset
            if level and status.replica_id in leader.in_sync:
                self.replaced.discard(replica)

    def failover(self, preferred: str | None = None) -> Flow:
        """A clean promotion, or the role goes back to who led until now, or nothing happens."""
        row = self.row_epoch
        answers = yield {replica: Status() for replica in self._replicas}
        statuses = {replica: status for replica, status in answers.items() if status is not None}
        ballot = ballot_above([row, *(status.epoch for status in statuses.values())])
        if not self._compare_and_set(row, ballot.epoch):
            return
        leading = [status for status in statuses.values() if status.leads]
        leader = max(leading, key=lambda status: status.epoch, default=None)
        asked_at_s = self._loop.now_s
        answers = yield {replica: Demote(ballot.fence) for replica in self._replicas}
        told = [
            answer.status for answer in answers.values() if isinstance(answer, RoleAnswer) and answer.status is not None
        ]
        for status in told:
            self._note_lease(status, asked_at_s)
        self._stop_silent({replica for replica, answer in answers.items() if answer is None}, leader)
        promises = promises_in(map(self._standing, told), ballot)
        if self._others_may_elect({self._replicas[status.replica_id]: status for status in told}):
            return
        group = Group(
            replica_ids=range(len(self._replicas)),
            in_sync_replicas=self._in_sync_replicas,
            former=self._former(leader, row, told),
        )
        wanted = self._wanted(promises, preferred)
        if wanted is None:
            return
        decision = decide(group, promises, wanted, may_choose=preferred is None)
        if decision.leader_id is None:
            return
        candidate = self._replicas[decision.leader_id]
        self._loop.note(f"clean promotion: {candidate} shall lead in {ballot.epoch}")
        promote = Promote(ballot.fence, ballot.epoch, clean=True, in_sync=tuple(sorted(promises)))
        answers = yield {candidate: promote}
        if answers[candidate] is None:
            answers = yield {candidate: promote}  # a worker resumes: what was decided, again
        self._note_promoted(answers[candidate])

    def _others_may_elect(self, promised: dict[str, StatusAnswer]) -> bool:
        """Whether an election could still be won beside a promotion. Never in groups that are led by decree only."""
        return False

    def _wanted(self, promises: dict[int, Standing], preferred: str | None) -> int | None:
        if preferred is not None:
            return self._replicas.index(preferred)
        ranked = ranked_by_position([one for one in promises.values() if one.promotable], None)
        best = [one.replica_id for one in ranked if one.position == ranked[0].position]
        return self._loop.random.choice(best) if best else None

    def switchover(self, candidate: str) -> Flow:
        """Planned: drain, let the candidate catch up, switch."""
        leader = self.leader
        if leader is None or leader == candidate:
            return
        yield {leader: Freeze(self.statuses[leader].epoch, 2.0)}
        for _ in range(8):
            answers = yield {leader: Status(), candidate: Status()}
            ours, theirs = answers[leader], answers[candidate]
            if ours is None or theirs is None:
                return
            if theirs.held_offset >= ours.end_offset:
                break
            yield 0.1
        yield from self.failover(candidate)

    def _to_promote_unclean(self) -> str:
        """Any that answers, or, by an operator who takes care, the one with the most."""
        if not self._careful:
            return self._loop.random.choice(sorted(self.statuses))
        return max(
            sorted(self.statuses),
            key=lambda name: (self.statuses[name].log_epoch, self.statuses[name].held_offset),
        )

    def promote_unclean(self, candidate: str) -> Flow:
        """An operator has read what may be lost, and typed the name."""
        row = self.row_epoch
        answers = yield {candidate: Status()}
        status = answers[candidate]
        if status is None or self._standing(status).disk_is_new:
            return
        known = [other.epoch for other in self.statuses.values()]
        epoch = max([row, status.epoch, *known]) + 1
        if self._compare_and_set(row, epoch):
            answers = yield {candidate: Promote(status.epoch, epoch, clean=False)}
            self._note_promoted(answers[candidate])

    def mistaken_promotion(self, candidate: str) -> Flow:
        """On the command line, past the row: what an old page showed is expected, and the new epoch is too low or too high."""
        status = self.statuses.get(candidate)
        if status is None:
            return
        random = self._loop.random
        expected = status.epoch - random.choice((1, 2))
        new = random.choice((max(expected, 0), max(expected, 0) + 1, status.epoch + 1))
        yield {candidate: Promote(expected, new, clean=False)}

    def mistaken_demotion(self, replica: str) -> Flow:
        """A leader is told to stop for no reason; somebody must be promoted then."""
        status = self.statuses.get(replica)
        if status is not None:
            yield {replica: Demote(status.epoch)}
