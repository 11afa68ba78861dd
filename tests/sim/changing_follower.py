"""The follower's loop of a group whose mode changes: by decree or by election, as its replica acts just now."""

from __future__ import annotations

from tests.sim.follower_loop import FollowerLoop
from tests.sim.quorum_follower import QuorumFollower
from tests.sim.sim_requests import PullAnswer


class ChangingFollower(QuorumFollower):
    """Each step is that of one of the two loops; brokerd/services/replica_follower.py is both in one."""

    @property
    def _steps(self) -> type[FollowerLoop]:
        return FollowerLoop if self._process.replica.elections is None else QuorumFollower

    def role_changed(self) -> None:
        self._steps.role_changed(self)

    def _next(self) -> None:
        self._steps._next(self)

    def _find_leader(self) -> None:
        self._steps._find_leader(self)

    def _failed(self, reason: str) -> None:
        self._steps._failed(self, reason)

    def _pull(self, address: str) -> None:
        self._steps._pull(self, address)

    def _take(self, address: str, answer: PullAnswer, at_offset: int) -> None:
        self._steps._take(self, address, answer, at_offset)
