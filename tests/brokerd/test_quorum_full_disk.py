"""Disks that fill up: the role goes to a voter with room; a group without any keeps its leader, which says why it takes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from brokerd.replica.epoch_file import EpochFile, EpochState
from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.quorum_messages import Campaign
from brokerd.store import DiskFullError
from tests.brokerd.quorum_group import FIRST_MS, LONG_S, TIMES, Node, QuorumGroup
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import ROOT


def fill(*nodes: Node) -> None:
    for node in nodes:
        node.disk.used_ratio = 0.95
        node.clock.time_ms += 2000  # the store looks once a second


def empty(node: Node) -> None:
    node.disk.used_ratio = 0.1
    node.clock.time_ms += 2000


def test_a_leader_whose_disk_is_full_hands_over_to_a_voter_with_room() -> None:
    group = QuorumGroup.led()
    group[0].append(b"one")
    fill(group[0], group[1])
    with pytest.raises(DiskFullError):
        group[0].append(b"two")
    group.live(3.0)
    assert group.leaders == [2]
    end = group[2].append(b"two")
    group.live(0.5)
    assert group[2].replica.verdict(end) is SendVerdict.SEND_OK


def test_it_hands_over_without_waiting_for_a_send_that_it_must_refuse() -> None:
    group = QuorumGroup.led()
    fill(group[0])
    group.live(3.0)
    assert group.leaders != [0]


def test_where_all_are_full_the_leader_stays_and_refuses_sends() -> None:
    group = QuorumGroup.led()
    fill(*group.nodes.values())
    group.live(20.0)
    assert (group.leaders, group[0].replica.epoch) == ([0], 1)
    with pytest.raises(DiskFullError, match="disk is full"):
        group[0].append(b"no")
    empty(group[0])
    empty(group[1])
    group.live(0.5)
    group[0].append(b"room again")


def test_where_all_are_full_one_leads_all_the_same_when_the_leader_dies() -> None:
    """Readers and their offsets need a leader, and its record of the epoch has its room."""
    group = QuorumGroup.led()
    fill(*group.nodes.values())
    group[0].up = False
    group.live(12.0)
    assert len(group.leaders) == 1


def test_who_has_room_is_elected_though_a_full_one_waits_less() -> None:
    group = QuorumGroup.led()
    fill(group[1])
    group[0].up = False
    group[1].now_s += LONG_S
    group[1].tick()
    assert not group.letters
    group.live(8.0)
    assert group.leaders == [2]


def test_a_full_one_does_not_stand_when_it_is_asked_to() -> None:
    group = QuorumGroup.led()
    fill(group[2])
    group[2].step(Campaign(group="group-a", leader=0, epoch=1))
    assert not group.letters
    assert group[2].replica.epoch == 1


def test_neither_an_operator_nor_its_preference_moves_the_role_to_a_full_disk() -> None:
    group = QuorumGroup.led()
    group[0].elections.prefer(2, group[0].now_s, FIRST_MS)
    fill(group[2])
    group.live(10.0)
    assert group.leaders == [0]
    with pytest.raises(RoleRefused, match="disk of replica 2 is full"):
        group[0].elections.transfer(2, group[0].now_s)
    empty(group[2])
    group.live(10.0)
    assert group.leaders == [2]


def test_a_leader_takes_no_sends_that_a_majority_could_not_store() -> None:
    group = QuorumGroup.led()
    fill(group[1], group[2])
    group.live(0.5)
    assert "full" in (group[0].replica.refuses_sends(group[0].now_s) or "")
    empty(group[1])
    group.live(0.5)
    assert group[0].replica.refuses_sends(group[0].now_s) is None


def test_one_full_follower_stops_no_one_and_catches_up_when_it_has_room() -> None:
    group = QuorumGroup.led()
    group[2].disk.fail = full_for_the_log(group[2])
    for number in range(20):
        group[0].append(b"%d" % number + b"." * 400)
        group.live(0.2)
    end = group[0].store.end_offset
    assert group[0].replica.confirm_offset == end
    assert group[2].store.lacks_room()
    assert group[2].store.end_offset < end
    assert group[0].replica.refuses_sends(group[0].now_s) is None
    group[2].disk.fail = lambda number, name: None
    group.live(1.0)
    assert group[2].log == group[0].log
    assert not group[2].store.lacks_room()


def full_for_the_log(node: Node) -> Callable[[int, str], int | None]:
    def fail(number: int, name: str) -> int | None:
        return errno.ENOSPC if name in ("fallocate", "create") and "commitlog" in node.disk.log[-1] else None

    return fail


def test_what_did_not_fit_a_moment_ago_counts_as_full_though_a_share_of_the_disk_is_free() -> None:
    group = QuorumGroup.led()
    group[0].disk.fail = full_for_the_log(group[0])
    with pytest.raises(DiskFullError):
        group[0].append(*[b"." * 400 for _ in range(20)])
    group[0].clock.time_ms += 5000
    assert group[0].store.lacks_room()
    group.live(3.0)
    assert group.leaders != [0]
    assert group.leaders


def test_a_voter_that_has_room_again_stops_no_leader_though_nothing_more_is_sent_to_it() -> None:
    group = QuorumGroup.led()
    group[0].disk.fail = full_for_the_log(group[0])
    with pytest.raises(DiskFullError):
        group[0].append(*[b"." * 400 for _ in range(20)])
    group[0].disk.fail = lambda number, name: None
    group.live(3.0)
    (leader,) = group.leaders
    group[({1, 2} - {leader}).pop()].up = False
    group[0].clock.time_ms += 2000  # its last look was before there was room
    group.live(2.0)
    assert (leader, group[leader].replica.refuses_sends(group[leader].now_s)) == (1, None)


def test_a_vote_is_written_on_a_full_disk_by_the_room_that_was_kept_for_it() -> None:
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    file = EpochFile(disk, ROOT)
    file.keep_reserve()
    disk.fail = lambda number, name: None if disk.exists(f"{ROOT}/epoch.reserve") is False else full_for_writes(name)
    file.save(EpochState(epoch=7, voted_for=2))
    assert (file.load() or EpochState()).voted_for == 2
    disk.fail = lambda number, name: full_for_writes(name)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.save(EpochState(epoch=8))
    disk.fail = lambda number, name: None
    file.keep_reserve()
    assert disk.exists(f"{ROOT}/epoch.reserve")


def full_for_writes(name: str) -> int | None:
    return errno.ENOSPC if name in ("pwrite", "create") else None


def test_a_reserve_that_does_not_fit_is_not_there() -> None:
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    disk.fail = lambda number, name: errno.ENOSPC if name == "fallocate" else None
    EpochFile(disk, ROOT).keep_reserve()
    assert not disk.exists(f"{ROOT}/epoch.reserve")


def test_named_successors_with_room_come_first() -> None:
    group = QuorumGroup.led()
    group[0].append(b"one")
    group[0].flush()
    fill(group[1])
    group[1].pull()
    group[1].pull()
    outcome = group[0].elections.resign("it stops", group[0].now_s)
    (named,) = {message.successors for _, message in outcome.messages}  # type: ignore[union-attr] # all are EndEpoch
    assert named == (2, 1)
    assert TIMES.room_again > TIMES.transfer


def no_room_for_votes(node: Node) -> None:
    """Another program has taken all that was free, the reserve's room too."""

    def fail(number: int, name: str) -> int | None:
        return errno.ENOSPC if "epoch.json" in node.disk.log[-1] and name in ("pwrite", "open") else None

    node.disk.fail = fail


def test_a_replica_whose_vote_could_not_be_written_votes_and_leads_once_it_can() -> None:
    """The group had no leader for good, though the disks had room again."""
    group = QuorumGroup.led()
    group[0].append(b"one")
    group.live(0.5)
    group[0].up = False
    for node in (group[1], group[2]):
        no_room_for_votes(node)
    group.live(10.0)
    assert not group.leaders
    assert group[1].elections.why_not_electable() is not None
    for node in (group[1], group[2]):
        node.disk.fail = lambda number, name: None
    group.live(20.0)
    assert group.leaders
    assert group[group.leaders[0]].append(b"two")
