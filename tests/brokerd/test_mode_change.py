"""Another mode for a running group: async, sync, DLedger and back, by a record that the old policy confirms."""

from __future__ import annotations

import errno
from dataclasses import replace
from unittest.mock import patch

import pytest

from brokerd.replica.epoch_file import EpochFile
from brokerd.replica.epoch_record import Policy, pending_modes
from brokerd.replica.errors import RoleRefused
from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.mode_change import LeaderSeen
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.headers_replica import ReplicaModeRequestHeader
from mqwire.mode import Mode
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.quorum_group import FIRST_MS, LONG_S, Node, QuorumGroup
from tests.brokerd.replicated_broker import pair
from tests.brokerd.replicated_broker import settle as settle_pair
from tests.brokerd.test_damage_found_late import damage
from tests.sim.store_harness import FILE_BYTES

SYNC = Policy(mode=Mode.SYNC, in_sync_replicas=2)
ASYNC = Policy(mode=Mode.ASYNC)
SINGLE = Policy(mode=Mode.SINGLE)
ELECTING = Policy(mode=Mode.DLEDGER)


def assigned(count: int = 3, *, durable_counts: bool = True) -> QuorumGroup:
    """Replica 0 leads asynchronously, assigned, in epoch 1; the others follow and are level."""
    group = QuorumGroup.of(count, durable_counts=durable_counts)
    for node in group.nodes.values():
        node.settings = replace(node.settings, mode=Mode.ASYNC, total_replicas=count)
        node.replace_disk()
    group[0].replica.promote(0, 1, group[0].now_s, FIRST_MS)
    for number in range(1, count):
        group[number].replica.saw_epoch(1, "r0")
    settle(group)
    return group


def settle(group: QuorumGroup) -> None:
    """Everyone pulls, and adopts what it knows to be confirmed."""
    for _ in range(3):
        group.level()
        introduce(group)
        for node in group.nodes.values():
            if node.up:
                node.replica.modes.adopt(node.now_s)


def introduce(group: QuorumGroup) -> None:
    """As pull answers do: who else belongs to the group."""
    for node in group.nodes.values():
        if node.up:
            node.replica.learn_replicas({other: f"r{other}" for other in group.nodes})


def change(node: Node, policy: Policy) -> None:
    node.replica.modes.request(policy, node.now_s, FIRST_MS)
    node.flush()


def incarnation(node: Node) -> str:
    return node.replica.saved.incarnation


def modes(group: QuorumGroup) -> list[str]:
    return [node.replica.settings.mode for node in group.nodes.values()]


def electing() -> QuorumGroup:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    settle(group)
    assert modes(group) == [Mode.DLEDGER] * 3
    return group


def test_a_group_goes_from_async_to_sync_to_dledger_and_its_leader_stays() -> None:
    group = electing()
    assert group.leaders == [0]
    assert [node.replica.epoch for node in group.nodes.values()] == [1, 1, 1]
    assert group[1].replica.members.voters == (0, 1, 2)
    end = group[0].append(b"by a majority")
    group[0].flush()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group[1].pull()
    group[1].pull()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK


def test_it_elects_when_its_leader_dies_then() -> None:
    group = electing()
    group[0].append(b"of the first leader")
    group.level()
    group[0].up = False
    group.elect(2)
    group.level()
    assert group[1].log == group[2].log
    assert group[2].replica.epoch == 2


def test_no_one_gets_a_second_vote_in_the_epoch_of_an_assigned_leader() -> None:
    group = electing()
    assert [node.replica.saved.voted_for for node in group.nodes.values()] == [0, 0, 0]


def test_the_mode_outlives_restarts_whatever_the_configuration_says() -> None:
    group = electing()
    for node in group.nodes.values():
        node.restart()
    assert modes(group) == [Mode.DLEDGER] * 3
    assert group.leaders == []
    group.elect(1)


def test_a_group_goes_back_from_dledger_to_sync_to_async() -> None:
    group = electing()
    change(group[0], SYNC)
    settle(group)
    assert modes(group) == ["sync"] * 3
    assert all(node.replica.elections is None for node in group.nodes.values())
    assert group.leaders == [0]
    change(group[0], ASYNC)
    settle(group)
    assert modes(group) == ["async"] * 3


