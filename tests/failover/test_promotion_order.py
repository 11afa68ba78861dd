"""The order of a promotion, request by request: no rows, no sockets. That the Celery steps carry it out is tested beside this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec
import pytest

from controlplane.clusters.replica_answer import Answer
from controlplane.failover.orders import Look, LookClosely, carried_out
from controlplane.failover.promotion import order, rows
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.failover.samples import leading_noted
from controlplane.provisioning.errors import StepFailed, StepNotReady
from highwater.promotion import Ballot
from mqwire.bodies import ReplicaStatus
from tests.failover.views import NOW, slave_view

ASKED_FOR = order.Promotion(
    candidate_id=1, old_master_id=0, begun_at=NOW, may_lose=False, drains=False, ballot=Ballot(4, 5)
)


class Surroundings:
    """Three replicas, of which the first led and is gone; the others promise what they are asked for, if nothing newer."""

    def __init__(self, promotion: order.Promotion) -> None:
        self.promotion = promotion
        self.slaves = {one: slave_view(one, promotable=True) for one in (1, 2)}
        self.requests: list[object] = []
        self.silent: set[int] = set()
        self.row_epoch = 0

    def carry_out(self, request: order.Request) -> object:
        """As the Celery steps and the simulation do."""
        self.requests.append(request)
        match request:
            case Look():
                return self._view()
            case order.Reserve(promotion, _):
                highest = max(one.epoch or 0 for one in self.slaves.values())
                ballot = Ballot(highest + 1, highest + 2)
                self.promotion = replace(promotion, ballot=ballot, decided_id=None)
                return self.promotion
            case order.Fence(replica_ids, epoch):
                return order.FenceAnswers(NOW.timestamp(), self._fenced(replica_ids, epoch))
            case order.Decide(promotion, candidate_id, fenced):
                self.promotion, _ = rows.decided(self.promotion, promotion, rows.GroupRow(), candidate_id, fenced)
                return self.promotion
            case order.Promote(replica_id):
                return Answer(status=_status(self.slaves[replica_id]))
            case order.HoldSends(replica_id):
                return Answer(status=_status(self.slaves[replica_id]))
            case LookClosely(replica_ids):
                return {one: _status(self.slaves[one]) for one in replica_ids}
        return None

    def kinds(self) -> list[str]:
        return [type(request).__name__ for request in self.requests]

    def _view(self) -> GroupView:
        gone = ReplicaView(replica_id=0, sampled_at=NOW, last_seen_at=NOW, unreachable_since=NOW)
        replicas = tuple({0: gone, **self.slaves}.values())
        return GroupView(name="broker-a", in_sync_replicas=2, replicas=replicas, leader_id=0, epoch=self.row_epoch)

    def _fenced(self, replica_ids: tuple[int, ...], epoch: int) -> Mapping[int, Answer]:
        answers = {one: Answer(error="connection refused") for one in replica_ids}
        for one in self.slaves.keys() - self.silent:
            if (self.slaves[one].epoch or 0) <= epoch:
                self.slaves[one] = replace(self.slaves[one], epoch=epoch)
                answers[one] = Answer(status=_status(self.slaves[one]))
        return answers


def _status(view: ReplicaView) -> ReplicaStatus:
    return ReplicaStatus(
        cluster="c",
        group="broker-a",
        replica_id=view.replica_id,
        advertised_broker_id=view.replica_id,
        address=f"r{view.replica_id}",
        role="slave",
        mode="sync",
        epoch=view.epoch or 0,
        log_epoch=view.log_epoch or 0,
        epoch_map=[(1, 0)],
        min_offset=0,
        end_offset=view.end_offset or 0,
        durable_offset=view.end_offset or 0,
        held_offset=view.held_offset or 0,
        confirm_offset=view.end_offset or 0,
        flush_disk_type="SYNC_FLUSH",
        in_sync_replicas=2,
        min_in_sync_replicas=1,
        in_sync=[],
        accepts_sends=False,
        promotable=True,
        log_may_be_incomplete=view.log_may_be_incomplete,
    )


def test_who_may_lead_unseen_is_stopped_after_the_fence_and_before_anything_is_decided() -> None:
    around = Surroundings(ASKED_FOR)
    carried_out(order.fence(ASKED_FOR), around.carry_out)
    assert around.kinds() == ["Look", "Fence", "Stop", "NoteSendsStopped", "Look", "Decide"]
    assert order.Stop(0) in around.requests
    assert around.promotion.decided_id == 1


@pytest.mark.parametrize(("step", "decided_id"), [(order.promote, 1), (order.fence, 0)])
def test_no_one_is_asked_to_lead_in_an_epoch_that_another_promotion_has_passed(
    step: Callable[[order.Promotion], order.Order[None]], decided_id: int
) -> None:
    """Be it the candidate or who led last: one that was down then would lead beside the new leader."""
    around = Surroundings(replace(ASKED_FOR, decided_id=decided_id))
    around.row_epoch = 7
    with pytest.raises(StepFailed, match="gone on to a newer epoch"):
        carried_out(step(around.promotion), around.carry_out)
    assert "Promote" not in around.kinds()


def test_a_fence_that_is_run_again_asks_for_nothing_that_was_decided() -> None:
    around = Surroundings(ASKED_FOR)
    carried_out(order.fence(ASKED_FOR), around.carry_out)
    around.requests.clear()
    carried_out(order.fence(around.promotion), around.carry_out)
    assert around.kinds() == ["Look"]


def test_a_fence_whose_worker_dies_before_the_decision_is_asked_again_whole() -> None:
    around = Surroundings(ASKED_FOR)
    cut_off = order.fence(ASKED_FOR)
    around.carry_out(next(cut_off))
    around.carry_out(cut_off.send(around._view()))
    cut_off.close()
    carried_out(order.fence(around.promotion), around.carry_out)
    assert around.promotion.decided_id == 1


def test_a_fence_that_no_one_can_promise_any_more_is_reserved_again() -> None:
    """Who led last claimed the next epoch, and is gone again."""
    around = Surroundings(ASKED_FOR)
    around.slaves = {one: replace(view, epoch=5) for one, view in around.slaves.items()}
    carried_out(order.fence(ASKED_FOR), around.carry_out)
    assert around.kinds() == ["Look", "Reserve", "Fence", "Stop", "NoteSendsStopped", "Look", "Decide"]


def with_its_master(around: Surroundings, epoch: int) -> None:
    """It answers, and leads in that epoch."""
    around.slaves[0] = replace(slave_view(0, promotable=True, epoch=epoch), role="master")


def test_a_master_is_fenced_before_its_slaves_which_would_tell_it_of_the_fence() -> None:
    around = Surroundings(replace(ASKED_FOR, drains=True))
    with_its_master(around, 3)
    carried_out(order.fence(around.promotion), around.carry_out)
    fenced = [request.replica_ids for request in around.requests if isinstance(request, order.Fence)]
    assert fenced == [(0,), (1, 2)]


def test_a_switchover_whose_master_has_claimed_the_next_epoch_drains_it_again() -> None:
    around = Surroundings(replace(ASKED_FOR, drains=True))
    with_its_master(around, 5)
    carried_out(order.fence(around.promotion), around.carry_out)
    kinds = around.kinds()
    assert kinds[: kinds.index("Fence")] == ["Look", "Look", "NoteSendsStopped", "HoldSends", "LookClosely", "Reserve"]


def test_a_fence_that_another_leader_has_passed_is_not_reserved_again() -> None:
    around = Surroundings(ASKED_FOR)
    around.slaves = {one: replace(view, epoch=5) for one, view in around.slaves.items()}
    around.slaves[2] = replace(around.slaves[2], role="master")
    with pytest.raises(StepFailed, match="Another replica leads"):
        carried_out(order.fence(ASKED_FOR), around.carry_out)
    assert around.kinds() == ["Look"]


def test_who_may_have_lost_the_end_of_its_log_since_it_promised_is_not_promoted_by_that_promise() -> None:
    """A power cut took it; another replica that had promised, too, held it still, and was to follow one that did not."""
    around = Surroundings(replace(ASKED_FOR, decided_id=1))
    around.slaves = {one: replace(view, epoch=4) for one, view in around.slaves.items()}
    around.slaves[1] = replace(around.slaves[1], end_offset=900, held_offset=900, log_may_be_incomplete=True)
    around.slaves[0] = slave_view(0, promotable=True, epoch=4, end_offset=900, held_offset=900)
    carried_out(order.promote(around.promotion), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.replica_id, promoted.ballot.fence, promoted.with_incomplete_log) == (2, 5, False)


def test_who_said_when_it_promised_that_its_log_may_be_incomplete_is_promoted_so() -> None:
    """Where all have lost something, and it holds most."""
    around = Surroundings(ASKED_FOR)
    around.slaves = {one: replace(view, log_may_be_incomplete=True) for one, view in around.slaves.items()}
    around.slaves[0] = slave_view(0, promotable=True, end_offset=800, held_offset=800, log_may_be_incomplete=True)
    for step in (order.fence, order.promote):
        carried_out(step(around.promotion), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.replica_id, promoted.with_incomplete_log) == (1, True)


def test_one_that_holds_most_of_what_power_cuts_have_left_is_promoted_as_one_that_may_lack_what_was_shown() -> None:
    """Its own log is whole; so that it sends consumers back it must be told that the others' are not."""
    around = Surroundings(ASKED_FOR)
    around.slaves[0] = slave_view(0, promotable=True, end_offset=800, held_offset=800, log_may_be_incomplete=True)
    around.slaves[2] = replace(around.slaves[2], log_may_be_incomplete=True)
    for step in (order.fence, order.promote):
        carried_out(step(around.promotion), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.replica_id, promoted.with_incomplete_log) == (1, True)


