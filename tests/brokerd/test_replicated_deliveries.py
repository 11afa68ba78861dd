"""How far delayed messages are delivered comes to a follower with the records of the deliveries, neither later nor earlier: what it
has been sent it does not deliver again when it leads, and what its log does not show it delivers."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from brokerd.services.remoting_client import RemotingClient
from mqwire.codes import HighwaterRequestCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaPullRequestHeader, ReplicaPullResponseHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.replicated_broker import ADDRESSES, in_sync_pair, pair, promote, replicate, settle


def deliver(broker: BrokerUnderTest) -> None:
    broker.clock.advance(2)
    while broker.broker.schedule.deliver_due():
        pass


def delivered(leader: BrokerUnderTest, body: bytes = b"later") -> int:
    """Have a message wait and be delivered; returns where the log ends then."""
    leader.store_message("orders", body, properties={"DELAY": "1"})
    deliver(leader)
    return leader.store.end_offset


def bodies(broker: BrokerUnderTest) -> list[bytes]:
    broker.store.flush()
    broker.broker.held_changed()
    return [message.body for message in broker.messages("orders")]


def pull(leader: BrokerUnderTest, peer: RecordingPeer, from_offset: int, max_bytes: int) -> list[RemotingCommand]:
    replica = leader.broker.replica
    header = ReplicaPullRequestHeader(
        group=replica.settings.group, replica_id=1, leader_epoch=replica.epoch, end_offset=from_offset,
        last_epoch=replica.epochs.last_epoch, durable_offset=from_offset, max_bytes=max_bytes, max_wait_millis=500,
        address=ADDRESSES[1], mode="sync", syncs=True,
    )  # fmt: skip
    return leader.request(HighwaterRequestCode.REPLICA_PULL, header, peer=peer)


def test_the_answer_that_carries_a_delivery_says_so(make_broker: MakeBroker) -> None:
    """A switchover came between that answer and the next word of deliveries: its messages were delivered twice."""
    leader, follower = in_sync_pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    settle(leader, follower)
    peer = RecordingPeer()
    for _ in range(2):  # the first one may be answered with confirmOffset
        pull(leader, peer, leader.store.end_offset, 1 << 20)
    peer.take()
    deliver(leader)
    (answer,) = peer.take()
    assert b"later" in bytes(answer.body)
    assert answer.header(ReplicaPullResponseHeader).delay_offsets == "1=1"


def test_a_delivery_that_a_slave_has_is_not_repeated_when_it_leads(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker)
    delivered(leader)
    replicate(leader, follower)
    promote(follower, leader)
    deliver(follower)
    assert bodies(follower) == [b"later"]


def test_a_slave_that_follows_at_a_distance_learns_of_what_its_log_shows(make_broker: MakeBroker) -> None:
    """Else it would deliver all again that was delivered since it had last caught up."""
    leader = make_broker()
    ends = [delivered(leader) for _ in range(3)]
    schedule = leader.broker.schedule
    assert [schedule.table_at(end) for end in ends] == ["1=1", "1=2", "1=3"]
    assert schedule.table_at(ends[2] - 1) == "1=2"


def test_of_a_log_in_front_of_all_deliveries_that_are_remembered_nothing_is_said(make_broker: MakeBroker) -> None:
    """What was delivered before may be in it, or not."""
    leader = make_broker()
    end = delivered(leader)
    assert leader.broker.schedule.table_at(end - 1) is None


def test_a_message_that_was_passed_over_waits_at_a_slave_whose_log_does_not_have_it(make_broker: MakeBroker) -> None:
    """Another message took its place there when that slave led, and was never delivered."""
    leader = make_broker()
    end = delivered(leader)
    leader.store_message("SCHEDULE_TOPIC_XXXX", b"names no topic", queue_id=0, tags_code=0)
    deliver(leader)
    schedule = leader.broker.schedule
    assert (schedule.table_at(end), schedule.table_at(leader.store.end_offset)) == ("1=1", "1=2")


def test_a_slave_whose_log_was_truncated_and_fetched_again_knows_what_that_shows(make_broker: MakeBroker) -> None:
    """It asked again when its master delivered the next message, and delivered all of them again when it led before."""
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    settle(leader, follower)
    before = leader.store.end_offset
    deliver(leader)
    settle(leader, follower)
    follower.broker.replica.truncate(before, follower.store.truncate)  # type: ignore[arg-type] # truncate's report is not needed
    follower.broker.log_was_truncated()
    assert follower.broker.schedule.offsets == {1: 0}
    settle(leader, follower)
    promote(follower, leader)
    deliver(follower)
    assert bodies(follower) == [b"later"]


def test_after_a_truncation_a_slave_delivers_what_its_master_has_never_delivered(make_broker: MakeBroker) -> None:
    """Of a level of which its master says nothing it knew better: its own deliveries, so many that it forgot where they are."""
    leader, follower = pair(make_broker)
    leader.store_message("orders", b"later", properties={"DELAY": "1"})
    settle(leader, follower)
    schedule = follower.broker.schedule
    schedule.take_over("1=1")
    schedule.log_was_truncated()
    assert schedule.offsets == {1: 1}  # the log is as long as it was
    replicate(leader, follower)
    assert schedule.offsets == {1: 0}


def test_a_slave_of_an_older_master_goes_by_its_own_progress(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker)
    delivered(leader)
    replicate(leader, follower)
    follower.broker.schedule.take_over(None)
    assert follower.broker.schedule.offsets == {1: 1}


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
    assert bodies(follower) == [b"later"]


class _Waits(RemotingClient):
    """Its other end is the leader, which answers once the pull has waited for as long as it may."""

    def __init__(self, leader: BrokerUnderTest) -> None:
        super().__init__(ADDRESSES[0], sign=lambda _: None, connect=NotImplemented)
        self._leader = leader
        self.waits_ms: list[int] = []

    async def request(self, command: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        wait_ms = int(command.ext_fields["maxWaitMillis"])
        self.waits_ms.append(wait_ms)
        await trio.sleep(0.01 + wait_ms / 1000)
        peer = RecordingPeer()
        answers = self._leader.request(command.code, ext_fields=command.ext_fields, peer=peer)
        if not answers:
            self._leader.clock.advance(5)
            self._leader.broker.answer_expired()
            answers = peer.take()
        return answers[0]


def test_the_first_pull_of_a_connection_waits_for_nothing(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave that was restarted has its master's progress of ten seconds ago, and may have all of the log: it would learn of the
    rest with the next message."""
    leader, follower = pair(make_broker)
    client = _Waits(leader)
    monkeypatch.setattr(follower.broker, "client_of", lambda _address, **_: client)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follower.broker.follower.run)
            await trio.sleep(9)
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert client.waits_ms == [0, 5000, 5000]
