"""A restarted leader's reclaim, in every order of events that once left a group without a leader: in each, one leads in the end."""

from __future__ import annotations

import pytest
import trio

from brokerd.replica.epoch_file import Role
from brokerd.replica.epoch_record import Lacks
from brokerd.replica.pull_protocol import Fenced
from brokerd.replica.replica import RoleRefused
from brokerd.store import StoreError
from mqwire.bodies import ConsumerOffsetSerializeWrapper
from tests.brokerd.replica_members import Member, group
from tests.sim.store_harness import message


def restarted() -> tuple[Member, Member]:
    """A leader that was restarted, and its level follower."""
    leader, follower = group()
    leader.restart()
    assert leader.replica.must_reclaim
    return leader, follower


def pull_early(follower: Member, restarted: Member) -> None:
    """A replica that agreed asks its leader-to-be for records before that knows that it leads."""
    pull = follower.replica.next_pull(max_bytes=1, max_wait_ms=0)
    assert isinstance(restarted.replica.pulled(pull, "r1", 0.0), Fenced)


def test_a_follower_that_agreed_and_pulls_while_others_are_asked_does_not_end_the_reclaim() -> None:
    leader, follower = restarted()
    epoch = leader.replica.begin_reclaim()
    follower.replica.saw_epoch(epoch, "r0")
    pull_early(follower, leader)
    leader.replica.end_reclaim()
    leader.replica.reclaimed(epoch, 0.0, 0)
    assert leader.replica.leads


def test_a_follower_whose_agreement_was_lost_pulls_and_the_restarted_leader_leads_all_the_same() -> None:
    leader, follower = restarted()
    assert not leader.reclaim_from(follower, answers_lost_from=follower)
    pull_early(follower, leader)
    assert leader.replica.must_reclaim, "it was its own epoch that came back"
    assert leader.reclaim_from(follower)


def test_a_restarted_leader_that_is_killed_after_the_agreement_leads_after_its_next_start() -> None:
    leader, follower = restarted()
    assert not leader.reclaim_from(follower, answers_lost_from=follower)
    leader.restart()
    pull_early(follower, leader)
    assert leader.reclaim_from(follower)


def test_a_follower_that_agreed_and_was_restarted_agrees_again() -> None:
    leader, follower = restarted()
    assert not leader.reclaim_from(follower, answers_lost_from=follower)
    follower.restart()
    pull_early(follower, leader)
    assert leader.reclaim_from(follower)


def test_a_restarted_leader_whose_address_has_changed_leads_all_the_same() -> None:
    leader, follower = restarted()
    assert not leader.reclaim_from(follower, answers_lost_from=follower)
    leader.move_to("r0-moved")
    assert leader.reclaim_from(follower)
    assert follower.replica.leader_address == "r0-moved"


def test_an_agreement_is_not_given_to_two_in_one_epoch() -> None:
    leader, follower = restarted()
    epoch = leader.replica.begin_reclaim()
    log = {"last_epoch": leader.log()[0], "end_offset": leader.log()[1], "epoch": epoch}
    follower.replica.grant_reclaim(replica_id=0, address="r0", **log)
    with pytest.raises(RoleRefused, match="not above"):
        follower.replica.grant_reclaim(replica_id=2, address="r2", **log)


def test_an_epoch_that_was_given_to_a_reclaim_is_not_promised() -> None:
    """Who promised it followed the restarted leader in it all the same, in spite of the promise."""
    leader, follower = restarted()
    assert leader.reclaim_from(follower)
    with pytest.raises(RoleRefused, match="has its leader"):
        follower.replica.step_down(leader.replica.epoch, None)


def test_who_hears_of_an_epoch_knows_no_leader_of_it_and_can_promise_it() -> None:
    _, follower = group()
    follower.replica.saw_epoch(1, "r0")
    follower.replica.saw_epoch(4)
    assert follower.replica.leader_address is None
    follower.replica.step_down(4, None)


def test_who_agrees_to_a_leader_says_that_what_the_one_before_had_promised_to_show_no_one_is_over() -> None:
    """The control plane remembers the older lease, and took what the new leader showed alone for shown to no one."""
    leader, follower = restarted()
    follower.replica.take_lease(1, 10.0, 15.0)
    assert leader.reclaim_from(follower)
    assert follower.replica.lease == (leader.replica.epoch, 0.0)


