"""The follower's loop of a quorum-led group: whoever leads is learned from votes, announcements and the others' answers.

As follower_loop.py, with what brokerd/services/replica_follower.py does otherwise where replicas elect: every answered pull
is the heartbeat of a leader, and no pull waits long for a flush.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.follower_loop import FollowerLoop
from tests.sim.sim_requests import Pull, PullAnswer

if TYPE_CHECKING:
    from tests.sim.quorum_process import QuorumProcess

PULL_WAIT_MS = 500
ANSWER_TIMEOUT_S = 0.6
FLUSH_PATIENCE_S = 0.5
FIRST_RETRY_S = 0.1
MAX_RETRY_S = 0.4


class QuorumFollower(FollowerLoop):
    """See the module."""

    _process: QuorumProcess

    def __init__(self, process: QuorumProcess) -> None:
        super().__init__(process)
        self._flushed = True

    def role_changed(self) -> None:
        self._failures = self._hints = 0  # it was told who leads, and need not ask around
        super().role_changed()

    def _next(self) -> None:
        if not self._process.replica.leads and self.halted is None:
            self._find_leader()

    def _find_leader(self) -> None:
        settings, replica = self._process.settings, self._process.replica
        known = replica.leader_address
        if known is not None:
            self._pull(known)
            return
        others = sorted({**replica.known_replicas, **settings.peers}.items())
        addresses = [address for replica_id, address in others if replica_id != settings.replica_id]
        if not addresses:
            self._failed("nobody else is known")
            return
        self._pull(addresses[max(0, self._failures - 1) % len(addresses)])

    def _failed(self, reason: str) -> None:
        process = self._process
        delay_s = min(FIRST_RETRY_S * 2**self._failures, MAX_RETRY_S) * process.loop.random.uniform(0.7, 1.3)
        self._failures = min(self._failures + 1, 30)
        again = self._in_round(lambda _: self._next())
        process.later(delay_s, lambda: again(None))

    def _pull(self, address: str) -> None:
        process = self._process
        replica = process.replica
        if replica.leads:
            return
        wait_ms = PULL_WAIT_MS if self._flushed else 0
        pull = replica.next_pull(max_bytes=process.machine.pull_bytes, max_wait_ms=wait_ms)

        def answered(answer: PullAnswer | None) -> None:
            if answer is None:
                raise ValueError(f"{address} did not answer")
            if answer.answer != "fenced":
                process.elections.heard_leader(answer.epoch, process.now_s)
            elif replica.leader_address == address and answer.leader_address is None:
                process.elections.leader_lost(process.now_s)
            self._answered(address, answer, pull.end_offset, pull.leader_epoch)

        self._call(address, Pull(pull, process.settings.address), answered, wait_ms / 1000 + ANSWER_TIMEOUT_S)

    def _take(self, address: str, answer: PullAnswer, at_offset: int) -> None:
        process = self._process
        replica = process.replica
        replica.told_of_replicas(dict(answer.replicas))
        replica.saw_epoch(answer.epoch, answer.leader_address)
        replica.received(answer.data, at_offset, answer.epoch, answer.confirm_offset)
        here = self._round
        process.replicated()
        self._failures = self._hints = 0
        if here != self._round:
            return  # another mode is in force: the next round has begun
        if not process.settings.durable_counts or (self._flushed and not answer.data):
            self._pull(address)
            return
        going_on = [self._in_round(lambda _: self._pull(address))]

        def go_on() -> None:
            if going_on:
                going_on.pop()(None)

        def flushed() -> None:
            self._flushed = True
            if not self.cutting:
                process.flush_once()
            go_on()

        if self._flushed:
            self._flushed = False
            process.later(process.machine.sync_s(), flushed)
        process.later(FLUSH_PATIENCE_S, go_on)