def test_promotions_count_again_after_the_way_back() -> None:
    group = electing()
    with pytest.raises(RoleRefused, match="elects its leader"):
        group[1].replica.promote(1, 2, group[1].now_s, FIRST_MS)
    change(group[0], SYNC)
    settle(group)
    group[0].replica.step_down(1, None)
    group[1].replica.promote(1, 2, group[1].now_s, FIRST_MS)
    assert group.leaders == [1]


def test_a_change_is_not_in_force_before_the_old_policy_has_confirmed_it() -> None:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    assert modes(group) == ["sync"] * 3
    for _ in range(3):
        group[1].pull()
        group[2].pull()
    assert group[1].replica.modes.adopt(group[1].now_s) is True
    assert modes(group) == ["sync", Mode.DLEDGER, "sync"]


def test_a_leader_whose_epoch_file_has_no_room_answers_on_and_adopts_the_change_once_it_has(
    make_broker: MakeBroker,
) -> None:
    leader, follower = pair(make_broker)
    replica = leader.broker.replica
    full = OSError(errno.ENOSPC, "No space left on device")
    with patch.object(EpochFile, "save", side_effect=full):
        replica.modes.request(ASYNC, leader.clock.monotonic(), leader.clock.time_ms())
        leader.store.flush()
        leader.broker.held_changed()
        assert replica.settings.mode == Mode.SINGLE
        sent = leader.store_message("orders")
        leader.store.flush()
        leader.broker.held_changed()
        assert replica.confirm_offset == sent.physical_offset, "what follows is confirmed by the new mode alone"
    leader.broker.held_changed()
    assert leader.broker.replica.settings.mode == Mode.ASYNC
    settle_pair(leader, follower)
    assert follower.broker.replica.settings.mode == Mode.ASYNC
    assert replica.confirm_offset == leader.store.end_offset


def test_a_leader_goes_into_dledger_when_a_majority_with_it_would_elect() -> None:
    """Else it may die as the only one that elects: no one votes for it then, and it can't be promoted."""
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    for _ in range(3):
        group[1].pull()
        group[2].pull()
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    group[1].replica.modes.adopt(group[1].now_s)
    end = group[0].append(b"behind the change")
    group[0].flush()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group[1].pull()
    assert group[0].replica.modes.adopt(group[0].now_s) is True
    group[1].pull()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK


def test_a_disk_that_took_a_voters_place_is_not_of_the_majority_that_a_leader_goes_into_dledger_with() -> None:
    """It has no vote: the leader stopped then, and those that had not heard of the change waited for it for ever."""
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    for number in (1, 2, 1, 2):
        group[number].pull()  # the second time each reports that it has the record
    group[1].replace_disk()
    group[1].replica.saw_epoch(1, "r0")
    for _ in range(3):
        introduce(group)
        group[1].pull()
        group[1].replica.modes.adopt(group[1].now_s)
    assert modes(group) == [Mode.SYNC, Mode.DLEDGER, Mode.SYNC]
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    settle(group)
    assert modes(group) == [Mode.DLEDGER] * 3
    assert group.leaders == [0]


def test_a_restarted_leader_counts_no_disk_that_took_a_voters_place_among_those_that_elect() -> None:
    group = with_one_elector()
    group[0].replica.remember_confirm_offset()
    group[0].restart()
    group[0].replica.modes.heard_electors({1: incarnation(group[1]), 3: "another disk"})
    group[0].replica.modes.adopt(group[0].now_s)
    assert group[0].replica.must_reclaim
    group[0].replica.modes.heard_electors({1: incarnation(group[1]), 3: incarnation(group[3])})
    group[0].replica.modes.adopt(group[0].now_s)
    assert group[0].replica.settings.mode == Mode.DLEDGER


def test_a_leader_goes_out_of_dledger_when_those_it_has_not_informed_could_not_elect() -> None:
    """Else they may elect one without what it showed to readers alone, as minInSyncReplicas of the new mode let it."""
    group = electing()
    change(group[0], SYNC)
    for _ in range(3):
        group[1].pull()
        group[2].pull()
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    group[1].replica.modes.adopt(group[1].now_s)
    group[1].pull()
    assert group[0].replica.modes.adopt(group[0].now_s) is True


