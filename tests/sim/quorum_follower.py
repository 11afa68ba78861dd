"""The follower's loop of a quorum-led group: whoever leads is learned from votes, announcements and the others' answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.follower_loop import FollowerLoop
from tests.sim.sim_requests import Pull, PullAnswer

if TYPE_CHECKING:
    from tests.sim.quorum_process import QuorumProcess

PULL_WAIT_MS = 500
ANSWER_TIMEOUT_S = 0.6


class QuorumFollower(FollowerLoop):
    """As FollowerLoop, but every answered pull is the heartbeat of a leader."""

    _process: QuorumProcess

    def _next(self) -> None:
        if not self._process.replica.leads and self.halted is None:
            self._find_leader()

    def _find_leader(self) -> None:
        settings, replica = self._process.settings, self._process.replica
        known = replica.leader_address
        candidates = [known, *(address for _, address in sorted(settings.peers.items()))]
        addresses = [one for one in dict.fromkeys(candidates) if one not in (None, settings.address)]
        if known is not None and not self._failures:
            self._pull(known)
            return
        address = addresses[max(0, self._failures - 1) % len(addresses)]
        assert address is not None, "None was left out"
        self._pull(address)

    def _pull(self, address: str) -> None:
        process = self._process
        replica = process.replica
        if replica.leads:
            return
        pull = replica.next_pull(max_bytes=process.machine.pull_bytes, max_wait_ms=PULL_WAIT_MS)

        def answered(answer: PullAnswer | None) -> None:
            if answer is None:
                raise ValueError(f"{address} did not answer")
            if answer.answer != "fenced":
                process.elections.heard_leader(pull.leader_epoch, process.now_s)
            elif replica.leader_address == address:
                process.elections.leader_lost(process.now_s)
            self._answered(address, answer, pull.end_offset, pull.leader_epoch)

        self._call(address, Pull(pull, process.settings.address), answered, PULL_WAIT_MS / 1000 + ANSWER_TIMEOUT_S)
