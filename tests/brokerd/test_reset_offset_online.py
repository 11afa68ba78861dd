"""A group is reset while its members pull: they are sent there at once, and nothing that they commit meanwhile counts."""

from __future__ import annotations

import pytest

from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer

END = 10


@pytest.fixture
def group_broker(broker: BrokerUnderTest) -> BrokerUnderTest:
    """Ten messages in queue 0 of `orders`; group `g` has consumed them all."""
    broker.create_topic("orders")
    broker.create_group("g")
    broker.create_group("other")
    for number in range(END):
        broker.store_message("orders", b"%d" % number)
    commit(broker, END)
    return broker


def pull_request(offset: int, *, group: str = "g") -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.PULL_MESSAGE,
        ext_fields={
            "consumerGroup": group, "topic": "orders", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": str(int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)), "commitOffset": "0",
            "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        },
    )  # fmt: skip


def pull(broker: BrokerUnderTest, offset: int) -> tuple[int, str]:
    """The answer's code and where it says to go on."""
    reply = broker.answer(pull_request(offset))
    return reply.code, reply.ext_fields["nextBeginOffset"]


def hold(broker: BrokerUnderTest, *, group: str = "g") -> RecordingPeer:
    """A pull at the end, which waits for a message: the connection that it came over."""
    peer = RecordingPeer()
    request = pull_request(END, group=group)
    broker.dispatch(peer, [request])
    assert peer.take() == []
    return peer


def commit(broker: BrokerUnderTest, offset: int) -> None:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0, commit_offset=offset)
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == ResponseCode.SUCCESS


def committed(broker: BrokerUnderTest) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group="g", topic="orders", queue_id=0)
    return int(broker.ask(RequestCode.QUERY_CONSUMER_OFFSET, header).ext_fields["offset"])


def reset(broker: BrokerUnderTest, offset: int) -> None:
    header = ResetOffsetRequestHeader(topic="orders", group="g", queue_id=0, offset=offset, timestamp=-1)
    assert broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header).code == ResponseCode.SUCCESS


def moved(offset: int) -> tuple[int, str]:
    return ResponseCode.PULL_OFFSET_MOVED, str(offset)


def test_a_member_that_waits_for_messages_is_sent_to_the_new_offset_at_once(group_broker: BrokerUnderTest) -> None:
    peer = hold(group_broker)
    reset(group_broker, 2)
    (answer,) = peer.take()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == moved(2)
    assert len(group_broker.broker.held_pulls) == 0


def test_the_pulls_of_other_groups_wait_on(group_broker: BrokerUnderTest) -> None:
    peer = hold(group_broker, group="other")
    reset(group_broker, 2)
    assert peer.take() == []
    assert len(group_broker.broker.held_pulls) == 1


def test_members_of_the_target_of_a_clone_are_sent_there_too(group_broker: BrokerUnderTest) -> None:
    peer = hold(group_broker)
    header = UpdateConsumerOffsetRequestHeader(consumer_group="other", topic="orders", queue_id=0, commit_offset=3)
    group_broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    clone = CloneGroupOffsetRequestHeader(src_group="other", dest_group="g", topic="orders")
    assert group_broker.ask(RequestCode.CLONE_GROUP_OFFSET, clone).code == ResponseCode.SUCCESS
    (answer,) = peer.take()
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == moved(3)


def test_no_commit_counts_between_the_answer_and_the_pull_that_follows_it(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, 2)
    assert pull(group_broker, END) == moved(2)
    commit(group_broker, END)  # as Go's client does in the ten seconds that it takes to follow
    assert committed(group_broker) == 2
    assert pull(group_broker, 2) == (ResponseCode.SUCCESS, str(END))
    commit(group_broker, 5)
    assert committed(group_broker) == 5


def test_a_pull_from_there_is_told_first_for_it_may_have_older_messages_at_hand(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, END)
    assert pull(group_broker, END) == moved(END)
    group_broker.store_message("orders", b"new")
    assert pull(group_broker, END) == (ResponseCode.SUCCESS, str(END + 1))


def test_each_pull_elsewhere_is_sent_to_the_new_offset(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, 2)
    assert [pull(group_broker, offset) for offset in (END, 7, END)] == [moved(2)] * 3


def test_a_second_reset_sends_the_members_to_its_offset(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, 2)
    assert pull(group_broker, END) == moved(2)
    reset(group_broker, 4)
    assert pull(group_broker, 2) == moved(4)
    assert pull(group_broker, 4) == (ResponseCode.SUCCESS, str(END))


def test_a_reset_to_an_offset_that_another_reset_overtook_earlier_is_sent_too(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, 2)
    assert pull(group_broker, END) == moved(2)
    reset(group_broker, 4)
    assert [pull(group_broker, offset) for offset in (2, 4)] == [moved(4), (ResponseCode.SUCCESS, str(END))]
    group_broker.clock.advance(3600)
    reset(group_broker, 2)
    assert pull(group_broker, END) == moved(2)


def test_a_client_that_keeps_offsets_of_its_own_may_go_on_after_a_minute(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, 2)
    assert pull(group_broker, 7) == moved(2)
    group_broker.clock.advance(59)
    assert pull(group_broker, 7) == moved(2)
    group_broker.clock.advance(1)
    assert pull(group_broker, 7) == (ResponseCode.SUCCESS, str(END))
    assert not group_broker.broker.consumer_offsets.has_reset("orders", "g", 0)


def test_a_restart_between_the_answer_and_the_pull_that_follows_keeps_the_reset(group_broker: BrokerUnderTest) -> None:
    reset(group_broker, 2)
    assert pull(group_broker, END) == moved(2)
    group_broker.crash()
    commit(group_broker, END)
    assert committed(group_broker) == 2
