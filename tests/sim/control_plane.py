"""A twin of the control plane and of its operators: decrees, clean and not, with a row of epochs that is compared and set.

A clean decree is a promise of enough replicas, as a ballot of Paxos is: first each that counts adopts a new epoch, which ends
everything older that may still be under way, then the best log of those that answered leads in the epoch behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from tests.sim.event_loop import EventLoop
from tests.sim.network import Answer, Network
from tests.sim.sim_requests import Demote, Freeze, Promote, RoleAnswer, Status, StatusAnswer

Step = dict[str, Any] | float
Flow = Generator[Step, dict[str, Any], None]
_TIMEOUT_S = 1.0
_WATCH_PERIOD_S = 0.7


class ControlPlane:
    """Its row is linearizable, as PostgreSQL's is; its workers die anywhere."""

    name = "control-plane"

    def __init__(
        self, loop: EventLoop, network: Network, *, replicas: list[str], in_sync_replicas: int, dying: float
    ) -> None:
        self._loop = loop
        self._network = network
        self._replicas = replicas
        self._needed = len(replicas) - in_sync_replicas + 1
        self._dying = dying  # the chance of a worker to die, at each step
        self.row_epoch = 0
        self.failovers = 0.0  # the chance that a look that finds no leader begins a failover
        self.unclean = 0.0  # the chance that the operator gives up on a clean one
        self._leaderless_looks = 0
        self.leader: str | None = None
        self.statuses: dict[str, StatusAnswer] = {}
        # Replicas with a new disk: they don't count before they have caught up, for what they once held is gone.
        self.replaced: set[str] = set()
        network.join(self)

    def arrive(self, action: Callable[[], None]) -> None:
        action()

    def handle(self, request: Any, answer: Answer) -> None:
        raise TypeError("nobody asks the control plane")

    def heal(self) -> None:
        """Workers no longer die, and operators do what is right."""
        self._dying = 0.0
        self.failovers = 1.0
        self.unclean = 0.0

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
            answers = yield {replica: Status() for replica in self._replicas}
            self.statuses = {replica: status for replica, status in answers.items() if status is not None}
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
            if self._leaderless_looks < 3 or self._loop.random.random() >= self.failovers:
                continue
            if self._leaderless_looks > 6 and self._loop.random.random() < self.unclean and self.statuses:
                self.start(self.promote_unclean(self._loop.random.choice(sorted(self.statuses))))
            else:
                self.start(self.failover())

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
        """A clean promotion, or none."""
        row = self.row_epoch
        answers = yield {replica: Status() for replica in self._replicas}
        fence = max([row, *(status.epoch for status in answers.values() if status is not None)]) + 1
        if not self._compare_and_set(row, fence):
            return
        answers = yield {replica: Demote(fence) for replica in self._replicas}
        promised = {
            replica: answer.status
            for replica, answer in answers.items()
            if isinstance(answer, RoleAnswer) and answer.status is not None and answer.status.epoch == fence
            if replica not in self.replaced
        }
        # With all answers of those that count, the best of them has all there is.
        if len(promised) < min(self._needed, len(self._replicas) - len(self.replaced)) or self._others_may_elect(
            promised
        ):
            return
        best = max((status.log_epoch, status.held_offset) for status in promised.values())
        candidates = sorted(
            replica
            for replica, status in promised.items()
            if status.promotable and (status.log_epoch, status.held_offset) == best
        )
        if not candidates:
            return
        candidate = preferred if preferred in candidates else self._loop.random.choice(candidates)
        if not self._compare_and_set(fence, fence + 1):
            return
        self._loop.note(f"clean decree: {candidate} shall lead in {fence + 1}")
        promote = Promote(fence, fence + 1, clean=True)
        answers = yield {candidate: promote}
        if answers[candidate] is None:
            yield {candidate: promote}  # a worker resumes: the same decree again

    def _others_may_elect(self, promised: dict[str, StatusAnswer]) -> bool:
        """Whether an election could still be won beside a decree. Never in groups that are led by decree only."""
        return False

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

    def promote_unclean(self, candidate: str) -> Flow:
        """An operator has read what may be lost, and typed the name."""
        row = self.row_epoch
        answers = yield {candidate: Status()}
        status = answers[candidate]
        if status is None or candidate in self.replaced:
            return
        known = [other.epoch for other in self.statuses.values()]
        epoch = max([row, status.epoch, *known]) + 1
        if self._compare_and_set(row, epoch):
            yield {candidate: Promote(status.epoch, epoch, clean=False)}

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