def test_a_leader_that_is_stopped_before_it_goes_into_dledger_does_not_forget_the_change() -> None:
    """It had confirmed that, and waited for a majority; the others elected, and it followed in its old mode for ever."""
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    group.level()
    assert modes(group) == [Mode.SYNC] * 3
    for number in (1, 2, 0):
        node = group[number]
        node.replica.remember_confirm_offset()
        node.restart()
        node.replica.modes.heard_electors({other: incarnation(group[other]) for other in (1, 2) if other != number})
        node.replica.modes.adopt(node.now_s)
    assert modes(group) == [Mode.DLEDGER] * 3


def with_one_elector() -> QuorumGroup:
    """Of five replicas the leader, 0, and replica 3 know that the change to DLedger is confirmed; replica 3 acts by it."""
    group = assigned(5)
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    for number in (1, 2, 3, 4):
        group[number].pull()
    for number in (1, 2, 3, 4):
        group[number].pull()  # reports that it has the record
    group[0].replica.held_changed(group[0].now_s)
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    group[3].pull()
    group[3].replica.modes.adopt(group[3].now_s)
    assert modes(group) == [Mode.SYNC, Mode.SYNC, Mode.SYNC, Mode.DLEDGER, Mode.SYNC]
    return group


def test_a_leader_that_is_stopped_while_too_few_elect_leads_again_instead_of_waiting_with_them() -> None:
    group = with_one_elector()
    group[0].replica.remember_confirm_offset()
    group[0].restart()
    group[0].replica.modes.heard_electors({3: incarnation(group[3])})
    group[0].replica.modes.adopt(group[0].now_s)
    assert group[0].replica.must_reclaim
    group[0].replica.reclaimed(group[0].replica.begin_reclaim(), group[0].now_s, FIRST_MS)
    for number in range(1, 5):
        group[number].replica.saw_epoch(group[0].replica.epoch, "r0")
    settle(group)
    settle(group)
    assert modes(group) == [Mode.DLEDGER] * 5
    assert group.leaders == [0]


def test_a_leader_that_has_promised_an_epoch_does_not_become_an_elector_that_a_promotion_has_not_counted() -> None:
    group = with_one_elector()
    group[0].replica.step_down(7, None)
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    group[0].restart()
    assert group[0].replica.modes.adopt(group[0].now_s) is False
    group[0].replica.step_down(8, "r1")
    assert group[0].replica.modes.adopt(group[0].now_s) is True


def test_a_replica_whose_record_of_the_mode_is_damaged_does_not_go_back_to_the_one_before() -> None:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    record_begins_at = group[1].store.end_offset
    change(group[0], ELECTING)
    settle(group)
    group[0].append(b"behind the change")
    group[0].flush()
    settle(group)
    group[1].replica.remember_confirm_offset()
    group[1].restart_with_rot(record_begins_at + 3)
    group[1].replica.modes.adopt(group[1].now_s)
    assert group[1].replica.settings.mode is Mode.DLEDGER
    group[1].repair()
    group[1].restart()
    group[1].replica.modes.adopt(group[1].now_s)
    assert group[1].replica.settings.mode is Mode.DLEDGER


def test_a_leader_alone_does_not_become_one_that_needs_a_majority() -> None:
    """Its slaves have left the in-sync set, so it confirms alone: but not this."""
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    before = group[0].replica.modes.pending
    assert before is not None
    group[0].now_s += 60
    group[0].held_changed()
    assert group[0].replica.confirm_offset == before.begin_offset
    assert group[0].replica.modes.adopt(group[0].now_s) is False


def test_a_change_that_is_cut_never_was() -> None:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    group.isolate(0)
    change(group[0], ELECTING)
    group[1].replica.promote(1, 2, group[1].now_s, FIRST_MS)
    group[2].replica.saw_epoch(2, "r1")
    group.rejoin(0)
    group[0].replica.saw_epoch(2, "r1")
    settle(group)
    assert group[0].replica.modes.pending is None
    assert modes(group) == ["sync"] * 3
    assert group[0].log == group[1].log


