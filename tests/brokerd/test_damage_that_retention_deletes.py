"""What is damaged at a follower its leader's retention has deleted: the follower deletes it too, and keeps all that follows."""

from __future__ import annotations

import pytest
import trio

from mqwire.headers_replica import ReplicaPullResponseHeader
from tests.brokerd.broker_under_test import MakeBroker
from tests.brokerd.replicated_broker import ADDRESSES, pair, promote, replicate

FILE_BYTES = 65536


class Pair:
    """A leader and its follower, which holds its log of two files; the tables' base is in the second one. In the first one are two
    messages of topic "short", of which the follower has the second one damaged.
    """

    def __init__(self, make_broker: MakeBroker) -> None:
        self.leader, self.follower = pair(make_broker, mappedFileSizeCommitLog=str(FILE_BYTES))
        leader, follower = self.leader, self.follower
        follower.broker.replica.learn_replicas({0: ADDRESSES[0]})
        leader.create_topic("lasting")
        leader.create_topic("short")
        leader.store_message("short")
        replicate(leader, follower)
        follower.store.flush()
        follower.store.flush_consume_queues()
        self.damaged_from = leader.store_message("short").physical_offset
        while leader.store.end_offset < FILE_BYTES:
            leader.store_message("lasting", b"." * 1000)
        leader.broker.metadata_log.write_base()
        leader.store_message("lasting", b"of the second file")
        replicate(leader, follower)
        for broker in (leader, follower):
            broker.store.flush()
        replicate(leader, follower)
        self.end_offset = follower.store.end_offset

    def damage(self) -> None:
        file = self.follower.folder / "store" / "commitlog" / f"{0:020d}"
        data = bytearray(file.read_bytes())
        data[self.damaged_from + 60] ^= 1
        file.write_bytes(data)

    def leader_begins_at(self, min_offset: int) -> None:
        """By its answer to the follower's pull; both messages of "short" are gone there."""
        header = ReplicaPullResponseHeader(
            answer="too_old", epoch=self.follower.broker.replica.epoch, min_offset=min_offset
        )
        trio.run(self.follower.broker.follower._repair, header, b'[["short", 0, 2]]', self.damaged_from)


@pytest.fixture
def damaged(make_broker: MakeBroker) -> Pair:
    found = Pair(make_broker)
    found.damage()
    found.follower.store.declare_damaged(found.damaged_from)
    return found


def test_what_follows_the_damage_is_kept(damaged: Pair) -> None:
    """It was given up, and fetched again from a leader whose own disk had spoiled some of it: no one had that any more."""
    store = damaged.follower.store
    damaged.leader_begins_at(FILE_BYTES)
    assert (store.min_physical_offset, store.end_offset, store.damaged_from) == (FILE_BYTES, damaged.end_offset, None)
    assert store.read_raw(FILE_BYTES, 1 << 20) == damaged.leader.store.read_raw(FILE_BYTES, 1 << 20)
    assert damaged.follower.broker.diverged.files() == []


def test_it_follows_on_and_may_lead(damaged: Pair) -> None:
    leader, follower = damaged.leader, damaged.follower
    damaged.leader_begins_at(FILE_BYTES)
    leader.store_message("short")
    replicate(leader, follower)
    assert follower.store.end_offset == leader.store.end_offset
    promote(follower, leader)
    assert follower.broker.refuses_sends() is None
    assert follower.broker.topic_configs.select("short") is not None
    assert follower.store.queue_end_offset("short", 0) == 3


def test_a_queue_that_ended_in_the_damage_goes_on_counting(make_broker: MakeBroker) -> None:
    """Its last number was written down nowhere else, and what the leader sent next did not follow the one before."""
    found = Pair(make_broker)
    leader, follower = found.leader, found.follower
    follower.store.close(clean=False)
    found.damage()
    follower.start()
    assert (follower.store.damaged_from, follower.store.queue_end_offset("short", 0)) == (found.damaged_from, 1)
    found.leader_begins_at(FILE_BYTES)
    leader.store_message("short")
    replicate(leader, follower)
    assert follower.store.queue_end_offset("short", 0) == 3


def test_tables_are_not_left_without_their_base(damaged: Pair) -> None:
    """The log is truncated as ever, and emptied then: the tables come with what the leader sends."""
    damaged.follower.broker.metadata_log._bases = [(0, damaged.damaged_from)]
    damaged.leader_begins_at(FILE_BYTES)
    assert damaged.follower.store.end_offset == damaged.damaged_from


def test_damage_that_the_leader_may_still_have_is_not_deleted(damaged: Pair) -> None:
    damaged.leader_begins_at(0)
    assert damaged.follower.store.min_physical_offset == 0
    assert damaged.follower.store.end_offset == damaged.damaged_from
