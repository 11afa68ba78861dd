"""What is said of a group that elects its leader: states, words, and who counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.failover.membership.verdict import electorate_of, judge_elected
from controlplane.failover.promotion.verdict import GroupState, GroupView, ReplicaView
from mqwire.bodies import QuorumStatus
from tests.failover.views import NOW, slave_view


def quorum(state: str = "follower", **changes: object) -> QuorumStatus:
    values: dict[str, object] = {"state": state, "voted_for": 0, "leader_id": 0, "voters": [0, 1, 2], **changes}
    return QuorumStatus(**values)  # type: ignore[arg-type]  # a dictionary has one type for all values


def follower(replica_id: int, reported: QuorumStatus | None = None, **changes: object) -> ReplicaView:
    """A voter that is level, unless `changes` say otherwise."""
    return slave_view(replica_id, **{"quorum": reported or quorum(), **changes})


def leader(replica_id: int = 0, reported: QuorumStatus | None = None, **changes: object) -> ReplicaView:
    changes = {"role": "master", "accepts_sends": True, **changes}
    return follower(replica_id, reported or quorum("leader"), **changes)


def away(view: ReplicaView) -> ReplicaView:
    since = NOW - timedelta(seconds=30)
    return replace(view, unreachable_since=since, last_seen_at=since, in_sync=None, accepts_sends=None)


def group(*replicas: ReplicaView, led_ago_s: float = 1) -> GroupView:
    return GroupView(
        name="broker-a",
        in_sync_replicas=1,
        replicas=replicas,
        elects=True,
        leader_id=0,
        led_at=NOW - timedelta(seconds=led_ago_s),
    )


def test_a_leader_with_level_voters_is_healthy() -> None:
    verdict = judge_elected(group(leader(), follower(1), follower(2)), NOW)
    assert (verdict.state, verdict.master_id) == (GroupState.HEALTHY, 0)
    assert verdict.sentences == ("broker-a: replica 0 is the leader (epoch 3). Both followers are in sync.",)


def test_no_one_is_a_candidate_for_a_promotion() -> None:
    for view in (group(leader(), follower(1), follower(2)), group(away(leader()), follower(1), follower(2))):
        verdict = judge_elected(view, NOW)
        assert (verdict.candidates, verdict.cleanness) == ((), None)


def test_one_of_three_away_leaves_no_one_to_spare() -> None:
    verdict = judge_elected(group(leader(), follower(1), away(follower(2))), NOW)
    assert (verdict.state, verdict.master_id) == (GroupState.DEGRADED, 0)
    assert verdict.sentences == (
        "1 of 3 replicas is unreachable. Writes and reads continue; if one more fails, writes are refused.",
        "Replica 2 has not answered since 04:59:30 UTC.",
    )


def test_two_of_three_away_refuse_writes_and_reads_go_on() -> None:
    alone = leader(accepts_sends=False, refusal="fewer than 2 of 3 replicas are reachable")
    verdict = judge_elected(group(alone, away(follower(1)), away(follower(2))), NOW)
    assert verdict.state == GroupState.NO_MASTER
    assert verdict.sentences[0] == "2 of 3 replicas are unreachable. Writes are refused; reads continue from replica 0."
    assert verdict.sentences[1].startswith("Writes resume by themselves once 2 of 3 replicas reach each other")


def test_all_away_can_neither_be_written_nor_read() -> None:
    verdict = judge_elected(group(away(leader()), away(follower(1)), away(follower(2))), NOW)
    assert verdict.state == GroupState.NO_MASTER
    assert verdict.sentences[0] == "3 of 3 replicas are unreachable. Writes are refused; nothing can be read either."


def test_while_a_majority_answers_without_a_leader_an_election_is_under_way() -> None:
    verdict = judge_elected(group(away(leader()), follower(1), follower(2)), NOW)
    assert (verdict.state, verdict.master_id) == (GroupState.NO_MASTER, None)
    assert "an election is in progress" in verdict.sentences[0]
    assert "reads continue from replicas 1 and 2" in verdict.sentences[0]


def test_an_election_that_takes_long_is_reported_with_its_reason() -> None:
    verdict = judge_elected(group(away(leader()), follower(1), follower(2), led_ago_s=30), NOW)
    assert "they may not reach each other" in verdict.sentences[1]


def test_a_leader_in_a_minority_partition_says_itself_that_it_refuses() -> None:
    cut_off = leader(accepts_sends=False, refusal="fewer than 2 of 3 replicas are reachable")
    verdict = judge_elected(group(cut_off, follower(1), follower(2)), NOW)
    assert verdict.state == GroupState.NO_MASTER
    assert "refuses sends" in verdict.sentences[0]
    assert "fewer than 2 of 3 replicas are reachable" in verdict.sentences[0]


def test_during_a_transfer_it_is_said_that_sends_wait_a_moment() -> None:
    handing = leader(reported=quorum("leader", transferring_to=1), accepts_sends=False, refusal="moving")
    verdict = judge_elected(group(handing, follower(1), follower(2)), NOW)
    assert verdict.state == GroupState.DEGRADED
    assert "is handing the leadership to replica 1" in verdict.sentences[0]


def test_who_is_behind_is_reported_in_bytes_and_messages() -> None:
    behind = follower(2, in_sync=False, gap_bytes=3 * 1024 * 1024, gap_messages=12)
    verdict = judge_elected(group(leader(), follower(1), behind), NOW)
    assert verdict.state == GroupState.DEGRADED
    assert verdict.sentences == ("Replica 2 is 3.0 MiB and 12 messages behind.",)


def test_who_lacks_the_last_moment_of_a_busy_group_keeps_up() -> None:
    verdict = judge_elected(group(leader(), follower(1), follower(2, in_sync=False, gap_bytes=4096)), NOW)
    assert verdict.state == GroupState.HEALTHY


def test_what_is_not_known_of_a_replica_is_not_called_level() -> None:
    unknown = follower(2, in_sync=False, gap_bytes=None, gap_messages=None)
    verdict = judge_elected(group(leader(), follower(1), unknown), NOW)
    assert verdict.sentences == ("Replica 2 is behind by an unknown amount.",)


def test_an_observer_does_not_count_and_troubles_no_one() -> None:
    catching_up = follower(3, in_sync=False, gap_bytes=5 * 1024 * 1024, gap_messages=70)
    verdict = judge_elected(group(leader(), follower(1), follower(2), catching_up), NOW)
    assert verdict.state == GroupState.HEALTHY
    assert verdict.sentences[1] == "Replica 3 is an observer without a vote: 5.0 MiB and 70 messages behind."


def test_a_replica_that_neither_votes_nor_leads_says_why() -> None:
    broken = follower(2, quorum(not_electable_because="the disk is broken"))
    verdict = judge_elected(group(leader(), follower(1), broken), NOW)
    assert "Replica 2 neither votes nor leads: the disk is broken." in verdict.sentences


def test_of_two_that_call_themselves_leader_the_higher_epoch_leads() -> None:
    verdict = judge_elected(group(leader(0, epoch=2), leader(1), follower(2)), NOW)
    assert verdict.master_id == 1
    assert any("Replica 0 still considers itself leader of epoch 2" in sentence for sentence in verdict.sentences)


def test_without_samples_nothing_is_known() -> None:
    view = group(ReplicaView(replica_id=0), ReplicaView(replica_id=1), ReplicaView(replica_id=2))
    assert judge_elected(view, NOW).state == GroupState.UNKNOWN
    assert (
        judge_elected(group(leader(), follower(1), follower(2)), NOW + timedelta(minutes=1)).state == GroupState.UNKNOWN
    )


@pytest.mark.parametrize(
    ("view", "voters", "observers"),
    [
        (group(leader(), follower(1), follower(2)), (0, 1, 2), ()),
        (group(leader(), follower(1), follower(2), follower(3)), (0, 1, 2), (3,)),
        (group(leader(reported=quorum("leader", voters=[0, 2, 3])), follower(2), follower(3)), (0, 2, 3), ()),
        (group(away(leader()), follower(1, quorum(voters=[1, 2]), epoch=4), follower(2)), (1, 2), (0,)),
        (group(ReplicaView(replica_id=0)), (), (),),
    ],
    ids=["all", "an observer", "the leader knows best", "else the highest epoch that answers", "none reported"],
)  # fmt: skip
def test_who_counts_is_reported_by_the_leader_else_by_the_highest_epoch(
    view: GroupView, voters: tuple[int, ...], observers: tuple[int, ...]
) -> None:
    electorate = electorate_of(view)
    assert (electorate.voters, electorate.observers) == (voters, observers)