def test_a_change_that_outlives_its_leader_is_adopted_under_the_next() -> None:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    group[1].pull()
    group[2].pull()
    group[0].up = False
    group[1].restart()
    assert group[1].replica.modes.pending is not None
    introduce(group)
    group[1].replica.promote(1, 2, group[1].now_s, FIRST_MS)
    group[2].replica.saw_epoch(2, "r1")
    settle(group)
    assert modes(group)[1:] == [Mode.DLEDGER] * 2
    assert group.leaders == [1]
    group[0].restart()
    group[0].replica.saw_epoch(2, "r1")
    settle(group)
    assert modes(group) == [Mode.DLEDGER] * 3


def test_one_that_slept_through_the_way_back_does_not_elect_alone() -> None:
    group = electing()
    group[2].up = False
    change(group[0], SYNC)
    settle(group)
    assert modes(group) == ["sync", "sync", Mode.DLEDGER]
    group[2].up = True
    group[2].now_s += LONG_S
    group[2].tick()
    asked = [letter for letter in group.letters if letter.sender == 2]
    assert {letter.to for letter in asked} == {
        0,
        1,
    }  # both have an assigned leader: their brokers say so, and grant nothing
    group.lose_letters()
    settle(group)
    assert modes(group) == ["sync"] * 3


def test_after_dledger_no_one_acknowledges_alone_before_every_old_voter_knows_of_the_change() -> None:
    """Two that think that they elect would: an acknowledgement of the leader alone would be gone with it."""
    group = electing()
    change(group[0], SYNC)
    for number in (1, 2, 1):  # replica 1 has heard that the change is confirmed, and 2 holds it and has not
        group[number].pull()
        group[number].replica.modes.adopt(group[number].now_s)
        group[0].replica.modes.adopt(group[0].now_s)
    group[1].pull()
    group[0].replica.modes.adopt(group[0].now_s)
    assert modes(group) == ["sync", "sync", Mode.DLEDGER]
    with pytest.raises(RoleRefused, match=r"replicas \[2\] have not adopted the change from DLedger yet"):
        change(group[0], ASYNC)
    settle(group)
    change(group[0], ASYNC)
    settle(group)
    assert modes(group) == ["async"] * 3


def test_an_old_voter_that_is_gone_for_good_is_not_waited_for() -> None:
    group = electing()
    group[2].up = False
    change(group[0], SYNC)
    settle(group)
    with pytest.raises(RoleRefused, match="forget those that are gone for good"):
        change(group[0], ASYNC)
    for number in (0, 1):
        group[number].replica.forget_known_replica(2, group[number].now_s)
    change(group[0], ASYNC)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (ELECTING, "one step at a time"),
        (ASYNC, "from async to async"),
        (Policy(mode=Mode.SYNC, in_sync_replicas=1), "2 or more must be asked for"),
        (Policy(mode=Mode.SYNC, in_sync_replicas=4), "3 replicas are in sync"),
    ],
)
def test_what_is_no_step_is_refused(policy: Policy, said: str) -> None:
    group = assigned()
    with pytest.raises(RoleRefused, match=said):
        change(group[0], policy)


def test_two_replicas_do_not_elect() -> None:
    group = assigned(2)
    change(group[0], SYNC)
    settle(group)
    with pytest.raises(RoleRefused, match="2 replicas cannot outvote a dead one"):
        change(group[0], ELECTING)


def test_every_voter_must_be_level_first() -> None:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    group[0].now_s += 60
    group[1].pull()
    group[1].pull()
    with pytest.raises(RoleRefused, match=r"replicas \[2\] are not in sync"):
        change(group[0], ELECTING)


def test_only_the_leader_changes_the_mode_and_one_change_waits_for_the_other() -> None:
    group = assigned()
    with pytest.raises(RoleRefused, match="does not lead; the leader is r0"):
        change(group[1], SYNC)
    change(group[0], SYNC)
    with pytest.raises(RoleRefused, match="not confirmed yet"):
        change(group[0], SYNC)


def test_after_dledger_a_majority_must_be_in_sync_lest_others_elect_without_the_leaders_slaves() -> None:
    group = assigned(5)
    change(group[0], SYNC)
    settle(group)
    change(group[0], ELECTING)
    settle(group)
    with pytest.raises(RoleRefused, match="3 are needed"):
        change(group[0], SYNC)
    change(group[0], Policy(mode=Mode.SYNC, in_sync_replicas=3))
    settle(group)
    assert modes(group) == ["sync"] * 5


