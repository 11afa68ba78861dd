"""A leader of the past that comes back when retention has deleted what its log lacks: what only it had is kept aside."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest
import trio

from brokerd.replica.voters import Members
from brokerd.services.replica_follower import FollowerService
from brokerd.store import DiskFullError
from mqwire.headers_replica import ReplicaPullResponseHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.replicated_broker import pair, replicate

MIN_OFFSET = 1 << 20


def start_over(follower: BrokerUnderTest, parts_at: int | None = None) -> None:
    epoch = follower.broker.replica.epoch
    header = ReplicaPullResponseHeader(
        answer="too_old",
        epoch=epoch,
        min_offset=MIN_OFFSET,
        diverged_epoch=epoch,
        parts_epoch=None if parts_at is None else epoch,
        parts_end_offset=parts_at,
    )
    trio.run(FollowerService(cast("Any", follower.broker))._start_over, header, [])
    assert follower.store.min_physical_offset == MIN_OFFSET


def parted(make_broker: MakeBroker) -> tuple[BrokerUnderTest, int]:
    """A follower with a message that the next leader never had; and where that begins."""
    leader, follower = pair(make_broker, mappedFileSizeCommitLog="65536")
    leader.create_topic("orders")
    replicate(leader, follower)
    parts_at = follower.store.end_offset
    leader.store_message("orders", b"acknowledged by it alone")
    replicate(leader, follower)
    return follower, parts_at


def test_what_only_it_had_is_kept_aside(make_broker: MakeBroker) -> None:
    follower, parts_at = parted(make_broker)
    end_offset = follower.store.end_offset
    start_over(follower, parts_at)
    (kept,) = follower.broker.diverged.files()
    assert (kept.begin_offset, kept.end_offset) == (parts_at, end_offset)


def test_a_log_that_could_not_be_emptied_is_of_the_epochs_that_it_was_of(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that it ended in the leader's epoch: one with a longer log would have had it keep its own end under its records."""
    follower, parts_at = parted(make_broker)
    replica = follower.broker.replica
    replica._members.note(0, Members((0, 1)))  # whose record retention has deleted, say
    epochs, members, end_offset = replica.epochs.entries, replica.members, follower.store.end_offset
    assert members.voters == (0, 1)
    replica.saw_epoch(replica.epoch + 1)
    with monkeypatch.context() as patched:
        patched.setattr(type(follower.store), "flush_consume_queues", Mock(side_effect=DiskFullError("no room")))
        with pytest.raises(DiskFullError):
            start_over(follower, parts_at)
    assert (replica.epochs.entries, replica.members, follower.store.end_offset) == (epochs, members, end_offset)
    follower.crash()
    assert follower.broker.replica.epochs.entries == epochs


def test_a_follower_that_was_merely_away_for_long_keeps_nothing(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker, mappedFileSizeCommitLog="65536")
    leader.create_topic("orders")
    replicate(leader, follower)
    start_over(follower)
    assert follower.broker.diverged.files() == []
