"""What a follower exchanges with its leader beside the log: offsets that were committed there, and how far delayed messages are
delivered, which is never taken for further than its own log shows."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from brokerd.services.remoting_client import RemotingClient
from brokerd.services.replica_metadata import MetadataFollower
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.replicated_broker import pair, promote, replicate


class Leader:
    """A client whose other end is the leader itself."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._broker = broker

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        return self._broker.ask(RequestCode(request.code))

    def close(self) -> None:
        pass


def deliver(broker: BrokerUnderTest) -> None:
    broker.clock.advance(2)
    while broker.broker.schedule.deliver_due():
        pass
    broker.store.flush()
    broker.broker.held_changed()


@pytest.mark.trio
async def test_a_delivery_is_not_taken_for_one_that_is_here_before_the_log_is(
    make_broker: MakeBroker,
) -> None:
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    replicate(leader, follower)
    before_delivery = leader.store.end_offset
    deliver(leader)
    schedule = follower.broker.schedule
    offsets: Any = follower.broker.consumer_offsets
    following = MetadataFollower(
        *(follower.store, offsets, follower.broker.unproven_offsets.is_proven, schedule),
        lambda _address: cast("RemotingClient", Leader(leader)),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.run, "leader")
        await trio.testing.wait_all_tasks_blocked()  # by now they have come
        for end_offset in (before_delivery, leader.store.end_offset):  # the first was under way when the offsets came
            following.leader_is_at("1", end_offset)
            assert schedule.offsets == {}
        replicate(leader, follower)
        following.leader_is_at("1", leader.store.end_offset)
        assert schedule.offsets == {1: 1}
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_delivery_that_is_here_is_taken_over_before_another_pull_is_answered(make_broker: MakeBroker) -> None:
    """A planned switchover, two seconds after the follower had asked, found its pull held, and delivered the message again."""
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    deliver(leader)
    replicate(leader, follower)
    await exchange(leader, follower, ResponseCode.SUCCESS, answers=0)
    follower.store.flush()
    assert follower.broker.schedule.offsets == {1: 1}


@pytest.mark.trio
async def test_what_a_leader_of_the_past_had_delivered_is_not_taken_for_delivered_in_the_next_ones_log(
    make_broker: MakeBroker,
) -> None:
    """The message waited in the next leader's log, and was delivered by none once this replica led."""
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    replicate(leader, follower)
    deliver(leader)  # which came to no other replica
    following = await exchange(leader, follower, ResponseCode.SUCCESS, answers=0)
    for _ in range(2):
        following.leader_is_at("0", follower.store.end_offset)
    assert follower.broker.schedule.offsets == {}


