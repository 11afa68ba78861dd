"""The clock of leases: it must go on while the machine is suspended, as everyone else's does."""

from __future__ import annotations

import time

import pytest

from brokerd.clock import SystemClock
from brokerd.replica.in_sync import InSyncSet
from mqwire.mode import Mode
from tests.brokerd.quorum_group import QuorumGroup
from tests.brokerd.replica_members import group

SUSPENDED_S = 60.0


class Machine:
    """Its kernel's clocks."""

    def __init__(self) -> None:
        self.clocks_s = {time.CLOCK_MONOTONIC: 100.0, time.CLOCK_BOOTTIME: 500.0}

    def suspend(self) -> None:
        self.clocks_s[time.CLOCK_BOOTTIME] += SUSPENDED_S


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "clock_gettime", lambda clock: machine.clocks_s[clock])
    monkeypatch.setattr(time, "monotonic", lambda: machine.clocks_s[time.CLOCK_MONOTONIC])
    return machine


def test_a_followers_lease_is_over_after_its_machine_was_suspended(machine: Machine) -> None:
    clock = SystemClock()
    leader, follower = group(mode=Mode.SYNC)
    assert isinstance(leader.replica.in_sync, InSyncSet)
    leader.replica.pulled(follower.replica.next_pull(max_bytes=1, max_wait_ms=0), "r1", clock.monotonic())
    lease_s = leader.replica.in_sync.lease_s(1)
    follower.replica.take_lease(1, clock.monotonic(), lease_s)
    assert follower.replica.lease is not None
    assert 0 < lease_s < SUSPENDED_S
    assert clock.monotonic() < follower.replica.lease[1]
    machine.suspend()
    assert clock.monotonic() > follower.replica.lease[1]


def test_an_elected_leader_knows_of_no_majority_after_its_machine_was_suspended(machine: Machine) -> None:
    clock = SystemClock()
    leader = QuorumGroup.led()[0]
    skew_s = leader.now_s - clock.monotonic()
    assert leader.elections.has_recent_majority(clock.monotonic() + skew_s)
    machine.suspend()
    assert not leader.elections.has_recent_majority(clock.monotonic() + skew_s)
