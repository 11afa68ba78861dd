"""Which broker the next pull should go to, asked of a leader whose slave holds 96 of its 100 messages."""

from __future__ import annotations

import pytest

from brokerd.replica.read_split import ReadSplit
from brokerd.services.loop_lag import LoopLag
from tests.brokerd.replica_members import Member

MASTER, SLAVE = 0, 1
HELD_BY_SLAVE, HELD_BY_MASTER = 96, 100


@pytest.fixture(scope="module")
def leader() -> Member:
    leader, follower = Member(0, leader=True), Member(1)
    leader.replica.promote(0, 1, 0.0, 0)
    leader.send(HELD_BY_SLAVE)
    for _ in range(2):
        follower.pull_from(leader)
    leader.send(HELD_BY_MASTER - HELD_BY_SLAVE)
    return leader


def suggested(
    leader: Member, consumed: int, *, in_memory_bytes: int = 0, slave_reads: bool = True, busy: bool = False
) -> int:
    """Of a consumer that has consumed so many messages with this pull."""
    split = ReadSplit(
        leader.replica,
        leader.store,
        slave_read_enable=lambda: slave_reads,
        memory_bytes=in_memory_bytes,
        busy=lambda: busy,
    )
    result = leader.store.get_messages("orders", 0, consumed - 10, 10, 100_000)
    assert result.next_begin_offset == consumed
    return split.suggest("orders", 0, result)


def test_who_is_behind_what_is_in_memory_goes_to_the_slave(leader: Member) -> None:
    assert suggested(leader, 50) == SLAVE
    assert suggested(leader, 50, in_memory_bytes=1 << 30) == MASTER


def test_who_wants_what_the_slave_does_not_hold_stays_with_the_master(leader: Member) -> None:
    assert suggested(leader, HELD_BY_SLAVE - 1) == SLAVE
    assert suggested(leader, HELD_BY_SLAVE) == MASTER


def test_a_busy_master_sends_readers_of_what_is_in_memory_away_too(leader: Member) -> None:
    assert suggested(leader, 50, in_memory_bytes=1 << 30, busy=True) == SLAVE
    assert suggested(leader, HELD_BY_SLAVE, in_memory_bytes=1 << 30, busy=True) == MASTER


def test_without_slave_read_enable_no_one_goes_to_the_slave(leader: Member) -> None:
    assert suggested(leader, 50, slave_reads=False, busy=True) == MASTER


def test_a_loop_that_runs_late_is_busy_until_it_has_caught_up_for_a_second() -> None:
    lag = LoopLag()
    for _ in range(20):
        lag.observe(0.1)
    assert not lag.busy
    lag.observe(1.0)
    assert lag.busy
    for _ in range(10):
        lag.observe(0.0)
    assert not lag.busy
