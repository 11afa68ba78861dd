"""Bugs planted in the cores, in memory: what the simulation is worth is that it finds each of them.

Each is a patch of one function that a person might have written so. `mode` and `flush` name the campaign that looks for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from brokerd.broker import Broker
from brokerd.replica import epoch_file, pull_protocol
from brokerd.replica import replica as replicas
from brokerd.replica.epoch_map import Divergence, EpochMap
from brokerd.replica.epoch_record import EpochRecord, epoch_message
from brokerd.replica.in_sync import InSyncSet
from brokerd.replica.pull_protocol import ReplicaPull
from brokerd.replica.replica import Replica
from brokerd.services.replica_follower import FollowerService
from brokerd.store import Disk, MessageToStore
from brokerd.store.commit_log import CommitLog
from mqwire.mode import Mode
from tests.sim.seeds import run_seed
from tests.sim.world import Outcome

Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One of them. `promotions`: whether a control plane helps the groups that it is looked for in; `indexes`: whether all of
    these index their messages, as a few of a campaign do; `weather`: the composed fault that each has plenty of.
    """

    name: str
    mode: str
    flush: str
    patch: Patch
    replicas: int | None = None
    promotions: bool = True
    indexes: bool = False
    weather: str = ""

    def run(self, seed: int) -> Outcome:
        """One seed of the groups that it is looked for in; the bug is there if it is patched in."""
        return run_seed(
            self.mode,
            self.flush,
            seed,
            replicas=self.replicas,
            promotions=self.promotions,
            indexes=self.indexes,
            weather=self.weather,
        )


