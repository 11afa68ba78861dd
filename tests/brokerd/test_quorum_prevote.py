"""Who disturbs no one, and who must go: PreVote (Ongaro's dissertation, section 9.6), CheckQuorum (6.2), resigning (KIP-595)."""

from __future__ import annotations

from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.quorum_messages import Campaign, EndEpoch, VoteAnswer, VoteRequest
from brokerd.replica.quorum_state import State
from tests.brokerd.quorum_group import LONG_S, TIMES, QuorumGroup


def test_9_6_a_replica_that_is_cut_off_raises_no_epoch_however_long_that_lasts() -> None:
    group = QuorumGroup.led()
    group.isolate(2)
    for _ in range(50):
        group[2].now_s += 1.0
        group[2].tick()
        group.deliver()
    assert (group[2].state, group[2].replica.epoch) == (State.PRE_CANDIDATE, 1)


def test_9_6_it_comes_back_without_an_election() -> None:
    group = QuorumGroup.led()
    group.isolate(2)
    group[2].time_out()
    group.deliver()
    group.rejoin(2)
    group[1].pull()
    group[2].now_s += 1.0
    group[2].tick()
    group.deliver()
    assert group.leaders == [0]
    assert {node.replica.epoch for node in group.nodes.values()} == {1}
    group[2].pull()
    assert group[2].state is State.FOLLOWER


def test_9_6_asking_beforehand_raises_nothing_and_promises_nothing() -> None:
    group = QuorumGroup.led()
    group.wait(LONG_S)
    log = group[1].log
    before = group[2].replica.saved
    request = VoteRequest(group="group-a", candidate=1, epoch=2, last_epoch=log[0], end_offset=log[1], pre=True)
    reply = group[2].step(request).reply
    assert isinstance(reply, VoteAnswer)
    assert (reply.granted, group[2].replica.saved) == (True, before)


def test_9_6_who_has_just_heard_from_the_leader_would_not_vote_for_another() -> None:
    group = QuorumGroup.led()
    group.wait(LONG_S)
    group[2].pull()
    group[1].time_out()
    group.deliver()
    assert group.leaders == [0]
    assert group[1].replica.epoch == 1


def test_9_6_the_leader_itself_says_no() -> None:
    group = QuorumGroup.led(2)
    group.wait(LONG_S)
    group[1].tick()
    group.deliver()
    assert group.leaders == [0]


def test_a_broken_connection_to_the_leader_lets_its_followers_elect_at_once() -> None:
    group = QuorumGroup.led()
    group[0].up = False
    for node in (group[1], group[2]):
        node.elections.leader_lost(node.now_s)
    waited_s = 0.0
    while not group.leaders and waited_s < 5:
        waited_s += 0.05
        group.wait(0.05)
        for node in (group[1], group[2]):
            node.tick()
        group.deliver()
    assert waited_s < TIMES.pull_timeout[0]


def test_one_broken_connection_alone_elects_no_one() -> None:
    group = QuorumGroup.led()
    group[1].elections.leader_lost(group[1].now_s)
    group.wait(0.3)
    group[1].tick()
    group.deliver()
    assert group.leaders == [0]
    assert group[1].replica.epoch == 1


def test_6_2_a_leader_without_a_majority_takes_no_sends_and_then_resigns() -> None:
    group = QuorumGroup.led()
    assert group[0].replica.refuses_sends(group[0].now_s) is None
    group[0].now_s += TIMES.recent + 0.1
    assert "fewer than 2 of 3" in (group[0].replica.refuses_sends(group[0].now_s) or "")
    assert group[0].replica.leads
    group[0].now_s += TIMES.check_quorum
    outcome = group[0].tick()
    assert outcome.role_changed
    assert not group[0].replica.leads
    assert group[0].replica.epoch == 1


def test_6_2_one_follower_of_two_is_majority_enough() -> None:
    group = QuorumGroup.led()
    group[2].up = False
    for _ in range(20):
        group.wait(1.0)
        group[1].pull()
        group[0].tick()
    assert group.leaders == [0]


def test_6_2_pulls_of_observers_do_not_keep_a_leader() -> None:
    group = QuorumGroup.led(3, observers=2)
    for _ in range(5):
        group.wait(1.0)
        group[3].pull()
        group[4].pull()
        group[0].tick()
    assert group.leaders == []


def test_a_leader_that_slept_confirms_nothing_that_another_one_may_have_replaced() -> None:
    group = QuorumGroup.led()
    group[0].up = False  # asleep, with a record that only it has
    end = group[0].append(b"only here")
    group[0].flush()
    group.elect(1)
    group.level()
    group[0].up = True
    group[0].now_s += 60
    assert group[0].replica.refuses_sends(group[0].now_s) is not None
    group[0].tick()
    assert group[0].replica.verdict(end) is SendVerdict.WAIT
    group.deliver()
    assert group.leaders == [1]


def test_a_resigning_leader_names_the_best_held_and_that_one_campaigns_at_once() -> None:
    group = QuorumGroup.led()
    group[0].append(b"one")
    group[0].flush()
    group[2].pull()
    group[2].pull()
    outcome = group.sent(group[0], group[0].elections.resign("it stops", group[0].now_s))
    (end,) = {message for _, message in outcome.messages}
    assert isinstance(end, EndEpoch)
    assert end.successors == (2, 1)
    group.deliver()
    assert group.leaders == [2]
    assert group[2].replica.epoch == 2


def test_one_whose_disk_was_lost_does_not_campaign_when_it_is_named() -> None:
    """The leader knows of its last pull only; and who voted for itself would have a voice, with nothing in its log."""
    group = QuorumGroup.led()
    group[2].replace_disk()
    group.sent(group[0], group[0].elections.resign("it stops", group[0].now_s))
    group.deliver(lambda letter: letter.to == 2)
    group[2].step(Campaign(group="group-a", leader=0, epoch=1))
    assert group[2].state is State.UNATTACHED
    assert not group[2].replica.saved.joined


def test_the_next_named_goes_on_when_the_best_is_gone() -> None:
    group = QuorumGroup.led(5)
    group[0].append(b"one")
    group[0].flush()
    for number in (2, 2, 3, 3):
        group[number].pull()
    group[2].up = False
    group.sent(group[0], group[0].elections.resign("it stops", group[0].now_s))
    group.deliver()
    assert group.leaders == []
    for _ in range(40):
        group.wait(0.05)
        for number in (1, 3, 4):
            group[number].tick()
        group.deliver()
    assert group.leaders == [3]


def test_a_follower_that_hears_an_old_leader_resign_goes_on() -> None:
    group = QuorumGroup.led()
    group.elect(1)
    group.level()
    group[2].step(EndEpoch(group="group-a", leader=0, epoch=1, successors=(2, 1)))
    assert (group[2].state, group[2].replica.leader_address) == (State.FOLLOWER, "r1")


def test_a_leader_whose_epoch_record_cannot_be_written_resigns() -> None:
    group = QuorumGroup.led(5)
    group[0].up = False
    group[1].fail_log_writes(once=False)
    group.wait(LONG_S)
    group[1].tick()
    group.deliver()
    assert (group[1].replica.leads, group[1].replica.epochs.last_epoch) == (False, 1)
    assert group.leaders == [2]  # whom it named
