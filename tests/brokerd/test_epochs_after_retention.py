"""Retention deletes epoch records as it does messages, and disks damage them: replicas know their epochs all the same."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from brokerd.config import BrokerConfig
from brokerd.replica.epoch_file import EpochFile, EpochState
from brokerd.replica.pull_protocol import Diverged, Empty, SendBytes, TooOld
from brokerd.services.flush import FlushService
from brokerd.services.store_gate import StoreGate
from tests.brokerd.replica_members import Member, group
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, ROOT, ManualClock

DAYS_4_MS = 4 * 24 * 3_600_000


def expire(member: Member, needed_from: int | None = None) -> None:
    """Retention runs as in a broker, with a clock four days ahead and a disk so full that the hour does not matter."""
    member.store.flush_consume_queues()
    member.disk.used_ratio = 0.8
    now_ms = ManualClock().time_ms + DAYS_4_MS
    broker = SimpleNamespace(
        config=BrokerConfig(),
        clock=SimpleNamespace(time_ms=lambda: now_ms),
        threads=SimpleNamespace(one_call_thread=lambda: None),
        store=member.store,
        store_gate=StoreGate(),
        replica=member.replica,
        metadata_log=SimpleNamespace(needed_from=needed_from),
        schedule=SimpleNamespace(first_waiting=lambda: None),
    )

    async def run() -> None:
        with trio.move_on_after(60):
            await FlushService(cast("Any", broker)).run_retention()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    member.disk.used_ratio = 0.1


def fill_files(member: Member, count: int) -> None:
    until = member.store.end_offset + count * FILE_BYTES
    while member.store.end_offset < until:
        member.send(20)


def test_a_leader_knows_its_epoch_after_a_restart_when_retention_has_deleted_the_record() -> None:
    leader, _ = group()
    fill_files(leader, 3)
    expire(leader)
    assert leader.store.min_physical_offset > 0
    leader.restart()
    assert leader.replica.epochs.last_epoch == 1


def test_a_leader_knows_of_which_epoch_its_log_ends_though_that_epochs_record_is_damaged_soon() -> None:
    leader, follower = group()
    leader.replica.add_known_replica(1, follower.replica.settings.address)  # which can put it right
    began_at = leader.store.end_offset
    leader.replica.promote(1, 3, 0.0, 1_700_000_000_000)
    leader.send(2)
    leader.restart_with_rot(began_at)
    assert leader.store.damaged_from == began_at
    assert leader.replica.epochs.last_epoch == 3


def test_the_file_where_topics_groups_and_offsets_begin_stays_however_old_it_is() -> None:
    leader, _ = group()
    fill_files(leader, 4)
    expire(leader, needed_from=2 * FILE_BYTES + 100)
    assert leader.store.min_physical_offset == 2 * FILE_BYTES
    expire(leader)
    assert leader.store.min_physical_offset > 2 * FILE_BYTES


def parted() -> tuple[Member, Member]:
    """A leader in epoch 2, and the former one with a log of its own that parts where neither has anything any more."""
    old, new = group()
    new.replica.promote(1, 2, 0.0, 0)
    for member in (old, new):
        fill_files(member, 3)
        expire(member)
    old.replica.step_down(2, "r1")
    return old, new


def test_a_follower_that_has_nothing_of_the_leaders_log_any_more_begins_again() -> None:
    old, leader = parted()
    decision = old.pull_from(leader)
    assert isinstance(decision, Diverged)
    assert isinstance(old.replica.diverged(decision.divergence), Empty)
    old.replica.start_over(0, 0, lambda: old.store.start_over(0))
    decision = old.pull_from(leader)
    assert decision == TooOld(leader.store.min_physical_offset, 2)
    old.replica.start_over(decision.min_offset, decision.epoch, lambda: old.store.start_over(decision.min_offset))
    assert isinstance(old.pull_from(leader), SendBytes)
    assert old.store.end_offset == leader.store.end_offset
    assert old.replica.epochs.last_epoch == 2


def test_a_log_starts_over_where_its_next_file_was_created_ahead() -> None:
    follower, _ = group()
    ahead = follower.store.min_physical_offset + FILE_BYTES
    while f"{ahead:020d}" not in follower.disk.listdir(COMMIT_LOG):
        follower.send()
    follower.store.start_over(ahead)
    follower.restart()
    assert (follower.store.min_physical_offset, follower.store.end_offset) == (ahead, ahead)
    assert follower.disk.listdir(COMMIT_LOG) == [f"{ahead:020d}"]


def test_epochs_that_are_in_the_log_no_more_are_forgotten_but_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerd.replica.replica._EPOCHS_KEPT", 2)
    leader, follower = group()
    for epoch in range(2, 7):
        leader.replica.promote(epoch - 1, epoch, 0.0, 0)
        leader.send()
    fill_files(leader, 3)
    expire(leader)
    assert [entry.epoch for entry in leader.replica.epochs.entries] == [5, 6]
    leader.replica.promote(6, 7, 0.0, 0)
    leader.send()
    leader.restart()
    assert [entry.epoch for entry in leader.replica.epochs.entries] == [5, 6, 7]
    leader.replica.promote(7, 8, 0.0, 0)
    decision = follower.pull_from(leader)
    assert isinstance(decision, TooOld)
    assert (decision.min_offset, decision.epoch) == (leader.store.min_physical_offset, 6)


def test_no_epoch_that_is_forgotten_makes_retention_wait_for_room_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brokerd.replica.replica._EPOCHS_KEPT", 0)
    leader, _ = group()
    fill_files(leader, 1)
    leader.replica.promote(1, 2, 0.0, 0)
    fill_files(leader, 13)  # more than it deletes at once
    leader.replica.keep_reserve()
    leader.disk.fail = lambda number, name: errno.ENOSPC if "epoch.json" in leader.disk.log[-1] else None
    expire(leader)
    assert leader.disk.listdir(COMMIT_LOG) == [f"{leader.store.min_physical_offset:020d}"]


def test_a_file_of_however_many_epochs_is_read() -> None:
    """A mebibyte of it was, and the broker did not start."""
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    state = EpochState(epoch=60_000, epoch_map=tuple((number, number * 1_000_000) for number in range(1, 60_001)))
    EpochFile(disk, ROOT).save(state)
    assert len(disk.content()[f"{ROOT}/epoch.json"]) > 1 << 20
    assert EpochFile(disk, ROOT).load() == state
