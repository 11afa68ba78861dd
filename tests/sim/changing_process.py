"""A broker process of a group whose mode changes while it runs.

Its model is brokerd/broker.py (`_mode_changed`), processors/quorum_admin.py (`election`, `change_mode`), and for the rest what
quorum_process.py and broker_process.py name.
"""

from __future__ import annotations

from typing import Any

from brokerd.replica.quorum_messages import BeginEpoch, Noted, Request
from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.role_refused import RoleRefused
from brokerd.replica.voters import Members
from tests.sim.broker_process import BrokerProcess
from tests.sim.changing_follower import ChangingFollower
from tests.sim.changing_history import ChangingHistory
from tests.sim.history import Copy
from tests.sim.network import Answer
from tests.sim.quorum_machine import QuorumMachine
from tests.sim.quorum_process import QuorumProcess
from tests.sim.sim_requests import Change, ChangeMode, Demote, Election, RoleAnswer, StatusAnswer

_ANNOUNCE_PERIOD_S = 2.0
_ANNOUNCE_TIMEOUT_S = 1.0


class ChangingProcess(QuorumProcess):
    """Elections come and go with the mode."""

    follower_type = ChangingFollower
    history: ChangingHistory  # type: ignore[assignment] # what the inherited steps use of it, it has

    def start(self) -> None:
        self._older: list[tuple[int, ReplicaSettings, Members]] = []
        super().start()
        self.every(_ANNOUNCE_PERIOD_S, self._announce)

    @property
    def _elects(self) -> bool:
        return self.replica.elections is not None

    # --- the mode

    def policies_of(self, copy: Copy) -> list[tuple[ReplicaSettings, Members]]:
        """By which a record may be acknowledged: what is in force, and in front of a change what was so before."""
        older = [(settings, members) for begin, settings, members in self._older if copy.end_offset <= begin]
        return [(self.replica.settings, self.replica.members), *older]

    def held_changed(self) -> None:
        self.replica.held_changed(self.now_s)
        self._adopt_mode()
        super().held_changed()

    def replicated(self) -> None:
        self._adopt_mode()
        super().replicated()

    def _adopt_mode(self) -> None:
        replica = self.replica
        pending, before = replica.modes.pending, (replica.settings, replica.members)
        if pending is None or not replica.modes.adopt(self.now_s):
            return
        self._older.append((pending.begin_offset, *before))
        self.loop.note(f"{self.name} acts by {replica.settings.mode_name} in epoch {replica.epoch}")
        self.history.counts[f"modes: {replica.settings.mode_name}"] += 1
        self._led_from_s = self.now_s
        self.follower.role_changed()
        self._register()

    def _change_mode(self, request: ChangeMode, answer: Answer) -> None:
        try:
            self.replica.modes.request(request.policy, self.now_s, self.machine.now_ms())
        except RoleRefused as refused:
            answer(RoleAnswer(str(refused), None))
            return
        self.loop.note(f"{self.name} is to change to {request.policy}")
        self.flush_soon()
        self.held_changed()
        answer(RoleAnswer(None, self.status()))

    def status(self) -> StatusAnswer:
        replica = self.replica
        pending = replica.modes.pending
        return (
            super()
            .status()
            ._replace(
                mode=replica.settings.mode_name,
                pending_mode=None if pending is None else pending.policy.mode,
                voters=replica.members.voters if self._elects else (),
            )
        )

    # --- elections, while there are any

    def _tick(self) -> None:
        if self._elects:
            super()._tick()

    def _say(self, replica_id: int, request: Request) -> None:
        if self.replica.address_of(replica_id) is not None:
            super()._say(replica_id, request)

    def _step(self, message: Any) -> Any:
        return super()._step(message) if self._elects else None

    def connection_broke(self, address: str) -> None:
        if self._elects:
            super().connection_broke(address)

    def handle(self, request: Any, answer: Answer) -> None:
        if self.follower.cutting:
            super().handle(request, answer)
        elif isinstance(request, ChangeMode):
            self._change_mode(request, answer)
        elif self._elects or not isinstance(request, Election | Change):
            super().handle(request, answer)
        elif isinstance(request, Election) and isinstance(request.message, BeginEpoch):
            self.saw_epoch(request.message.epoch, request.message.address)
            answer(Noted(replica=self.settings.replica_id, epoch=self.replica.epoch))
        else:
            answer("this group does not elect its leader" if isinstance(request, Change) else None)

    def _announce(self) -> None:
        """A leader by decree tells those that don't pull (FollowerService._announce)."""
        replica = self.replica
        in_sync = replica.in_sync
        if in_sync is None or self._elects:
            return
        silent_from_s = self.now_s - replica.settings.follower_timeout_s
        for replica_id, address in replica.known_replicas.items():
            follower = in_sync.followers.get(replica_id)
            if follower is None or follower.last_pull_s <= silent_from_s:
                demote = Demote(replica.epoch, self.settings.address)
                self.call(address, demote, lambda answer: None, _ANNOUNCE_TIMEOUT_S)

    # --- what the observer is told

    def observe(self) -> None:
        replica, machine = self.replica, self.machine
        assert isinstance(machine, QuorumMachine), "it is made so"
        machine.members, machine.joined = replica.members, replica.saved.joined
        machine.blank &= not machine.joined
        if replica.leads and self._led != replica.epoch:
            self._led, self._led_from_s, self._pulled_s = replica.epoch, self.now_s, {}
            records = self._records(self.store.min_physical_offset, self.history.committed_end)
            self.history.begins_to_lead(self.name, replica.epoch, records)
        BrokerProcess.observe(self)

    def _mark_confirmed(self, begin: int, end: int, enough: bool) -> None:
        super()._mark_confirmed(begin, end, enough)
        if enough:
            self.history.commits_safely(self.name, self.replica.epoch, self._records(begin, end))
