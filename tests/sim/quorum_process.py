"""A broker process of a group that may elect its leader, and what its observer records beyond broker_process.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from brokerd.replica.elections import Outcome
from brokerd.replica.pull_protocol import PullDecision, ReplicaPull
from brokerd.replica.quorum_messages import Answer, Request, VoteAnswer, VoteRequest
from tests.sim.broker_process import BrokerProcess
from tests.sim.quorum_history import ElectingHistory, QuorumHistory, Record

if TYPE_CHECKING:
    from tests.sim.quorum_machine import QuorumMachine

_LOOKS = 2
# Ticks come so often: letters that one finds when it goes on after a stop may all be read before its next tick.
_LOOK_S = 0.05
_FASTEST = 1.11  # a machine's clock runs at most that fast
_SLACK_S = 0.5  # how much longer than the check of the quorum allows no one may lead whom no majority pulls


class ElectingProcess(BrokerProcess):
    """Of any group that elects, for now or for good."""

    machine: QuorumMachine
    history: ElectingHistory

    def watch(self) -> None:
        super().watch()
        quorum, replica = self.broker.quorum, self.replica
        take, answer, pulled = quorum.take, quorum.answer, replica.pulled
        self._led: int | None = None
        self._led_from_s = 0.0
        self._pulled_s: dict[int, float] = {}
        self._looks_without_pulls, self._looked_s = 0, 0.0

        def watched_take(outcome: Outcome) -> None:
            self._took(outcome)
            take(outcome)
            self._check_pulls()

        def watched_answer(message: Request) -> Answer | None:
            reply = answer(message)
            if isinstance(message, VoteRequest) and isinstance(reply, VoteAnswer) and reply.granted and not reply.pre:
                self.history.voted(self.name, message.epoch, message.candidate)
            return reply

        def watched_pull(pull: ReplicaPull, address: str, now_s: float, answered_s: float) -> PullDecision:
            if replica.leads and pull.leader_epoch == replica.epoch:
                self._pulled_s[pull.replica_id] = self.loop.now_s
            return pulled(pull, address, now_s, answered_s)

        quorum.take = watched_take  # type: ignore[method-assign] # the observer stands in between
        quorum.answer = watched_answer  # type: ignore[method-assign] # as above
        replica.pulled = watched_pull  # type: ignore[method-assign,assignment] # as above

    def _took(self, outcome: Outcome) -> None:
        if outcome.why is not None:
            self.loop.note(f"{self.name} stops leading: {outcome.why}")
        if outcome.trusts:
            self.loop.note(f"{self.name} takes its log for whole")
            waited_s = self.loop.now_s - (self.machine.began_at_s or 0.0)
            if waited_s * _FASTEST < self.settings.quorum_times.doubt:
                self.machine.violation(f"{self.name} takes its log for whole {waited_s:.1f} s after it began")
            self.history.trusting.add(self.name)
        if outcome.log_grew:
            self.history.counts["disks adopted, step"] += 1
        for _, message in outcome.messages:
            if isinstance(message, VoteRequest) and not message.pre:
                self.history.voted(self.name, message.epoch, self.settings.replica_id)

    def refused(self) -> None:
        if self.replica.leads:
            self.history.refused_by_leaders += 1

    def begins_to_lead(self) -> bool:
        """Whether it has begun to since the last look."""
        replica = self.replica
        if not replica.leads or self._led == replica.epoch:
            return False
        self._led, self._led_from_s, self._pulled_s = replica.epoch, self.loop.now_s, {}
        self.loop.note(f"{self.name} leads in epoch {replica.epoch} from {self.store.end_offset}")
        return True

    def _check_pulls(self) -> None:
        """No one leads whom no majority pulls: not at once, for one that was stopped must first look at its clock."""
        now_s = self.loop.now_s  # not by its own clock, which may be wrong
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        self._looks_without_pulls += 1
        replica = self.replica
        limit_s = replica.settings.quorum_times.check_quorum + _SLACK_S
        if self._led != replica.epoch:  # it began in this step: since when it leads is noted after it
            self._looks_without_pulls = 0
            return
        if not replica.leads or replica.elections is None or now_s - self._led_from_s <= limit_s:
            self._looks_without_pulls = 0
            return
        voters = replica.members.voters
        silent_s = {voter: now_s - self._pulled_s.get(voter, float("-inf")) for voter in voters}
        silent_s[self.settings.replica_id] = 0.0
        in_touch = sum(silent_s[voter] <= limit_s for voter in voters)
        if in_touch >= replica.members.majority:
            self._looks_without_pulls = 0
        elif self._looks_without_pulls > _LOOKS:
            self.machine.violation(
                f"{self.name} leads in epoch {replica.epoch}, and no majority has pulled for {limit_s} s: {silent_s}"
            )

    @property
    def is_adopted(self) -> bool:
        """Whether the group counts its disk, by the log that it has: one that a power cut has emptied names no disk."""
        replica = self.replica
        named = dict(replica.members.incarnations).get(replica.settings.replica_id)
        return replica.saved.joined and named == replica.saved.incarnation and not replica.disk_is_new

    def log_records(self, begin: int, end: int) -> Iterator[Record]:
        """The log's records between two offsets, with their epochs."""
        epochs = self.replica.epochs
        for start, record in self.walk(begin, end):
            yield Record(start, start + len(record), epochs.epoch_at(start), crc32(record))


class QuorumProcess(ElectingProcess):
    """Of a group that always elects."""

    history: QuorumHistory

    def watch(self) -> None:
        super().watch()
        self._matched = 0  # up to where its confirmed records were compared with the committed ones
        self._looked_at: tuple[object, ...] = ()

    def observe(self) -> None:
        replica, history, machine, store = self.replica, self.history, self.machine, self.store
        if replica.elections is None:
            return  # it has not found its role yet
        now = (replica.saved, replica.in_sync, replica.confirm_offset, store.end_offset, len(store.doubts))
        if now == self._looked_at:
            return
        self._looked_at = now
        history.reported_epoch(self.name, replica.epoch)
        machine.members = replica.members
        machine.joined = replica.saved.joined
        machine.blank &= not self.is_adopted
        if not replica.saved.log_may_be_incomplete and not self.store.doubts:
            machine.holds_all()
        if machine.spoiled_at is not None and machine.spoiled_at <= self.store.end_offset < self._matched:
            self._matched = self.store.end_offset  # it may drop its log from the damage on, and fetch that again
        if history.given_up_from is not None and history.given_up_from <= self.store.end_offset < self._matched:
            self._matched = self.store.end_offset  # it follows those who went on without
        if self.store.end_offset < self._matched:
            machine.violation(f"{self.name} cut to {self.store.end_offset}, below its confirmOffset {self._matched}")
        if self.begins_to_lead():
            history.leads(replica.epoch, f"{self.name}#{machine.runs}")
            history.sends_back |= replica.saved.lacks_shown_from is not None
            history.elected(self.name, replica.epoch, self.log_records(0, history.committed_end), self.store.end_offset)
        confirmed = replica.confirm_offset
        if confirmed > self._matched:
            records = self.log_records(self._matched, confirmed)
            if replica.leads:
                history.commits(self.name, replica.epoch, records)
            else:
                history.matches(self.name, records)
            self._matched = confirmed
        elif confirmed < self._matched:
            machine.violation(f"confirmOffset of {self.name} fell from {self._matched} to {confirmed}")