@pytest.mark.trio
async def test_what_was_delivered_long_ago_is_not_delivered_again_by_the_next_leader(
    make_broker: MakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    """A follower asked how far deliveries are as soon as there was one, and not again when it was on the leader's disk."""
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    leader.clock.advance(2)
    leader.broker.schedule.deliver_due()
    replicate(leader, follower)
    offsets: Any = follower.broker.consumer_offsets
    following = MetadataFollower(
        *(follower.store, offsets, follower.broker.unproven_offsets.is_proven, follower.broker.schedule),
        lambda _address: cast("RemotingClient", Leader(leader)),
    )
    async with trio.open_nursery() as nursery:
        following.leader_is_at(leader.broker.metadata_version(), leader.store.end_offset)
        nursery.start_soon(following.run, "leader")
        for _ in range(5):
            await trio.sleep(5)
            leader.store.flush()
            leader.broker.held_changed()
            following.leader_is_at(leader.broker.metadata_version(), leader.store.end_offset)
        nursery.cancel_scope.cancel()
    schedule = follower.broker.schedule
    assert schedule.offsets == {1: 1}
    follower.store.flush()
    replicate(leader, follower)
    assert schedule.first_waiting() is None, "its retention would keep everything from there on"


def test_a_new_leader_delivers_what_waits_at_a_level_that_its_own_configuration_lacks(make_broker: MakeBroker) -> None:
    """It came after this one's start, from a leader that had more levels still; it waited until a restart."""
    leader = make_broker()
    follower = make_broker(brokerRole="SLAVE", brokerId="1", totalReplicas="2", messageDelayLevel="1s 5s")
    replicate(leader, follower)
    leader.store_message("orders", b"later", properties={"DELAY": "4"})
    replicate(leader, follower)
    promote(follower, leader)
    follower.clock.advance(60)
    deliver(follower)
    assert [message.body for message in follower.messages("orders")] == [b"later"]


@pytest.mark.trio
async def test_a_follower_that_lags_behind_a_busy_leader_learns_of_deliveries_all_the_same(
    make_broker: MakeBroker, autojump_clock: trio.testing.MockClock
) -> None:
    """What it had fetched was replaced by what was newer before its log was there, for as long as there were deliveries."""
    leader, follower = pair(make_broker)
    offsets: Any = follower.broker.consumer_offsets
    following = MetadataFollower(
        *(follower.store, offsets, follower.broker.unproven_offsets.is_proven, follower.broker.schedule),
        lambda _address: cast("RemotingClient", Leader(leader)),
    )
    received: list[int] = []  # where the leader's log ended, 2 s ago and since
    async with trio.open_nursery() as nursery:
        following.leader_is_at(leader.broker.metadata_version(), leader.store.end_offset)
        nursery.start_soon(following.run, "leader")
        for _ in range(60):
            await trio.sleep(0.2)
            leader.store_message("orders", b"later", properties={"DELAY": "1"})
            deliver(leader)
            received.append(leader.store.end_offset)
            if len(received) > 10:
                receive_up_to(leader, follower, received.pop(0))
            following.leader_is_at(leader.broker.metadata_version(), leader.store.end_offset)
        nursery.cancel_scope.cancel()
    assert follower.broker.schedule.offsets[1] > 20


def receive_up_to(leader: BrokerUnderTest, follower: BrokerUnderTest, end_offset: int) -> None:
    replica, store = follower.broker.replica, follower.store
    data = leader.store.read_raw(store.end_offset, 1 << 20)[: end_offset - store.end_offset]
    replica.received(data, store.end_offset, replica.epoch, end_offset)


def test_a_leader_names_another_version_once_a_delivery_counts(make_broker: MakeBroker) -> None:
    """Who had asked before that was not told, and delivered it again when it led."""
    leader = make_broker()
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    leader.clock.advance(1)
    leader.broker.schedule.deliver_due()
    asked = leader.broker.metadata_version()
    assert leader.broker.schedule.to_wrapper().offset_table == {}
    leader.store.flush()
    assert leader.broker.metadata_version() != asked
    assert leader.broker.schedule.to_wrapper().offset_table == {1: 1}


class BusyLeader:
    """Answers each commit with one code, whatever else it is asked truthfully."""

    def __init__(self, broker: BrokerUnderTest, code: ResponseCode) -> None:
        self._leader = Leader(broker)
        self._code = code

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            return request.reply(self._code)
        return await self._leader.request(request, timeout_s=timeout_s)

    def close(self) -> None:
        pass


async def exchange(
    leader: BrokerUnderTest, follower: BrokerUnderTest, code: ResponseCode, *, answers: int = 2
) -> MetadataFollower:
    """One round, in which the leader answers commits with `code`, and then so many pulls."""
    offsets = follower.broker.consumer_offsets
    following = MetadataFollower(
        *(follower.store, offsets, follower.broker.unproven_offsets.is_proven, follower.broker.schedule),
        lambda _address: cast("RemotingClient", BusyLeader(leader, code)),
    )
    following.leader_is_at("1", leader.store.end_offset)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.run, "leader")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(answers):
            following.leader_is_at("1", leader.store.end_offset)
        nursery.cancel_scope.cancel()
    return following


@pytest.mark.trio
async def test_what_was_committed_at_a_follower_waits_for_the_log_in_which_a_reset_may_be(
    make_broker: MakeBroker,
) -> None:
    leader, follower = pair(make_broker)
    offsets = follower.broker.consumer_offsets
    offsets.hint("orders", "g", 0, 5)
    leader.store_message("orders")  # or the record of a reset
    await exchange(leader, follower, ResponseCode.SUCCESS)
    assert offsets.has_hints
    replicate(leader, follower)
    await exchange(leader, follower, ResponseCode.SUCCESS)
    assert not offsets.has_hints


@pytest.mark.trio
@pytest.mark.parametrize(
    ("code", "is_kept"),
    [
        (ResponseCode.SUCCESS, False),
        (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, False),
        (ResponseCode.SERVICE_NOT_AVAILABLE, True),
        (ResponseCode.SYSTEM_BUSY, True),
        (ResponseCode.SYSTEM_ERROR, True),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, True),
    ],
)
async def test_what_was_committed_at_a_follower_is_kept_until_its_leader_has_answered_for_good(
    make_broker: MakeBroker, code: ResponseCode, is_kept: bool
) -> None:
    leader, follower = pair(make_broker)
    offsets = follower.broker.consumer_offsets
    offsets.hint("orders", "g", 0, 5)
    await exchange(leader, follower, code)
    assert offsets.has_hints is is_kept


@pytest.mark.trio
async def test_a_commit_that_the_leader_does_not_take_holds_up_no_delayed_message(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    deliver(leader)
    replicate(leader, follower)
    follower.broker.consumer_offsets.hint("orders", "g", 0, 5)
    await exchange(leader, follower, ResponseCode.SERVICE_NOT_AVAILABLE)
    follower.store.flush()
    assert follower.broker.schedule.offsets == {1: 1}