def test_a_number_that_goes_down_by_itself_is_counted_as_low_as_it_goes() -> None:
    """With enableAutoInSyncReplicas the leader would acknowledge alone while the others elect one of theirs."""
    group = assigned()
    for node in group.nodes.values():
        node.settings = replace(node.settings, auto_in_sync_replicas=True, min_in_sync_replicas=1)
        node.restart()
    group[0].replica.promote(1, 2, group[0].now_s, FIRST_MS)
    for number in (1, 2):
        group[number].replica.saw_epoch(2, "r0")
    settle(group)
    for policy in (SYNC, ELECTING):
        change(group[0], policy)
        settle(group)
    with pytest.raises(RoleRefused, match=r"minInSyncReplicas 1 .* is too small"):
        change(group[0], SYNC)
    change(group[0], Policy(mode=Mode.SYNC, in_sync_replicas=2, min_in_sync_replicas=2))
    settle(group)
    assert group[0].replica.settings.surely_held_by == 2


def alone() -> QuorumGroup:
    """Replica 0 leads in mode single; 1 has been started beside it, and is level."""
    group = assigned(2)
    group[0].replica.forget_known_replica(1, group[0].now_s)
    change(group[0], SINGLE)
    group[0].replica.modes.adopt(group[0].now_s)
    assert modes(group)[0] == "single"
    return group


def test_a_group_of_one_gets_slaves_and_goes_to_async() -> None:
    group = alone()
    settle(group)
    change(group[0], ASYNC)
    settle(group)
    assert modes(group) == ["async"] * 2
    assert group.leaders == [0]


def test_it_goes_back_only_when_no_one_else_belongs_to_it() -> None:
    group = assigned(3)
    group[0].replica.forget_known_replica(2, group[0].now_s)
    with pytest.raises(RoleRefused, match=r"replicas \[1\] belong to the group"):
        change(group[0], SINGLE)


def test_who_is_alone_by_the_log_leads_again_whatever_its_file_still_says() -> None:
    group = alone()
    assert group[0].settings.total_replicas == 2
    group[0].restart()
    assert group.leaders == [0]
    assert modes(group)[0] == "single"


def test_who_has_a_slave_again_asks_it_before_it_leads() -> None:
    group = alone()
    settle(group)
    group[0].restart()
    assert group.leaders == []
    assert group[0].replica.must_reclaim


def mode_records(node: Node) -> list[Mode | None]:
    return [record.mode for _, _, record in pending_modes(node.store)]


def test_the_others_learn_of_a_change_that_its_leader_acted_by_and_power_cuts_took_from_every_log() -> None:
    """The leader went on by the new mode, they by the old one, and the change waited for them for ever."""
    group = assigned(durable_counts=False)
    for node in group.nodes.values():
        node.flush()
    group[0].replica.modes.request(SYNC, group[0].now_s, FIRST_MS)
    for _ in range(2):
        for number in (1, 2):
            group[number].pull(flush=False)
    group[0].held_changed()
    assert group[0].replica.modes.adopt(group[0].now_s)
    for node in group.nodes.values():
        node.lose_power()
    assert (modes(group), mode_records(group[0])) == (["sync", "async", "async"], [])
    group[0].replica.promote(1, 2, group[0].now_s, FIRST_MS, with_incomplete_log=True)
    for number in (1, 2):
        group[number].replica.saw_epoch(2, "r0")
    settle(group)
    assert modes(group) == ["sync"] * 3


def test_a_leader_whose_log_has_the_change_does_not_write_it_again() -> None:
    group = assigned()
    change(group[0], SYNC)
    settle(group)
    group[0].restart()
    group[0].replica.promote(1, 2, group[0].now_s, FIRST_MS)
    settle(group)
    assert mode_records(group[0]) == [Mode.SYNC]