def test_the_one_whose_log_is_longer_reclaims_in_the_others_place() -> None:
    leader, follower = group()
    leader.store.append([message(b"flushed by the follower only")])
    leader.replica.held_changed(0.0)
    follower.pull_from(leader)
    leader.lose_power()
    assert leader.store.end_offset < follower.store.end_offset
    assert not leader.reclaim_from(follower)
    assert follower.replica.must_reclaim
    follower.restart()
    assert not leader.reclaim_from(follower), "the shorter log never leads"
    assert follower.reclaim_from(leader)
    assert not leader.replica.must_reclaim
    assert leader.replica.leader_address == "r1"


def test_one_whose_log_is_longer_but_damaged_reclaims_nothing() -> None:
    leader, follower = group()
    follower.send()  # what no leader ever sent: only to be longer
    follower.break_disk()
    leader.restart()
    assert not leader.reclaim_from(follower)
    assert not follower.replica.must_reclaim


def two_that_reclaim() -> tuple[Member, Member]:
    """A restarted leader, and a promoted replica whose epoch record went with the power: equal logs, both reclaim."""
    first, second = group()
    first.restart()
    second.replica.promote(1, 2, 0.0, 0)
    second.lose_power()
    assert first.log() == second.log()
    assert (first.replica.must_reclaim, second.replica.must_reclaim) == (True, True)
    return first, second


def test_of_two_that_reclaim_with_the_same_log_the_first_by_id_leads() -> None:
    first, second = two_that_reclaim()
    assert not second.reclaim_from(first)
    assert first.reclaim_from(second)
    assert (first.replica.leads, second.replica.must_reclaim) == (True, False)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_reclaims_that_cross_leave_one_leader(order: tuple[int, int]) -> None:
    members = two_that_reclaim()
    highest = max(member.replica.epoch for member in members)
    epochs = [member.replica.begin_reclaim(highest) for member in members]
    granted = []
    for replica_id in order:
        last_epoch, end_offset = members[replica_id].log()
        try:
            members[1 - replica_id].replica.grant_reclaim(
                replica_id=replica_id,
                epoch=epochs[replica_id],
                last_epoch=last_epoch,
                end_offset=end_offset,
                address=f"r{replica_id}",
            )
            granted.append(replica_id)
        except RoleRefused:
            pass
    for replica_id in granted:
        members[replica_id].replica.reclaimed(epochs[replica_id], 0.0, 0)
    assert [member.replica.leads for member in members] == [True, False]


def test_an_epoch_above_the_reclaimed_one_makes_the_reclaim_start_again_above_it() -> None:
    leader, follower = restarted()
    epoch = leader.replica.begin_reclaim()
    follower.replica.saw_epoch(epoch + 5)
    pull_early(follower, leader)
    leader.replica.end_reclaim()
    with pytest.raises(RoleRefused, match="not to be reclaimed any more"):
        leader.replica.reclaimed(epoch, 0.0, 0)
    assert leader.reclaim_from(follower)
    assert leader.replica.epoch > epoch + 5


def test_a_leader_that_hears_of_a_higher_epoch_stops_and_may_reclaim() -> None:
    leader, follower = group()
    assert leader.replica.saw_epoch(7)
    assert (leader.replica.leads, leader.replica.must_reclaim, leader.replica.epoch) == (False, True, 7)
    assert leader.reclaim_from(follower)
    assert leader.replica.epoch == 8


def test_a_leader_that_hears_who_leads_in_a_higher_epoch_follows() -> None:
    leader, _ = group()
    assert leader.replica.saw_epoch(7, "r1")
    assert (leader.replica.leads, leader.replica.must_reclaim, leader.replica.leader_address) == (False, False, "r1")
    leader.restart()
    assert not leader.replica.must_reclaim


def test_a_reclaim_above_its_epoch_stops_a_leader_which_then_reclaims_with_its_longer_log() -> None:
    leader, follower = group()
    leader.send()
    last_epoch, end_offset = follower.log()
    with pytest.raises(RoleRefused, match="leads in epoch 1"):
        leader.replica.grant_reclaim(replica_id=1, epoch=4, last_epoch=last_epoch, end_offset=end_offset, address="r1")
    assert not leader.replica.leads
    assert leader.reclaim_from(follower)


