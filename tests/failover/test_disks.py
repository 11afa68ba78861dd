"""Whose disk counts when a promotion is judged: not one that was put back, nor one that was rolled back to a copy of itself."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from brokerd.processors.replica_status import replica_status
from brokerd.replica.in_sync import SendVerdict
from controlplane.failover.disks import KnownDisk, disk_after
from controlplane.failover.promotion.fencing import decision_after_fence, next_ballot, promises_given
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, cleanness_of
from controlplane.failover.samples import answer_noted, silence_noted
from highwater.promotion import Decision, Standing
from mqwire.bodies import FollowerStatus, ReplicaStatus
from mqwire.mode import Mode
from tests.brokerd.replica_members import Around, Member
from tests.failover.views import NOW
from tests.sim.memory_disk import MemoryDisk

OF_VIEW = {one.name for one in fields(ReplicaView)}


class Group:
    """Three replicas in mode sync, of which 0 leads and 2 lags behind, and the rows: noted by the product's own functions."""

    def __init__(self) -> None:
        self.master, self.first, self.lagging = (
            Member(key, total=3, leader=key == 0, mode=Mode.SYNC) for key in range(3)
        )
        self._rows = {key: ReplicaView(replica_id=key) for key in range(3)}
        self._now = NOW
        self.master.replica.promote(0, 1, 0.0, 0)
        self.master.send(3)
        for _ in range(2):
            self.first.pull_from(self.master)
            self.lagging.pull_from(self.master)
        self.look()
        self.master.replica.forget_known_replica(2, 0.0)  # as after haMaxTimeSlaveNotCatchup: it is not waited for

    def acknowledge(self) -> None:
        """The master and replica 1 take messages that are answered with SEND_OK."""
        self.master.send(5)
        self.catch_up()
        assert self.master.replica.verdict(self.master.store.end_offset) is SendVerdict.SEND_OK

    def catch_up(self) -> None:
        """Replica 1 pulls what the master holds."""
        for _ in range(3):
            self.first.pull_from(self.master)
        self.first.replica.take_lease(1, 0.0, 15.0)  # as with each answered pull of one in sync

    def give(self, disk: MemoryDisk) -> None:
        """Replica 1 is started with this disk."""
        self.first.disk = disk
        self.first._open()

    def look(self, *, master_is_dead: bool = False) -> GroupView:
        """Ask each, and note what it says."""
        self._now += timedelta(seconds=3)
        members = {0: None if master_is_dead else self.master, 1: self.first, 2: self.lagging}
        answers = {key: None if one is None else status_of(one) for key, one in members.items()}
        leader = answers[0]
        for key, status in answers.items():
            before = self._rows[key]
            noted: dict[str, Any]
            if status is None:
                noted = silence_noted(
                    None,
                    unreachable_since=before.unreachable_since,
                    last_seen_at=before.last_seen_at,
                    process_ended_at=None,
                    ran_unseen=before.ran_unseen,
                    now=self._now,
                )
            else:
                noted = answer_noted(status, leader, known=before.known_disk, asked_at=self._now, now=self._now)
            values = {one.name: getattr(before, one.name) for one in fields(before)}
            values |= {name: value for name, value in noted.items() if name in OF_VIEW}
            self._rows[key] = ReplicaView(**values)
        return GroupView(
            name="group-a",
            in_sync_replicas=2,
            replicas=[*self._rows.values()],
            leader_id=0,
            led_at=self._now,
            led_epoch=1,
            epoch=1,
        )

    def promoted(self, before: GroupView) -> Decision:
        """The others promise a fence, the master being dead: who leads?"""
        ballot = next_ballot(before, 1)
        for member in (self.first, self.lagging):
            member.replica.step_down(ballot.fence, None)
        said = [Standing.of(status_of(member)) for member in (self.first, self.lagging)]
        promises = promises_given(before, said, ballot)
        after = replace(self.look(master_is_dead=True), epoch=ballot.epoch)
        return decision_after_fence(
            after, before, promises, candidate_id=1, begun_at=NOW, may_lose=False, may_choose=True
        )


def status_of(member: Member) -> ReplicaStatus:
    return replica_status(cast("Any", Around(member)))


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.mark.parametrize("put_back_after_the_look", [False, True])
def test_a_disk_that_was_replaced_and_is_put_back_proves_nothing(group: Group, put_back_after_the_look: bool) -> None:
    old_disk = group.first.disk.after_kill()
    group.give(MemoryDisk())
    assert group.look().replicas[1].disk_is_new
    group.acknowledge()
    assert not group.look().replicas[1].disk_is_new, "the master says that it is in sync"
    before = group.look(master_is_dead=True)
    group.give(old_disk)
    if not put_back_after_the_look:
        before = group.look(master_is_dead=True)
        assert not cleanness_of(before, 1).clean
    decision = group.promoted(before)
    assert decision.leader_id is None
    assert not decision.cleanness.clean


