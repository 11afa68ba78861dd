"""Who leads after a fence, by what was promised and who still answers, as tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from controlplane.failover.promotion.fencing import (
    decision_after_fence,
    promises_given,
    said_by_electors,
    unpromised,
)
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, standing_of
from highwater.promotion import Ballot, Decision, Standing
from mqwire.bodies import QuorumStatus
from tests.failover.views import NOW, slave_view

FENCE = 4


def decision(
    *held_offsets: int, silent_after: Collection[int] = (), in_sync_replicas: int = 2, may_lose: bool = False
) -> Decision:
    """Of replicas that hold so much, replica 0 leads and 1 is to; all promise, and then some answer no more."""
    views = [
        slave_view(number, held_offset=held, end_offset=held, epoch=FENCE, promotable=True)
        for number, held in enumerate(held_offsets)
    ]
    promises = {view.replica_id: promise(view) for view in views}
    after = [replace(view, unreachable_since=NOW) if view.replica_id in silent_after else view for view in views]
    return decision_after_fence(
        group(after, in_sync_replicas),
        group([replace(views[0], role="master"), *views[1:]], in_sync_replicas),
        promises,
        candidate_id=1,
        begun_at=NOW,
        may_lose=may_lose,
        may_choose=True,
    )


def promise(view: ReplicaView) -> Standing:
    said = standing_of(view)
    assert said is not None
    return said


def group(replicas: list[ReplicaView], in_sync_replicas: int) -> GroupView:
    return GroupView(
        name="broker-a",
        in_sync_replicas=in_sync_replicas,
        replicas=replicas,
        leader_id=0,
        led_at=NOW,
        led_epoch=3,
        led_to_offset=1000,
        epoch=FENCE + 1,
    )


def test_a_candidate_that_is_behind_gives_the_role_back() -> None:
    found = decision(1000, 900, 1000)
    assert (found.leader_id, found.gives_back) == (0, True)


def test_a_former_leader_that_is_silent_after_its_promise_is_not_waited_for_where_another_is_clean() -> None:
    found = decision(1000, 900, 1000, silent_after=[0])
    assert (found.leader_id, found.gives_back, found.cleanness.clean) == (2, False, True)


def test_what_a_silent_replica_has_promised_to_hold_counts() -> None:
    found = decision(1000, 900, 900, silent_after=[0])
    assert (found.leader_id, found.gives_back) == (0, True)  # no one else has it


def test_a_candidate_that_is_silent_after_its_promise_is_not_waited_for() -> None:
    found = decision(1000, 1000, 1000, silent_after=[1])
    assert (found.leader_id, found.gives_back) == (0, True)


def test_another_clean_one_leads_where_candidate_and_former_leader_are_silent() -> None:
    found = decision(1000, 1000, 1000, silent_after=[0, 1])
    assert (found.leader_id, found.gives_back, found.cleanness.clean) == (2, False, True)


def test_whom_an_operator_wants_with_a_loss_is_waited_for_where_no_one_is_clean() -> None:
    found = decision(900, 1000, silent_after=[1], in_sync_replicas=1, may_lose=True)
    assert found.leader_id == 1


@pytest.mark.parametrize(("state", "clean"), [("pre-candidate", True), (None, False)])
def test_who_led_last_and_elects_alone_needs_no_promise(state: str | None, clean: bool) -> None:
    quorum = None if state is None else QuorumStatus(state=state, voters=[0, 1, 2])
    former = slave_view(0, quorum=quorum)
    others = [slave_view(number, epoch=FENCE, promotable=True, shows_below=True) for number in (1, 2)]
    found = decision_after_fence(
        group([replace(former, unreachable_since=NOW, process_ended_at=NOW), *others], 3),
        group([former, *others], 3),
        {view.replica_id: promise(view) for view in others},
        candidate_id=1,
        begun_at=NOW,
        may_lose=False,
        may_choose=True,
    )
    assert (found.leader_id, found.cleanness.clean) == (1 if clean else None, clean)


def electing(replica_id: int, **changes: object) -> ReplicaView:
    quorum = QuorumStatus(state="unattached", voters=[0, 1, 2])
    return slave_view(replica_id, quorum=quorum, promotable=True, **changes)


def test_what_one_holds_that_can_win_no_election_counts_as_a_promise_of_one_that_is_not_to_lead() -> None:
    (one,) = said_by_electors(group([electing(0), slave_view(1), slave_view(2)], 2)).values()
    assert (one.replica_id, one.held_offset, one.promotable) == (0, 1000, False)


@pytest.mark.parametrize(
    ("elects", "others", "counts_to"),
    [
        (True, [slave_view(1, held_offset=800), slave_view(2, held_offset=900)], 900),
        (True, [slave_view(1, held_offset=800), slave_view(2, unreachable_since=NOW)], 1000),  # who may hold it all
        # whose disk has lost what it may have held
        (True, [slave_view(1, held_offset=0, disk_is_new=True), slave_view(2, held_offset=900)], 1000),
        (True, [slave_view(1, held_offset=800, log_may_be_incomplete=True), slave_view(2, held_offset=900)], 1000),
        (
            False,
            [slave_view(1, held_offset=800), slave_view(2, held_offset=900)],
            1000,
        ),  # it led by another mode before
    ],
)
def test_of_who_led_last_and_elects_still_only_what_a_majority_holds_counts(
    elects: bool, others: list[ReplicaView], counts_to: int
) -> None:
    view = replace(group([electing(0), *others], 2), elects=elects)
    assert said_by_electors(view)[0].held_offset == counts_to


@pytest.mark.parametrize("elector", [electing(0, role="master"), electing(0, unreachable_since=NOW)])
def test_one_that_elects_and_leads_or_is_silent_says_nothing_of_what_the_group_holds(elector: ReplicaView) -> None:
    assert said_by_electors(group([elector, slave_view(1), slave_view(2)], 2)) == {}


@pytest.mark.parametrize(("elector", "stopped"), [(electing(0), ()), (electing(0, unreachable_since=NOW), (0,))])
def test_who_led_last_and_elects_is_stopped_only_where_it_is_silent(
    elector: ReplicaView, stopped: tuple[int, ...]
) -> None:
    view = group([elector, slave_view(1), slave_view(2)], 2)
    assert unpromised(view, [1, 2], [1, 2], candidate_id=1, old_master_id=0).silent == stopped


@pytest.mark.parametrize(
    ("sampled", "said", "has_caught_up", "is_new"),
    [
        ("a", "a", False, False),  # the first of a new group: no disk has held anything before
        ("a", "b", False, True),  # replaced since the sample was taken
        ("a", "b", True, True),  # it may have caught up long ago
        ("", "b", False, False),
    ],
)
def test_a_promise_is_that_of_the_disk_that_gives_it(
    sampled: str, said: str, has_caught_up: bool, is_new: bool
) -> None:
    view = slave_view(1, epoch=FENCE, disk=sampled)
    standing = replace(promise(view), incarnation=said, disk_is_new=not has_caught_up)
    (promised,) = promises_given(group([view], 2), [standing], Ballot(FENCE, FENCE + 1)).values()
    assert promised.disk_is_new is is_new