def test_a_replica_whose_log_cannot_be_written_does_not_lead_again() -> None:
    leader, follower = restarted()
    leader.break_disk()
    with pytest.raises(StoreError, match="writing to"):
        leader.reclaim_from(follower)
    assert follower.replica.epoch == 1, "no one was asked"


def test_a_replica_whose_log_breaks_while_others_agree_does_not_lead_again() -> None:
    leader, _ = restarted()
    epoch = leader.replica.begin_reclaim()
    leader.break_disk()
    with pytest.raises(RoleRefused, match="cannot lead"):
        leader.replica.reclaimed(epoch, 0.0, 0)
    assert not leader.replica.leads


# --- what a leader may lack that begins so


def noted(member: Member) -> Lacks:
    """What its epoch file says."""
    return Lacks(shown=member.replica.saved.lacks_shown_from is not None, an_epoch=member.replica.saved.lacks_an_epoch)


def test_new_disks_that_found_a_group_have_lost_nothing() -> None:
    leader, follower = Member(0, leader=True), Member(1)
    assert leader.reclaim_from(follower)
    assert noted(leader) == Lacks()


def test_a_level_follower_that_agrees_has_lost_nothing() -> None:
    leader, follower = restarted()
    assert leader.reclaim_from(follower)
    assert noted(leader) == Lacks()


def test_the_disk_before_a_new_one_may_have_shown_what_no_one_has_any_more() -> None:
    leader, _ = restarted()
    assert leader.reclaim_from(Member(1))
    assert noted(leader) == Lacks(shown=True, an_epoch=True)


def test_so_may_the_disk_before_the_own_one() -> None:
    """The other one has seen a promotion: the group is not being founded."""
    leader, follower = Member(0, leader=True), Member(1)
    follower.replica.step_down(4, None)
    assert leader.reclaim_from(follower)
    assert noted(leader) == Lacks(shown=True, an_epoch=True)


def test_an_epoch_that_a_promise_belongs_to_may_have_been_led_and_is_not_led_again() -> None:
    """It was, by the disk before: two logs of one epoch."""
    leader, follower = Member(0, leader=True), Member(1)
    follower.replica.step_down(4, None)
    assert leader.reclaim_from(follower)
    assert leader.replica.epoch > 5


def test_one_that_led_since_and_lost_that_with_its_power_says_that_an_epoch_is_missing() -> None:
    leader, follower = restarted()
    follower.replica.promote(1, 2, 0.0, 0)
    follower.lose_power()
    follower.replica._save(log_may_be_incomplete=True, role=Role.FOLLOWER)
    assert leader.reclaim_from(follower)
    assert noted(leader) == Lacks(shown=True, an_epoch=True)


class Offsets:
    """What consumers committed at the others, and whether it was taken over."""

    def __init__(self) -> None:
        self.taken: list[ConsumerOffsetSerializeWrapper] = []

    async def offsets_at(self, address: str) -> ConsumerOffsetSerializeWrapper:
        await trio.lowlevel.checkpoint()
        return ConsumerOffsetSerializeWrapper(offset_table={"orders@g": {0: 15}})

    def merge(self, offsets: ConsumerOffsetSerializeWrapper) -> None:
        self.taken.append(offsets)


def test_what_consumers_committed_elsewhere_is_taken_over_by_one_that_leads_again() -> None:
    leader, follower = restarted()
    offsets = Offsets()
    assert leader.reclaim_from(follower, offsets=offsets)
    assert len(offsets.taken) == 1


def test_it_is_not_by_one_that_was_refused_and_may_be_promoted_with_a_loss_next() -> None:
    leader, follower = restarted()
    follower.replica.promote(1, 2, 0.0, 0)
    follower.send()
    follower.restart()
    offsets = Offsets()
    assert not leader.reclaim_from(follower, offsets=offsets)
    assert offsets.taken == []


def test_it_is_not_where_it_may_be_of_messages_that_are_lost() -> None:
    leader, _ = restarted()
    offsets = Offsets()
    assert leader.reclaim_from(Member(1), offsets=offsets)
    assert offsets.taken == []