def test_a_new_disk_learns_the_mode_whose_record_retention_has_deleted() -> None:
    """Its configuration may still be that of before: it went on to elect in a group whose leader is assigned, for ever."""
    group = electing()
    change(group[0], SYNC)
    settle(group)
    leader, follower = group[0], group[1]
    while leader.store.end_offset < 2 * FILE_BYTES:
        leader.append(b"." * 400)
    leader.flush()
    leader.store.flush_consume_queues()
    assert leader.replica.modes.without_record() is None  # the log says it
    leader.store.confirm_offset = None
    leader.disk.used_ratio = 0.8  # whatever the hour
    leader.store.delete_expired(leader.clock.time_ms + 10 * 24 * 3_600_000)
    min_offset = leader.store.min_physical_offset
    policy = leader.replica.modes.without_record()
    assert policy is not None
    assert (min_offset > 0, policy.mode) == (True, Mode.SYNC)
    follower.settings = replace(follower.settings, mode=Mode.DLEDGER)
    follower.replace_disk()
    follower.replica.start_over(min_offset, 1, lambda: follower.store.start_over(min_offset), None, policy)
    assert follower.replica.modes.adopt(follower.now_s)
    assert (follower.replica.settings.mode, follower.replica.elections) == (Mode.SYNC, None)
    follower.restart()
    assert follower.replica.settings.mode is Mode.SYNC


def test_a_new_disk_learns_the_mode_from_a_leader_whose_records_of_it_cannot_be_read() -> None:
    """It was refused for as long as the damage was there."""
    group = electing()
    leader = group[0]
    record_begins_at = leader.store.end_offset
    change(leader, SYNC)
    settle(group)
    damage(leader.disk, record_begins_at + 3)
    policy = leader.replica.modes.without_record()
    assert policy is not None
    assert policy.mode is Mode.SYNC
    assert leader.store.damage_seen is not None


def test_what_follows_a_change_is_confirmed_by_the_new_mode_only() -> None:
    """One flush may hold both: a slave that has only the record acts by the new mode, and might lead without the rest."""
    group = assigned()
    group[0].replica.modes.request(SYNC, group[0].now_s, FIRST_MS)
    record = group[0].replica.modes.pending
    assert record is not None
    end = group[0].append(b"behind the change")
    group[0].store.flush()
    group[0].held_changed()
    assert group[0].replica.confirm_offset == record.end_offset
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group[0].replica.modes.adopt(group[0].now_s)
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group.level()
    assert group[0].replica.verdict(end) is SendVerdict.SEND_OK


def half_way_back() -> QuorumGroup:
    """Replica 2 has slept through the way from DLedger to sync; then replica 0, which leads, is restarted."""
    group = electing()
    group[2].up = False
    change(group[0], SYNC)
    settle(group)
    group[2].up = True
    group[0].restart()
    assert modes(group) == ["sync", "sync", Mode.DLEDGER]
    return group


def reclaim(group: QuorumGroup, voter: int, epoch: int) -> None:
    replica = group[0].replica
    group[voter].replica.grant_reclaim(
        replica_id=0,
        epoch=epoch,
        last_epoch=replica.epochs.last_epoch,
        end_offset=group[0].store.end_offset,
        address="r0",
    )


def test_one_that_slept_through_the_way_back_votes_for_a_restarted_leader() -> None:
    group = half_way_back()
    group.wait(LONG_S)
    group[2].tick()
    group.lose_letters()
    epoch = group[0].replica.begin_reclaim()
    reclaim(group, 1, epoch)
    reclaim(group, 2, epoch)
    reclaim(group, 2, epoch)  # asked again: its first answer was lost
    assert group[2].replica.saved.voted_for == 0
    group[0].replica.reclaimed(epoch, group[0].now_s, FIRST_MS)
    group[2].replica.step_down(epoch, "r0")  # as the leader announces itself
    settle(group)
    assert modes(group) == ["sync"] * 3
    assert group[2].log == group[0].log


def test_one_that_elects_gives_no_second_vote_to_a_reclaim() -> None:
    group = half_way_back()
    group.wait(LONG_S)
    group[2].tick()
    epoch = group[0].replica.begin_reclaim()
    reclaim(group, 2, epoch)
    with pytest.raises(RoleRefused, match="is in epoch"):
        group[2].replica.grant_reclaim(replica_id=1, epoch=epoch, last_epoch=9, end_offset=1 << 30, address="r1")


def test_one_that_elects_refuses_a_reclaim_while_it_hears_a_leader() -> None:
    group = electing()
    with pytest.raises(RoleRefused, match="the leader of epoch 1 answers here"):
        group[1].replica.grant_reclaim(replica_id=2, epoch=2, last_epoch=1, end_offset=1 << 30, address="r2")
    assert group[1].replica.epoch == 1