def test_an_agreement_to_a_loss_that_was_not_needed_sends_no_one_back() -> None:
    around = Surroundings(replace(ASKED_FOR, may_lose=True))
    for step in (order.fence, order.promote):
        carried_out(step(around.promotion), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (around.promotion.lossless, promoted.with_incomplete_log) == (True, False)


def test_a_loss_that_was_agreed_to_is_one_by_a_log_that_may_be_incomplete_too() -> None:
    agreed = replace(ASKED_FOR, decided_id=1, may_lose=True)
    around = Surroundings(agreed)
    around.slaves = {one: replace(view, epoch=4, log_may_be_incomplete=True) for one, view in around.slaves.items()}
    carried_out(order.promote(agreed), around.carry_out)
    assert around.kinds() == ["Look", "Promote", "NoteLeader"]
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert promoted.with_incomplete_log


def test_but_what_was_decided_as_one_without_a_loss_is_decided_again() -> None:
    """A power cut came between its promise and its promotion: the page would say that nothing was lost."""
    agreed = replace(ASKED_FOR, decided_id=1, may_lose=True, lossless=True)
    around = Surroundings(agreed)
    around.slaves = {one: replace(view, epoch=4, log_may_be_incomplete=True) for one, view in around.slaves.items()}
    carried_out(order.promote(agreed), around.carry_out)
    assert "Decide" in around.kinds()
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.with_incomplete_log, around.promotion.lossless) == (True, False)


