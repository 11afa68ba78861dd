"""What is asked next in a change of the mode, and who must catch up before a replica leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from controlplane.clusters.replica_answer import Answer
from controlplane.failover.mode import order
from controlplane.failover.mode.order import (
    LogSeen,
    ModeMove,
    ModeSeen,
    in_sync_replicas_to_ask,
    mode_move,
    staying_behind,
)
from controlplane.failover.orders import carried_out
from controlplane.failover.promotion.verdict import GroupView, ReplicaView
from controlplane.provisioning.errors import StepFailed, StepNotReady
from mqwire.bodies import ReplicaStatus
from mqwire.mode import Mode
from tests.failover.scripted_group import ScriptedGroup, ScriptedReplica
from tests.failover.views import NOW, slave_view


def seen(replica_id: int, mode: str, *, leads: bool = False, epoch: int = 3, pending: str | None = None) -> ModeSeen:
    return ModeSeen(replica_id=replica_id, mode=mode, pending_mode=pending, leads=leads, epoch=epoch)


@pytest.mark.parametrize(
    ("reported", "move"),
    [
        ((seen(0, "sync", leads=True), seen(1, "sync")), ModeMove(done=True)),
        ((seen(0, "dledger", leads=True), seen(1, "sync")), ModeMove(done=True)),
        ((seen(0, "sync", leads=True, pending="dledger"), seen(1, "sync")), ModeMove(done=True)),
        ((seen(0, "sync", leads=True, pending="async"), seen(1, "sync")), ModeMove(waits_for=(0,))),
        ((seen(0, "async", leads=True), seen(1, "async")), ModeMove(ask=0, waits_for=(0, 1))),
        ((seen(0, "async", leads=True, pending="sync"), seen(1, "async")), ModeMove(waits_for=(0, 1))),
        ((seen(0, "sync", leads=True), seen(1, "async")), ModeMove(waits_for=(1,))),
        ((seen(0, "async"), seen(1, "async")), ModeMove(waits_for=(0, 1))),
        (
            (seen(0, "async", leads=True), seen(1, "async", leads=True, epoch=4)),
            ModeMove(ask=1, waits_for=(0, 1)),
        ),
    ],
)
def test_the_newest_leader_is_asked_once_and_all_are_waited_for(reported: tuple[ModeSeen, ...], move: ModeMove) -> None:
    assert mode_move(reported, ("sync", "dledger")) == move


def test_who_stays_holds_the_leaders_log_to_where_it_ended_in_the_leaders_epoch() -> None:
    leader = LogSeen(replica_id=0, log_epoch=3, end_offset=5000, held_offset=5000)

    def log(replica_id: int, epoch: int, held: int) -> LogSeen:
        return LogSeen(replica_id=replica_id, log_epoch=epoch, end_offset=9000, held_offset=held)

    staying = [log(1, 3, 4500), log(2, 3, 3999), log(3, 2, 9000)]
    assert staying_behind([leader, *staying], leader, 4000) == (2, 3)


@pytest.mark.parametrize(
    ("mode", "wanted", "voters", "asked"),
    [(Mode.SYNC, 2, 0, 2), (Mode.SYNC, 2, 3, 2), (Mode.SYNC, 2, 5, 3), (Mode.SYNC, 3, 3, 3), (Mode.ASYNC, 1, 5, 1)],
)
def test_after_elections_acknowledgements_are_asked_of_a_majority_of_the_voters(
    mode: Mode, wanted: int, voters: int, asked: int
) -> None:
    """The broker takes no less: replicas that have not heard of the change may elect another leader."""
    assert in_sync_replicas_to_ask(mode, wanted, voters=voters) == asked


MASTER = slave_view(0, role="master", epoch=3, accepts_sends=True)
DEAD = replace(MASTER, unreachable_since=NOW - timedelta(minutes=1), process_ended_at=NOW - timedelta(minutes=1))


def noted(*replicas: ReplicaView) -> order.GroupsNoted:
    view = GroupView(
        name="broker-a", in_sync_replicas=1, replicas=replicas, leader_id=0, led_at=NOW, led_epoch=3, epoch=3
    )
    return order.GroupsNoted([view], NOW)


def asked_until_it_ends(requests: order.Order[None], *answers: object) -> list[object]:
    """Return what an order asks for, answered by these."""
    asked: list[object] = []
    left = iter(answers)

    def answer(request: object) -> object:
        asked.append(request)
        return next(left)

    carried_out(requests, answer)
    return asked


def test_every_replica_that_stays_must_have_caught_up_with_its_master() -> None:
    behind = slave_view(1, in_sync=False, gap_bytes=5 * 1024 * 1024)
    with pytest.raises(StepNotReady, match=r"Replica 1 of broker-a .* It is 5.0 MiB behind"):
        asked_until_it_ends(order.catch_up({}), noted(MASTER, behind))
    with pytest.raises(StepNotReady, match="It does not pull yet"):
        asked_until_it_ends(order.catch_up({}), noted(MASTER, replace(behind, in_sync=None, gap_bytes=None)))
    with pytest.raises(StepNotReady, match="broker-a has no leader"):
        asked_until_it_ends(order.catch_up({}), noted(DEAD, slave_view(1)))
    asked_until_it_ends(order.catch_up({"broker-a": [1]}), noted(MASTER, behind))


def test_no_replica_is_removed_from_a_group_that_has_lost_its_master() -> None:
    with pytest.raises(StepFailed, match="broker-a has lost its master"):
        asked_until_it_ends(order.remove(), noted(DEAD, slave_view(1)))


def alone(*, claims: bool, **changes: object) -> ReplicaStatus:
    replica = ScriptedReplica(0, "192.0.2.1:10911")
    status = ScriptedGroup("broker-a", "single", [replica])._answer(replica).status
    assert status is not None
    return msgspec.structs.replace(status, claims=claims, **changes)


@pytest.mark.parametrize("incomplete", [True, False])
def test_the_only_replica_of_a_group_that_waits_for_others_leads_again(incomplete: bool) -> None:
    waits = alone(claims=True, epoch=4, log_may_be_incomplete=incomplete)
    leads = alone(claims=False, epoch=5, role="master")
    asked = asked_until_it_ends(
        order.change([(Mode.SINGLE, [Mode.SINGLE])], {}, lambda mode: 1),
        {"broker-a": {0: waits}},
        Answer(status=leads),
        {"broker-a": {0: leads}},
    )
    assert asked[1] == order.LeadAlone("broker-a", 0, 4, with_incomplete_log=incomplete)


def test_no_replica_leads_alone_beside_another() -> None:
    waits = alone(claims=True, epoch=4)
    with pytest.raises(StepNotReady, match="Replica 1 of broker-a does not answer"):
        asked_until_it_ends(
            order.change([(Mode.SINGLE, [Mode.SINGLE])], {}, lambda mode: 1),
            {"broker-a": {0: waits, 1: None}},
            {"broker-a": {0: waits, 1: None}},
        )