def _epoch_file_without_sync() -> AbstractContextManager[Any]:
    def replace_file(disk: Disk, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        disk.pwrite(fd, data, 0)
        disk.close(fd)
        disk.rename(temporary, path)

    return patch.object(epoch_file, "replace_file", replace_file)


def _acknowledged_before_the_flush() -> AbstractContextManager[Any]:
    return patch.object(Replica, "held_offset", property(lambda self: self._store.end_offset))


def _followers_epoch_unchecked() -> AbstractContextManager[Any]:
    decide_pull = pull_protocol.decide_pull

    def decide(request: ReplicaPull, *, own_epoch: int, **others: Any) -> Any:
        return decide_pull(replace(request, leader_epoch=own_epoch), own_epoch=own_epoch, **others)

    return patch.object(replicas, "decide_pull", decide)


def _divergence_by_epoch_only() -> AbstractContextManager[Any]:
    divergence = EpochMap.divergence

    def only_epoch(self: EpochMap, last_epoch: int, follower_end_offset: int, end_offset: int) -> Divergence | None:
        return None if self.contains(last_epoch) else divergence(self, last_epoch, follower_end_offset, end_offset)

    return patch.object(EpochMap, "divergence", only_epoch)


def _truncated_too_late() -> AbstractContextManager[Any]:
    def truncation_offset(self: EpochMap, answer: Divergence, log_end_offset: int) -> int:
        return max(answer.end_offset, self.end_of(answer.epoch, log_end_offset))

    return patch.object(EpochMap, "truncation_offset", truncation_offset)


def _reported_as_durable_before_the_flush() -> AbstractContextManager[Any]:
    next_pull = Replica.next_pull

    def reports_end(self: Replica, **limits: int) -> ReplicaPull:
        pull = next_pull(self, **limits)
        return replace(pull, durable_offset=pull.end_offset)

    return patch.object(Replica, "next_pull", reports_end)


def _slave_counted_twice() -> AbstractContextManager[Any]:
    def size(self: InSyncSet) -> int:
        return 2 + sum(follower.in_sync for follower in self.followers.values())

    return patch.object(InSyncSet, "size", property(size))


def _not_every_slave_is_waited_for() -> AbstractContextManager[Any]:
    def advance(self: InSyncSet, now_s: float) -> bool:
        held = [self.held_by(follower) for follower in self.followers.values() if follower.in_sync]
        confirmed = min(self._own_held, max(held)) if held and self._mode is Mode.SYNC else self._own_held
        moved = confirmed > self._confirm_offset
        self._confirm_offset = max(confirmed, self._confirm_offset)
        return moved

    return patch.object(InSyncSet, "_advance", advance)


def _confirm_offset_falls() -> AbstractContextManager[Any]:
    advance = InSyncSet._advance

    def falls(self: InSyncSet, now_s: float) -> bool:
        self._confirm_offset = 0
        return advance(self, now_s)

    return patch.object(InSyncSet, "_advance", falls)


def _shorter_log_may_lead_again() -> AbstractContextManager[Any]:
    grant_reclaim = Replica.grant_reclaim

    def grants(self: Replica, *, last_epoch: int, **others: Any) -> None:
        grant_reclaim(self, last_epoch=last_epoch + 1_000_000, **others)

    return patch.object(Replica, "grant_reclaim", grants)


def _leads_without_the_last_replica() -> AbstractContextManager[Any]:
    def known(self: Replica) -> dict[int, str]:
        return dict(sorted(self._state.replicas.items())[:1])

    return patch.object(Replica, "known_replicas", property(known))


def _leads_again_without_asking() -> AbstractContextManager[Any]:
    start = Replica.start

    def leads(self: Replica, now_s: float, now_ms: int) -> None:
        start(self, now_s, now_ms)
        if self.must_reclaim:
            self._lead(self.epoch + 1, now_s, now_ms)

    return patch.object(Replica, "start", leads)


def _expected_epoch_unchecked() -> AbstractContextManager[Any]:
    promote = Replica.promote

    def unchecked(self: Replica, expected_epoch: int, *others: Any, **how: Any) -> None:
        promote(self, self.epoch, *others, **how)

    return patch.object(Replica, "promote", unchecked)


def _promise_not_written() -> AbstractContextManager[Any]:
    step_down = Replica.step_down

    def forgetful(self: Replica, epoch: int, leader_address: str | None) -> None:
        storage = self._storage
        self._storage = _Nowhere()  # type: ignore[assignment] # that is the bug
        try:
            step_down(self, epoch, leader_address)
        finally:
            self._storage = storage

    return patch.object(Replica, "step_down", forgetful)


class _Nowhere:
    def save(self, state: object) -> None:
        """Forget it."""


def _epoch_record_not_written() -> AbstractContextManager[Any]:
    def other_topic(record: EpochRecord, store_host: bytes) -> MessageToStore:
        return epoch_message(record, store_host)._replace(topic="SOMETHING_ELSE")

    return patch.object(replicas, "epoch_message", other_topic)


def _truncated_without_zeros() -> AbstractContextManager[Any]:
    def truncate(self: CommitLog, end: int) -> None:
        self.close()
        while self.bases and self.bases[-1] > end:
            self._disk.unlink(self.path(self.bases.pop()))
            self._disk.sync_directory(self.directory)
        self.end_offset = end
        self.durable_offset = min(self.durable_offset, end)

    return patch.object(CommitLog, "truncate", truncate)


def _readers_see_the_end() -> AbstractContextManager[Any]:
    return patch.object(Replica, "confirm_offset", property(lambda self: self._store.end_offset))


def _restarted_slave_shows_all() -> AbstractContextManager[Any]:
    start = Replica.start

    def shows_all(self: Replica, now_s: float, now_ms: int) -> None:
        start(self, now_s, now_ms)
        self._leader_confirm_offset = self._store.end_offset

    return patch.object(Replica, "start", shows_all)


def _higher_epoch_ignored() -> AbstractContextManager[Any]:
    saw_epoch = Replica.saw_epoch

    def ignores(self: Replica, epoch: int, leader_address: str | None = None) -> bool:
        return False if self.leads else saw_epoch(self, epoch, leader_address)

    return patch.object(Replica, "saw_epoch", ignores)


def _old_answers_appended() -> AbstractContextManager[Any]:
    received = Replica.received

    def takes(self: Replica, data: bytes, at_offset: int, epoch: int, leader_confirm_offset: int, **how: Any) -> None:
        received(self, data, at_offset, self.epoch, leader_confirm_offset, **how)

    both = ExitStack()
    both.enter_context(patch.object(Replica, "received", takes))
    both.enter_context(patch.object(FollowerService, "_check_epoch", lambda self, header: None))
    return both


def _refused_sends_are_stored() -> AbstractContextManager[Any]:
    """Nor does the broker's append look at its role."""

    def refuses_sends(self: Replica, now_s: float) -> str | None:
        return None

    def append(self: Broker, messages: Sequence[MessageToStore], **others: Any) -> Any:
        if self.replica.leads:
            return append_as_leader(self, messages, **others)
        results = self.store.append(messages)
        self.log_grew()
        return results

    append_as_leader = Broker.append
    both = ExitStack()
    both.enter_context(patch.object(Replica, "refuses_sends", refuses_sends))
    both.enter_context(patch.object(Broker, "append", append))
    return both


def _disk_joins_before_it_has_caught_up() -> AbstractContextManager[Any]:
    received = Replica.received

    def joins(self: Replica, *data: Any, **how: Any) -> None:
        self._joins_at = 0
        received(self, *data, **how)

    return patch.object(Replica, "received", joins)


BUGS = (
    PlantedBug("the epoch file is not synced", "sync", "sync", _epoch_file_without_sync),
    PlantedBug("acknowledged before the flush", "single", "sync", _acknowledged_before_the_flush),
    PlantedBug("a pull's epoch is not checked", "sync", "sync", _followers_epoch_unchecked),
    PlantedBug("logs part only where epochs differ", "async", "sync", _divergence_by_epoch_only),
    PlantedBug("the truncation is too late", "async", "sync", _truncated_too_late),
    PlantedBug(
        "a slave reports as durable what it has not flushed", "sync", "sync", _reported_as_durable_before_the_flush
    ),
    PlantedBug("one replica is counted twice", "sync", "sync", _slave_counted_twice),
    PlantedBug("the fastest slave is enough", "sync", "sync", _not_every_slave_is_waited_for),
    PlantedBug("confirmOffset falls", "sync", "sync", _confirm_offset_falls),
    PlantedBug("a shorter log may lead again", "sync", "async", _shorter_log_may_lead_again),
    PlantedBug("a restarted leader does not ask every replica", "async", "sync", _leads_without_the_last_replica, 3),
    PlantedBug("a restarted leader asks no one", "async", "sync", _leads_again_without_asking),
    PlantedBug("the expected epoch of a promotion is not checked", "async", "sync", _expected_epoch_unchecked),
    PlantedBug("a promise is not written", "async", "sync", _promise_not_written),
    PlantedBug("the epoch record is not written", "async", "sync", _epoch_record_not_written),
    PlantedBug("the truncation leaves the old bytes", "async", "sync", _truncated_without_zeros),
    PlantedBug("readers see the log's end", "sync", "sync", _readers_see_the_end),
    PlantedBug("a restarted slave shows all", "sync", "sync", _restarted_slave_shows_all),
    PlantedBug("a slave takes sends", "async", "sync", _refused_sends_are_stored),
)

# No promise hangs on these alone: another rule heals what they spoil, so no run can show it. They are run all the same: one that
# is found some day belongs above.
SURVIVORS = (
    # Such bytes begin where this log ends, and the next pull's divergence check truncates what the new leader does not have. No one
    # counts them meanwhile: a promise was answered without them, and a pull that names the new epoch ends the old leadership.
    PlantedBug("an answer of an older epoch is appended", "async", "sync", _old_answers_appended, 3),
    # In mode async a promotion is clean only if the leader itself has promised its epoch, or was stopped: what ends it by a
    # follower's pull or by its registration, ends it a moment earlier. Of groups that elect the same bug is found (quorum_bugs.py).
    PlantedBug("a leader ignores a higher epoch", "async", "sync", _higher_epoch_ignored),
    # A new disk has no voice before the leader adopts it, and that it does when it holds what is confirmed, and the others have
    # confirmed a record without it: so they hold all of that, too.
    PlantedBug("a disk joins before it has caught up", "dledger", "sync", _disk_joins_before_it_has_caught_up),
)
