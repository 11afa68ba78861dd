"""A broker process of a quorum-led group: ticks, votes and what an operator asks, around `brokerd.replica.elections`.

Its model is brokerd/services/quorum.py, and for the rest what broker_process.py names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

from brokerd.replica.elections import Elections, Outcome
from brokerd.replica.quorum_messages import Request, VoteAnswer, VoteRequest
from brokerd.replica.role_refused import RoleRefused
from tests.sim.broker_process import FILE_BYTES, BrokerProcess
from tests.sim.follower_loop import FollowerLoop
from tests.sim.network import Answer
from tests.sim.quorum_follower import QuorumFollower
from tests.sim.quorum_history import QuorumHistory, Record
from tests.sim.sim_requests import Change, Election, Pull, Send

if TYPE_CHECKING:
    from tests.sim.quorum_machine import QuorumMachine

TICK_S = 0.05
VOTE_TIMEOUT_S = 1.0
_EXPIRE_HELD_S = 0.1
_SLACK_S = 0.5  # how much longer than the check of the quorum allows nobody may lead whom no majority pulls


class QuorumProcess(BrokerProcess):
    """See the module. `now_s` is its machine's own clock."""

    follower_type: type[FollowerLoop] = QuorumFollower
    machine: QuorumMachine
    history: QuorumHistory

    @property
    def now_s(self) -> float:
        return self.machine.monotonic_s()

    @property
    def elections(self) -> Elections:
        elections = self.replica.elections
        assert elections is not None, "in mode QUORUM it has them"
        return elections

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        super().later(delay_s / self.machine.rate, action)

    def start(self) -> None:
        self._matched = 0  # up to where its confirmed records were compared with the committed ones
        self._led: int | None = None
        self._led_from_s = 0.0
        self._pulled_s: dict[int, float] = {}
        super().start()
        self.every(TICK_S, self._tick)
        self.every(_EXPIRE_HELD_S, self._answer_expired)

    # --- the core's inputs and what they bring

    def _tick(self) -> None:
        if self.follower.cutting:
            return  # the log is being reopened: what it says then is nothing
        self.do(self.elections.tick(self.now_s, self.machine.now_ms()))
        self._check_pulls()

    def do(self, outcome: Outcome) -> None:
        """Tell the broker of its role, and the others what is to be said."""
        if outcome.why is not None:
            self.loop.note(f"{self.name} stops leading: {outcome.why}")
        if outcome.trusts:
            self.loop.note(f"{self.name} takes its log for whole")
            self.history.trusting.add(self.name)
        if outcome.log_grew:
            self.history.counts["disks adopted, step"] += 1
            self.flush_soon()
            self.held_changed()
        if outcome.role_changed:
            self.role_changed()
        elif outcome.leader_changed:
            self.leader_changed()
        for replica_id, request in outcome.messages:
            self._say(replica_id, request)

    def _say(self, replica_id: int, request: Request) -> None:
        if isinstance(request, VoteRequest) and not request.pre:
            self.history.voted(self.name, request.epoch, self.settings.replica_id)
        address = self.replica.address_of(replica_id)
        assert address is not None, "all are configured"

        def answered(answer: Any) -> None:
            if answer is not None and not self.follower.cutting:
                self._step(answer)

        self.call(address, Election(request), answered, VOTE_TIMEOUT_S)

    def _step(self, message: Any) -> Any:
        outcome = self.elections.step(message, self.now_s, self.machine.now_ms())
        reply = outcome.reply
        if isinstance(reply, VoteAnswer) and reply.granted and not reply.pre:
            self.history.voted(self.name, message.epoch, message.candidate)
        self.do(outcome)
        return reply

    def connection_broke(self, address: str) -> None:
        """The process at that address ended, and its machine said so."""
        if self.replica.leader_address == address:
            self.elections.leader_lost(self.now_s)

    # --- requests

    def handle(self, request: Any, answer: Answer) -> None:
        if self.follower.cutting:
            super().handle(request, answer)
        elif isinstance(request, Election):
            answer(self._step(request.message))
        elif isinstance(request, Change):
            answer(self._change(request))
        elif isinstance(request, Pull):
            self._note_pull(request)
            super().handle(request, answer)
        else:
            if isinstance(request, Send) and self.replica.leads and self.replica.refuses_sends(self.now_s) is not None:
                self.history.refused_by_leaders += 1
            super().handle(request, answer)

    def _change(self, change: Change) -> str | None:
        elections, now_s, now_ms = self.elections, self.now_s, self.machine.now_ms()
        try:
            if change.kind == "add":
                assert change.replica_id is not None, "the operator names it"
                elections.add_voter(change.replica_id, now_s, now_ms)
            elif change.kind == "remove":
                assert change.replica_id is not None, "the operator names it"
                elections.remove_voter(change.replica_id, now_s, now_ms)
            elif change.kind == "prefer":
                elections.prefer(change.replica_id, now_s, now_ms)
            elif change.kind == "transfer":
                assert change.replica_id is not None, "the operator names it"
                elections.transfer(change.replica_id, now_s)
            else:
                self.do(elections.resign("it is told to stop", now_s))
        except RoleRefused as refused:
            return str(refused)
        self.history.counts[f"changes: {change.kind}"] += 1
        self.loop.note(f"{self.name} {change.kind} {change.replica_id}: {self.replica.members}")
        self.flush_soon()
        self.held_changed()
        return None

    # --- what the observer is told

    def _note_pull(self, request: Pull) -> None:
        if self.replica.leads and request.pull.leader_epoch == self.replica.epoch:
            self._pulled_s[request.pull.replica_id] = self.now_s

    def _check_pulls(self) -> None:
        replica = self.replica
        limit_s = replica.settings.quorum_times.check_quorum + _SLACK_S
        if not replica.leads or self.now_s - self._led_from_s <= limit_s:
            return
        voters = replica.members.voters
        silent_s = {voter: self.now_s - self._pulled_s.get(voter, float("-inf")) for voter in voters}
        silent_s[self.settings.replica_id] = 0.0
        in_touch = sum(silent_s[voter] <= limit_s for voter in voters)
        if in_touch < replica.members.majority:
            self.machine.violation(
                f"{self.name} leads in epoch {replica.epoch}, and no majority has pulled for {limit_s} s: {silent_s}"
            )

    def observe(self) -> None:
        replica, history, machine = self.replica, self.history, self.machine
        history.told(self.name, replica.epoch)
        machine.members = replica.members
        machine.joined = replica.saved.joined
        machine.blank &= not machine.joined or replica.disk_is_new
        if self.store.end_offset < self._matched:
            machine.violation(f"{self.name} cut to {self.store.end_offset}, below its confirmOffset {self._matched}")
        if replica.leads and self._led != replica.epoch:
            self._led, self._led_from_s, self._pulled_s = replica.epoch, self.now_s, {}
            history.leads(replica.epoch, f"{self.name}#{machine.runs}")
            history.elected(self.name, replica.epoch, self._records(0, history.committed_end), self.store.end_offset)
        confirmed = replica.confirm_offset
        if confirmed > self._matched:
            records = self._records(self._matched, confirmed)
            if replica.leads:
                history.commits(self.name, replica.epoch, records)
            else:
                history.matches(self.name, records)
            self._matched = confirmed
        elif confirmed < self._matched:
            machine.violation(f"confirmOffset of {self.name} fell from {self._matched} to {confirmed}")

    def _records(self, begin: int, end: int) -> Iterator[Record]:
        epochs = self.replica.epochs
        end = min(end, self.store.end_offset)
        while begin < end:
            data = self.store.read_raw(begin, 1 << 16)
            if not data:
                return
            position = 0
            while position < len(data) and begin < end:
                size = int.from_bytes(data[position : position + 4], "big")
                if data[position + 4 : position + 8] == b"\xcb\xd4\x31\x94":  # the head of a BLANK
                    position += 8
                    begin += FILE_BYTES - begin % FILE_BYTES
                    continue
                if size <= 0:
                    self.machine.violation(f"{self.name} has no record at {begin}, in front of its end {end}")
                yield Record(begin, begin + size, epochs.epoch_at(begin), crc32(data[position : position + size]))
                position += size
                begin += size
