"""What was under way when a replica left the group does not bring it back: a change to DLedger would wait for it for ever."""

from __future__ import annotations

import pytest
import trio

from brokerd.services.remoting_client import RequestFailed
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaMembersRequestHeader, ReplicaPullRequestHeader, ReplicaPullResponseHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.replicated_broker import ADDRESSES, pair

GONE = 2


def forget(broker: BrokerUnderTest) -> None:
    header = ReplicaMembersRequestHeader(
        group=broker.broker.replica.settings.group, change="forget", replica_id=GONE, address=None
    )
    assert broker.ask(HighwaterRequestCode.REPLICA_MEMBERS, header).code == ResponseCode.SUCCESS


def test_a_late_pull_has_no_connection_left_to_arrive_by(broker: BrokerUnderTest) -> None:
    replica, peer = broker.broker.replica, RecordingPeer()
    pull = ReplicaPullRequestHeader(
        group=replica.settings.group, replica_id=GONE, leader_epoch=replica.epoch, end_offset=0, last_epoch=0,
        durable_offset=0, max_bytes=1024, max_wait_millis=0, address="10.0.0.3:10911",
    )  # fmt: skip
    broker.request(HighwaterRequestCode.REPLICA_PULL, pull, peer=peer)
    assert GONE in replica.known_replicas
    forget(broker)
    assert GONE not in replica.known_replicas
    assert peer.closed


class Link:
    """The follower's client of its leader. The replica is forgotten while the first answer, of before that, is on its way."""

    address = ADDRESSES[0]

    def __init__(self, follower: BrokerUnderTest) -> None:
        self._follower = follower
        self.known: list[bool] = []  # with each pull: whether the follower has the replica on its list

    async def request(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        replica = self._follower.broker.replica
        self.known.append(GONE in replica.known_replicas)
        if len(self.known) > 2:
            raise RequestFailed("the test is over")
        if len(self.known) == 1:
            forget(self._follower)
        end_offset = self._follower.store.end_offset
        return request.reply(
            header=ReplicaPullResponseHeader(
                answer="bytes", epoch=replica.epoch, end_offset=end_offset, confirm_offset=end_offset,
                replicas=f"0={ADDRESSES[0]};{GONE}=10.0.0.3:10911",
            )
        )  # fmt: skip


def test_an_answer_of_the_leader_from_before_names_it_in_vain(make_broker: MakeBroker) -> None:
    """An answer to a later pull is believed: then the replica has come back."""
    _, follower = pair(make_broker)
    follower.broker.replica.learn_replicas({GONE: "10.0.0.3:10911"})
    link = Link(follower)

    async def follow() -> None:
        async with trio.open_nursery() as nursery:
            with pytest.raises(RequestFailed):
                await follower.broker.follower._pull_from(link, nursery)  # type: ignore[arg-type] # it stands for a client
            nursery.cancel_scope.cancel()

    trio.run(follow)
    assert link.known == [True, False, True]
