"""Bugs planted in the cores of a quorum-led group, as in planted_bugs.py: the simulation must find each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from brokerd.replica import in_sync, voters
from brokerd.replica import replica as replicas
from brokerd.replica.elections import Elections, _ReplicaLog
from brokerd.replica.epoch_map import Divergence, EpochMap
from brokerd.replica.in_sync import InSyncSet
from brokerd.replica.pull_protocol import Diverged, Halt, PullDecision, ReplicaPull, Truncate
from brokerd.replica.quorum import Quorum
from brokerd.replica.quorum_messages import VoteRequest
from brokerd.replica.quorum_state import Ready
from brokerd.replica.replica import Replica
from brokerd.replica.replica_settings import ReplicaSettings
from brokerd.replica.voters import Members
from tests.sim.planted_bugs import BUGS, PlantedBug

Patched = AbstractContextManager[Any]
_of_all_modes = {bug.name: bug.patch for bug in BUGS}


def _votes_twice() -> Patched:
    why_not_vote = Quorum._why_not_vote

    def forgetful(self: Quorum, request: VoteRequest, now_s: float) -> str | None:
        if not request.pre and request.epoch == self.epoch:
            self.voted_for = None
        return why_not_vote(self, request, now_s)

    return patch.object(Quorum, "_why_not_vote", forgetful)


def _asks_with(**better_values: Any) -> Patched:
    """The candidate's log looks better to the voter than it is."""
    why_not_vote = Quorum._why_not_vote

    def lenient(self: Quorum, request: VoteRequest, now_s: float) -> str | None:
        better = {name: value(request, self._log) for name, value in better_values.items()}
        return why_not_vote(self, replace(request, **better), now_s)

    return patch.object(Quorum, "_why_not_vote", lenient)


def _vote_by_offset_only() -> Patched:
    return _asks_with(last_epoch=lambda request, log: log.last_epoch)


def _vote_by_epoch_only() -> Patched:
    return _asks_with(end_offset=lambda request, log: max(request.end_offset, log.end_offset))


def _equal_log_refused() -> Patched:
    """`<=` where `<` belongs: of two equal logs neither gets the other's vote."""
    return _asks_with(end_offset=lambda request, log: request.end_offset - 1)


def _older_epochs_counted() -> Patched:
    def held_by_majority(self: InSyncSet) -> int:
        self._epoch_record_end = 0
        return counted(self)

    counted = InSyncSet._held_by_majority
    return patch.object(InSyncSet, "_held_by_majority", held_by_majority)


def _whole_log_confirmed_at_election() -> Patched:
    in_sync_set = ReplicaSettings.in_sync_set

    def confirmed(self: ReplicaSettings, confirm_offset: int, members: Members, epoch_record_end: int) -> InSyncSet:
        return in_sync_set(self, epoch_record_end, members, epoch_record_end)

    return patch.object(ReplicaSettings, "in_sync_set", confirmed)


def _one_less_than_a_majority() -> Patched:
    def majority_offset(members: Members, held: Mapping[int, int]) -> int:
        offsets = sorted((held.get(voter, 0) for voter in members.voters), reverse=True)
        return offsets[max(0, members.majority - 2)] if offsets else 0

    return patch.object(in_sync, "majority_offset", majority_offset)


def _observers_counted() -> Patched:
    majority_offset = voters.majority_offset

    def everyone(members: Members, held: Mapping[int, int]) -> int:
        offsets = sorted(held.values(), reverse=True)
        return offsets[members.majority - 1] if len(offsets) >= members.majority else majority_offset(members, held)

    return patch.object(in_sync, "majority_offset", everyone)


def _truncated_below_the_commit() -> Patched:
    """The whole last epoch is dropped, and nothing asks whether it was confirmed."""

    def decide_truncation(divergence: Divergence, *, own: EpochMap, own_end_offset: int, **_: Any) -> Truncate | Halt:
        place = [entry.start_offset for entry in own.entries if entry.start_offset < own_end_offset]
        return Truncate(min(place[-1] if place else 0, own.truncation_offset(divergence, own_end_offset)))

    return patch.object(replicas, "decide_truncation", decide_truncation)


def _no_pre_vote() -> Patched:
    def campaigns(self: Quorum, now_s: float, ready: Ready) -> None:
        if not self.is_voter or self.why_not_electable() is not None:
            no_leader_in_time(self, now_s, ready)
        else:
            self._campaign(now_s, ready)

    no_leader_in_time = Quorum._no_leader_in_time
    return patch.object(Quorum, "_no_leader_in_time", campaigns)


