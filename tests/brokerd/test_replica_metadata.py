"""What a follower sends its leader beside the log: offsets that were committed there."""

from __future__ import annotations

from typing import cast

import pytest
import trio
import trio.testing

from brokerd.services.remoting_client import RemotingClient
from brokerd.services.replica_metadata import MetadataFollower
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.replicated_broker import pair, replicate


class BusyLeader:
    """Answers each request with one code."""

    def __init__(self, code: ResponseCode) -> None:
        self._code = code

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        return request.reply(self._code)

    def close(self) -> None:
        pass


async def exchange(leader: BrokerUnderTest, follower: BrokerUnderTest, code: ResponseCode) -> None:
    """One round, in which the leader answers commits with `code`."""
    offsets = follower.broker.consumer_offsets
    following = MetadataFollower(
        *(follower.store, offsets, follower.broker.unproven_offsets.is_proven),
        lambda _address: cast("RemotingClient", BusyLeader(code)),
    )
    following.leader_ends_at(leader.store.end_offset)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(following.run, "leader")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


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
