"""A broker process of a group whose mode changes while it runs, and what its observer records."""

from __future__ import annotations

from brokerd.replica.mode_change import PendingMode
from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.voters import Members
from mqwire.mode import Mode
from tests.sim.broker_process import BrokerProcess
from tests.sim.changing_history import ChangingHistory
from tests.sim.history import Copy
from tests.sim.quorum_process import ElectingProcess


class ChangingProcess(ElectingProcess):
    """Elections come and go with the mode."""

    history: ChangingHistory

    def watch(self) -> None:
        super().watch()
        self._older: list[tuple[int, ReplicaSettings, Members]] = []
        replica = self.replica
        modes = replica.modes
        adopt = modes.adopt

        def watched_adopt(now_s: float) -> bool:
            pending, before, led = modes.pending, (replica.settings, replica.members), replica.leads
            if not adopt(now_s):
                return False
            assert pending is not None, "it adopts what was pending"
            if led:
                self._check_confirmed(pending, *before)
            self._older.append((pending.begin_offset, *before))
            self.loop.note(f"{self.name} acts by {replica.settings.mode} in epoch {replica.epoch}")
            self.history.counts[f"modes: {replica.settings.mode}"] += 1
            self._led_from_s = self.now_s
            return True

        modes.adopt = watched_adopt  # type: ignore[method-assign] # the observer stands in between

    def _check_confirmed(self, change: PendingMode, settings: ReplicaSettings, members: Members) -> None:
        """A change is in force once as many disks hold its record as confirmOffset asks for in the mode before it."""
        *_, (start, record) = self.walk(change.begin_offset, change.end_offset)  # a blank may lie in front of it
        machines = [self.machine, *self.machine.others]
        copy = Copy(self.name, self.replica.epochs.epoch_at(start), start, start + len(record), -1)
        lost_by = self.history.lost_by(copy)  # memory that a power cut took after the report counts by it
        holders = {one.settings.replica_id for one in machines if one.holds_bytes(start, record) or one.name in lost_by}
        if settings.mode is Mode.DLEDGER:
            enough = len(holders.intersection(members.voters)) >= members.majority
        else:
            enough = len(holders) >= settings.min_in_sync_replicas  # confirmOffset goes on below inSyncReplicas
        if not enough:
            self.machine.violation(
                f"{self.name} acts by {change.policy.mode} in epoch {self.replica.epoch}, and only {sorted(holders)} hold the"
                f" record that says so, which {settings.mode} must confirm"
            )

    def policies_of(self, copy: Copy) -> list[tuple[ReplicaSettings, Members]]:
        """By which a record may be acknowledged: what is in force, and in front of a change what was so before."""
        older = [(settings, members) for begin, settings, members in self._older if copy.end_offset <= begin]
        return [(self.replica.settings, self.replica.members), *older]

    def observe(self) -> None:
        replica, machine = self.replica, self.machine
        machine.members, machine.joined = replica.members, replica.saved.joined
        machine.blank &= not (machine.joined if replica.elections is None else self.is_adopted)
        if self.begins_to_lead():
            records = self.log_records(self.store.min_physical_offset, self.history.committed_end)
            self.history.begins_to_lead(self.name, replica.epoch, records)
        BrokerProcess.observe(self)

    def _mark_confirmed(self, begin: int, end: int, enough: bool) -> None:
        super()._mark_confirmed(begin, end, enough)
        if enough:
            self.history.commits_safely(self.name, self.replica.epoch, self.log_records(begin, end))