def seen(node: Node) -> LeaderSeen:
    return LeaderSeen(node.replica.epoch, node.store.end_offset)


def test_a_request_that_comes_when_the_group_was_changed_since_is_refused() -> None:
    """The network had it twice: the second one took back a change that had been called done."""
    group = electing()
    leader = group[0]
    change(leader, SYNC)
    settle(group)
    asked_by = seen(leader)
    leader.replica.modes.request(ASYNC, leader.now_s, FIRST_MS, asked_by)
    leader.flush()
    settle(group)
    change(leader, SYNC)
    settle(group)
    with pytest.raises(RoleRefused, match="changed to mode sync, or its leader, since this was asked for"):
        leader.replica.modes.request(ASYNC, leader.now_s, FIRST_MS, asked_by)
    leader.replica.modes.request(ASYNC, leader.now_s, FIRST_MS, seen(leader))
    leader.flush()
    settle(group)
    assert modes(group) == ["async"] * 3


def test_a_request_that_comes_twice_is_not_refused_for_good() -> None:
    """The second one fails no operation whose change the first one brought."""
    group = assigned()
    asked_by = seen(group[0])
    change(group[0], SYNC)
    settle(group)
    with pytest.raises(RoleRefused, match="since this was asked for") as refused:
        group[0].replica.modes.request(SYNC, group[0].now_s, FIRST_MS, asked_by)
    assert not refused.value.for_good


def test_a_leader_that_was_restarted_since_refuses_a_request() -> None:
    group = assigned()
    asked_by = seen(group[0])
    change(group[0], SYNC)
    settle(group)
    group[0].restart()
    group[0].replica.promote(1, 2, group[0].now_s, FIRST_MS)
    settle(group)
    for old in (asked_by, LeaderSeen(2, asked_by.end_offset)):
        with pytest.raises(RoleRefused, match="since this was asked for"):
            group[0].replica.modes.request(ASYNC, group[0].now_s, FIRST_MS, old)
    group[0].replica.modes.request(ASYNC, group[0].now_s, FIRST_MS, seen(group[0]))


def test_a_late_request_says_in_its_refusal_what_to_do(broker: BrokerUnderTest) -> None:
    header = ReplicaModeRequestHeader(
        group=broker.broker.replica.settings.group, mode="async", epoch=broker.broker.replica.epoch + 1, end_offset=0
    )
    answer = broker.ask(HighwaterRequestCode.REPLICA_MODE, header)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert answer.remark is not None
    assert answer.remark.endswith("since this was asked for; look at haStatus, and ask again")


def test_a_mode_that_no_group_has_is_refused_by_its_name(broker: BrokerUnderTest) -> None:
    header = ReplicaModeRequestHeader(group=broker.broker.replica.settings.group, mode="raft")
    answer = broker.ask(HighwaterRequestCode.REPLICA_MODE, header)
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "'raft' is no mode: name one of single, async, sync, dledger",
    )


@pytest.mark.parametrize("retention", [False, True])
def test_a_leader_that_is_stopped_before_it_elects_remembers_the_change_though_retention_took_the_one_before(
    retention: bool,
) -> None:
    group = electing()
    leader = group[0]
    change(leader, Policy(mode=Mode.SYNC, in_sync_replicas=2))
    settle(group)
    if retention:
        while leader.store.end_offset < 2 * FILE_BYTES:
            leader.append(b"." * 400)
        leader.flush()
        settle(group)
        settle(group)
        leader.store.flush_consume_queues()
        leader.disk.used_ratio = 0.8
        leader.replica.remember_epochs()
        leader.store.confirm_offset = None
        leader.store.delete_expired(leader.clock.time_ms + 240 * 3_600_000)
        assert leader.store.min_physical_offset > 0
    change(leader, ELECTING)
    for _ in range(3):
        group.level()
    leader.replica.remember_confirm_offset()
    for number in (1, 2):
        group[number].replica.modes.adopt(group[number].now_s)
    leader.restart()
    assert leader.replica.modes.pending is not None
    assert leader.replica.modes.pending.policy == ELECTING
