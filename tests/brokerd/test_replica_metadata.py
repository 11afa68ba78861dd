"""A follower delivers delayed messages from where its leader has: never from beyond what its own log shows as delivered."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from brokerd.services.remoting_client import RemotingClient
from brokerd.services.replica_metadata import MetadataFollower
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.replicated_broker import pair, replicate


class Leader:
    """A client whose other end is the leader itself."""

    def __init__(self, broker: BrokerUnderTest) -> None:
        self._broker = broker

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        return self._broker.ask(RequestCode(request.code))

    def close(self) -> None:
        pass


@pytest.mark.trio
async def test_an_answer_of_before_a_delivery_does_not_have_it_taken_for_one_that_is_here(
    make_broker: MakeBroker,
) -> None:
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    replicate(leader, follower)
    before_delivery = leader.store.end_offset
    leader.clock.advance(2)
    while leader.broker.schedule.deliver_due():
        pass
    leader.store.flush()
    leader.broker.held_changed()
    schedule = follower.broker.schedule
    offsets: Any = follower.broker.consumer_offsets
    following = MetadataFollower(
        follower.store, offsets, schedule, lambda _address: cast("RemotingClient", Leader(leader))
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.run, "leader")
        await trio.testing.wait_all_tasks_blocked()  # by now they have come
        nursery.cancel_scope.cancel()
    following.leader_is_at("1", before_delivery)  # it was under way when the offsets came
    following.leader_is_at("1", leader.store.end_offset)
    assert schedule.offsets == {}
    replicate(leader, follower)
    following.leader_is_at("1", leader.store.end_offset)
    assert schedule.offsets == {1: 1}