def test_the_disk_before_a_new_one_proves_nothing_though_no_look_saw_the_new_one_in_sync(group: Group) -> None:
    old_disk = group.first.disk.after_kill()
    group.give(MemoryDisk())
    group.look()
    group.acknowledge()
    group.give(old_disk)
    assert not cleanness_of(group.look(master_is_dead=True), 1).clean


@pytest.mark.parametrize("rolled_back_after_the_look", [False, True])
def test_a_disk_that_was_rolled_back_to_a_copy_of_itself_proves_nothing(
    group: Group, rolled_back_after_the_look: bool
) -> None:
    """Its name is the same; that it held more in the same epoch is remembered."""
    copy = deepcopy(group.first.disk).after_kill()
    group.acknowledge()
    group.look()
    before = group.look(master_is_dead=True)
    group.give(copy)
    if not rolled_back_after_the_look:
        before = group.look(master_is_dead=True)
        assert not cleanness_of(before, 1).clean
    decision = group.promoted(before)
    assert decision.leader_id is None
    assert not decision.cleanness.clean


def test_a_disk_that_was_rolled_back_counts_again_once_it_has_caught_up(group: Group) -> None:
    copy = deepcopy(group.first.disk).after_kill()
    group.acknowledge()
    group.look()
    group.give(copy)
    assert group.look().replicas[1].log_may_be_incomplete, "what the master had heard of it before is no proof"
    group.catch_up()
    assert not group.look().replicas[1].log_may_be_incomplete
    assert group.promoted(group.look(master_is_dead=True)).cleanness.clean


def test_a_new_disk_that_the_master_called_in_sync_counts(group: Group) -> None:
    group.give(MemoryDisk())
    group.look()
    group.acknowledge()
    group.look()
    assert group.promoted(group.look(master_is_dead=True)).cleanness.clean


def said(**changes: object) -> ReplicaStatus:
    """Replica 1 with disk b, level with its leader."""
    values: dict[str, object] = {
        "cluster": "c",
        "group": "g",
        "replica_id": 1,
        "advertised_broker_id": 1,
        "address": "127.0.0.1:10911",
        "role": "slave",
        "mode": "sync",
        "epoch": 3,
        "log_epoch": 3,
        "epoch_map": [],
        "min_offset": 0,
        "end_offset": 1000,
        "durable_offset": 1000,
        "held_offset": 1000,
        "confirm_offset": 1000,
        "flush_disk_type": "ASYNC_FLUSH",
        "in_sync_replicas": 2,
        "min_in_sync_replicas": 2,
        "in_sync": [],
        "accepts_sends": False,
        "promotable": True,
        "incarnation": "b",
    }
    return ReplicaStatus(**{**values, **changes})  # type: ignore[arg-type]  # values of any type


def led(*, gap_bytes: int = 0, in_sync: bool = True, disk: str = "b", **changes: object) -> ReplicaStatus:
    """The leader, and what it says of replica 1."""
    follower = FollowerStatus(
        replica_id=1,
        address="127.0.0.1:10911",
        end_offset=1000,
        durable_offset=1000,
        gap_bytes=gap_bytes,
        in_sync=in_sync,
        last_pull_ms_ago=5,
        incarnation=disk,
    )
    return said(**{"replica_id": 0, "role": "master", "incarnation": "a", "followers": [follower], **changes})


@pytest.mark.parametrize(
    ("status", "leader", "counts"),
    [
        (said(), led(), True),
        (said(), led(disk=""), True),  # a leader of a version that names none
        (said(), None, False),
        (said(), led(in_sync=False), False),
        (said(), led(disk="c"), False),  # of the disk before this one
        (said(has_caught_up=False), led(), False),
        (said(log_epoch=2), led(), False),
        (said(held_offset=900), led(gap_bytes=100), False),  # less than is confirmed
        (said(), led(end_offset=1200), False),  # less than the leader has heard of
        (said(), led(end_offset=1200, gap_bytes=200), True),
        (said(role="master"), said(role="master"), True),
    ],
)
def test_another_disk_counts_once_a_leader_that_lives_calls_it_in_sync(
    status: ReplicaStatus, leader: ReplicaStatus | None, counts: bool
) -> None:
    known = disk_after(KnownDisk("a", position=(2, 5000)), status, leader)
    assert (known.incarnation, known.is_new) == (("b", False) if counts else ("a", True))


def test_the_first_disk_that_is_seen_counts() -> None:
    assert disk_after(KnownDisk(), said(has_caught_up=False), None) == KnownDisk("b", position=(3, 1000))


@pytest.mark.parametrize(
    ("before", "position", "has_lost"),
    [
        ((3, 1000), (3, 1000), False),
        ((3, 1000), (3, 999), True),
        ((3, 1000), (2, 2000), True),
        ((3, 1000), (4, 500), False),  # its log was truncated, and has gone on in a later epoch
        (None, (0, 0), False),
    ],
)
def test_a_disk_that_held_more_has_lost_something(
    before: tuple[int, int] | None, position: tuple[int, int], has_lost: bool
) -> None:
    assert KnownDisk("a", position=before).has_lost(position) is has_lost
