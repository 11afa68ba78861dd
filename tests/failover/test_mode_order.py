"""What is asked next in a change of the mode, and who must catch up before a replica leaves."""

from __future__ import annotations

import pytest

from controlplane.failover.mode.order import (
    LogSeen,
    ModeMove,
    ModeSeen,
    in_sync_replicas_to_ask,
    mode_move,
    staying_behind,
)
from mqwire.mode import Mode


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
