"""What a promotion changes in its row and in its group's. That the steps lock both is tested beside this."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.failover.promotion import order, rows
from controlplane.failover.promotion.rows import GroupRow
from controlplane.failover.promotion.verdict import GroupView
from controlplane.provisioning.errors import StepNotReady
from highwater.promotion import Ballot, Cleanness, Decision
from tests.failover.views import NOW, slave_view

ASKED_FOR = order.Promotion(candidate_id=1, old_master_id=0, begun_at=NOW, may_lose=False, drains=False)
RESERVED = replace(ASKED_FOR, ballot=Ballot(8, 9))
GROUP = GroupRow(epoch=9, leader_id=0)
VIEW = GroupView(name="broker-a", in_sync_replicas=2, replicas=(slave_view(1, epoch=13), slave_view(2)))


def fenced_for(leader_id: int) -> order.Fenced:
    decision = Decision(leader_id, Cleanness(clean=True, because="all is held"))
    return order.Fenced(decision, (1, 2), "none", with_incomplete_log=False)


def test_a_ballot_is_reserved_above_all_that_was_seen_and_undoes_what_was_decided_for_the_one_before() -> None:
    decided = replace(RESERVED, decided_id=2)
    row, group = rows.reserved(decided, RESERVED, replace(GROUP, epoch=21), VIEW)
    assert (row.ballot, row.decided_id, group) == (Ballot(24, 25), None, replace(GROUP, epoch=25))


def test_an_epoch_that_someone_else_had_promised_is_remembered_when_the_fence_hides_it() -> None:
    _, group = rows.reserved(ASKED_FOR, ASKED_FOR, GROUP, VIEW)
    assert (group.epoch, group.foreign_epoch) == (17, 13)
    row = replace(ASKED_FOR, ballot=Ballot(16, 17))
    fenced = replace(VIEW, replicas=(slave_view(1, epoch=16), slave_view(2, epoch=16)))
    _, group = rows.reserved(row, row, group, fenced)
    assert group.foreign_epoch == 13


def test_of_two_workers_that_reserve_a_ballot_one_does() -> None:
    row, group = rows.reserved(ASKED_FOR, ASKED_FOR, GROUP, VIEW)
    with pytest.raises(StepNotReady, match="Another worker reserved"):
        rows.reserved(row, ASKED_FOR, group, VIEW)


def test_who_leads_is_decided_once_for_a_ballot() -> None:
    row, group = rows.decided(RESERVED, RESERVED, GROUP, 2, fenced_for(2))
    assert (row.candidate_id, row.decided_id) == (2, 2)
    with pytest.raises(StepNotReady, match="Another worker has decided"):
        rows.decided(row, RESERVED, group, 1, fenced_for(1))


def test_nothing_is_decided_for_a_ballot_that_was_replaced() -> None:
    with pytest.raises(StepNotReady, match="Another worker has decided"):
        rows.decided(replace(RESERVED, ballot=Ballot(12, 13)), RESERVED, GROUP, 1, fenced_for(1))


def test_who_is_asked_to_lead_is_written_down_before_it_is_and_never_for_an_older_epoch() -> None:
    """Its answer may be lost, and it may have led unseen."""
    _, group = rows.decided(RESERVED, RESERVED, GROUP, 1, fenced_for(1))
    assert (group.asked_id, group.asked_epoch) == (1, 9)
    _, group = rows.decided(RESERVED, RESERVED, replace(GROUP, asked_id=2, asked_epoch=13), 1, fenced_for(1))
    assert (group.asked_id, group.asked_epoch) == (2, 13)


@pytest.mark.parametrize(("led_epoch", "foreign_epoch"), [(3, 5), (5, None)])
def test_who_was_asked_before_and_not_seen_leading_may_have_led_for_all_that_is_known(
    led_epoch: int, foreign_epoch: int | None
) -> None:
    """The next promotion asked another one, was given up, and the one after it was called clean."""
    asked_before = replace(GROUP, asked_id=2, asked_epoch=5, led_epoch=led_epoch)
    _, group = rows.decided(RESERVED, RESERVED, asked_before, 1, fenced_for(1))
    assert (group.asked_id, group.asked_epoch, group.foreign_epoch) == (1, 9, foreign_epoch)


def test_the_candidate_is_the_groups_leader_unless_that_went_on_to_a_newer_epoch() -> None:
    assert rows.led(GROUP, RESERVED).leader_id == 1
    assert rows.led(replace(GROUP, epoch=13), RESERVED).leader_id == 0