def _no_check_of_the_quorum() -> Patched:
    def in_touch(self: Quorum, now_s: float, within_s: float) -> int:
        return len(self._log.members.voters)

    return patch.object(Quorum, "_in_touch", in_touch)


def _diverged_log_counted() -> Patched:
    """What a pull reports is believed although its log is no prefix of the leader's."""
    pulled = Replica.pulled

    def believes(self: Replica, request: ReplicaPull, address: str, now_s: float, answered_s: float) -> PullDecision:
        decision = pulled(self, request, address, now_s, answered_s)
        if isinstance(decision, Diverged) and self._in_sync is not None:
            self._in_sync.report(
                request.replica_id,
                end_offset=request.end_offset,
                durable_offset=request.durable_offset,
                leader_end_offset=self._store.end_offset,
                now_s=now_s,
                joined=request.joined,
                incarnation=request.incarnation,
            )
        return decision

    return patch.object(Replica, "pulled", believes)


def _voters_changed_without_waiting() -> Patched:
    change = Elections._change

    def at_once(self: Elections, members: Members, now_s: float, now_ms: int) -> None:
        self._change_end = 0
        change(self, members, now_s, now_ms)

    return patch.object(Elections, "_change", at_once)


def _empty_disk_votes() -> Patched:
    """Nor is it distinguished from the one whose place it took: else its votes would not be counted."""
    both = ExitStack()
    both.enter_context(patch.object(_ReplicaLog, "joined", property(lambda self: True)))
    both.enter_context(patch.object(Members, "knows", lambda self, replica_id, incarnation: True))
    return both


def _readers_see_the_end() -> Patched:
    return patch.object(Replica, "confirm_offset", property(lambda self: self._store.end_offset))


def _higher_epoch_ignored() -> Patched:
    def ignores(self: Quorum, epoch: int, now_s: float, ready: Ready) -> None:
        if self.state.value != "leader":
            unattached(self, epoch, now_s, ready)

    unattached = Quorum._unattached
    both = ExitStack()
    both.enter_context(patch.object(Quorum, "_unattached", ignores))
    both.enter_context(patch.object(Quorum, "_in_touch", lambda self, now_s, within_s: len(self._log.members.voters)))
    return both


def _bug(name: str, patched: Any, flush: str = "sync", replicas: int | None = None) -> PlantedBug:
    return PlantedBug(name, "dledger", flush, patched, replicas)


def _no_doubt_after_a_power_cut() -> Patched:
    return patch.object(_ReplicaLog, "log_may_be_incomplete", property(lambda self: False))


def _trusts_at_once() -> Patched:
    """Without a look for those that know better."""
    init = Quorum.__init__

    def begins(self: Quorum, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self.times = replace(self.times, doubt=0.0)

    return patch.object(Quorum, "__init__", begins)


QUORUM_BUGS = (
    _bug("the vote is not fsynced", _of_all_modes["the epoch file is not synced"]),
    _bug("a replica votes twice in an epoch", _votes_twice),
    _bug("the vote compares offsets only", _vote_by_offset_only),
    _bug("the vote compares epochs only", _vote_by_epoch_only),
    _bug("an equal log gets no vote", _equal_log_refused),
    _bug("the commit counts older epochs", _older_epochs_counted),
    _bug("a new leader calls its whole log confirmed", _whole_log_confirmed_at_election),
    _bug("one less than a majority is enough", _one_less_than_a_majority),
    _bug("observers are counted", _observers_counted),
    _bug("a follower truncates below the commit", _truncated_below_the_commit),
    _bug("no pre-vote", _no_pre_vote),
    _bug("no check of the quorum", _no_check_of_the_quorum),
    _bug("a pull of a log that has diverged is counted", _diverged_log_counted),
    _bug(
        "a follower reports as durable what it has not flushed",
        _of_all_modes["a slave reports as durable what it has not flushed"],
    ),
    _bug("voters change without waiting", _voters_changed_without_waiting),
    _bug("an empty disk has a voice", _empty_disk_votes),
    _bug("readers see the log's end", _readers_see_the_end, "async"),
    _bug("a leader ignores a higher epoch", _higher_epoch_ignored),
    _bug("a replica that lost its memory takes its log for whole at once", _trusts_at_once, "async"),
    _bug("a replica that lost its memory votes as before", _no_doubt_after_a_power_cut, "async"),
)