def test_a_leader_after_a_second_fence_begins_with_those_in_sync_that_promised_this_one() -> None:
    """The view from before that fence knows of no promise: the new leader would have begun alone."""
    around = Surroundings(replace(ASKED_FOR, decided_id=1))
    around.slaves = {one: replace(view, epoch=7) for one, view in around.slaves.items()}
    carried_out(order.promote(around.promotion), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.ballot.fence, promoted.in_sync) == (8, (1, 2))


def test_a_former_leader_that_says_nothing_is_asked_again_to_take_its_role_back() -> None:
    gives_back = replace(ASKED_FOR, decided_id=0)

    def silent(request: order.Request) -> object:
        return Answer(error="timed out") if isinstance(request, order.Promote) else around.carry_out(request)

    around = Surroundings(gives_back)
    with pytest.raises(StepNotReady, match="Replica 0 does not lead again yet"):
        carried_out(order.fence(gives_back), silent)
    assert "LetGo" not in around.kinds()


def test_what_is_known_of_a_log_that_is_to_lead_outlives_the_worker_that_decided() -> None:
    """Who led last had said that it may lack records, and holds most: asked as one that lacks none it refused for ever."""
    around = Surroundings(ASKED_FOR)
    around.slaves = {one: replace(view, log_may_be_incomplete=True) for one, view in around.slaves.items()}
    around.slaves[0] = slave_view(0, promotable=True, end_offset=1100, held_offset=1100, log_may_be_incomplete=True)

    def dies(request: order.Request) -> object:
        if isinstance(request, order.Promote):
            raise ConnectionError
        return around.carry_out(request)

    with pytest.raises(ConnectionError):
        carried_out(order.fence(ASKED_FOR), dies)
    assert around.promotion.decided_id == 0
    with pytest.raises(StepFailed):
        carried_out(order.fence(around.promotion), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.replica_id, promoted.with_incomplete_log) == (0, True)


def test_a_leader_that_takes_its_role_back_begins_with_those_in_sync_that_promised() -> None:
    """It showed readers at once what no one else held, while its followers were still taken for holding all that it had shown."""
    gives_back = replace(ASKED_FOR, decided_id=2)
    around = Surroundings(gives_back)
    around.slaves = {one: replace(view, epoch=4) for one, view in around.slaves.items()}
    with pytest.raises(StepFailed):
        carried_out(order.fence(gives_back), around.carry_out)
    (promoted,) = [request for request in around.requests if isinstance(request, order.Promote)]
    assert (promoted.replica_id, promoted.in_sync) == (2, (1, 2))


def test_a_promoted_replica_is_noted_as_seen_leading_by_its_own_answer() -> None:
    """It may be gone before the next look; then others might have led after it, and beside a new disk no one led again."""
    around = Surroundings(replace(ASKED_FOR, decided_id=1))
    around.slaves = {one: replace(view, epoch=4) for one, view in around.slaves.items()}
    carried_out(order.promote(around.promotion), around.carry_out)
    assert around.requests[-1] == order.NoteLeader(around.promotion, _status(around.slaves[1]))


@pytest.mark.parametrize(("flush_disk_type", "noted"), [("SYNC_FLUSH", 900), ("ASYNC_FLUSH", 1000)])
def test_of_a_leaders_log_that_is_noted_which_a_power_cut_takes_only_where_messages_may_be_lost(
    flush_disk_type: str, noted: int
) -> None:
    """What a synchronous disk had not synced was not acknowledged: that it is gone keeps no one from leading."""
    leader = msgspec.structs.replace(
        _status(slave_view(0)), end_offset=1000, durable_offset=900, flush_disk_type=flush_disk_type
    )
    assert leading_noted(leader, NOW)["led_to_offset"] == noted
