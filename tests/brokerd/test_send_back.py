"""CONSUMER_SEND_MSG_BACK: retries with growing delays, then the dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from brokerd.store import AppendResult
from mqwire.bodies import LockBatchRequestBody, MessageQueue, SubscriptionGroupConfig
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.replicated_broker import in_sync_pair, settle
from tests.sim.store_harness import message

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def retry_broker(broker: BrokerUnderTest) -> BrokerUnderTest:
    broker.create_topic("orders")
    broker.create_group("g")
    return broker


def send_back(
    broker: BrokerUnderTest, offset: int, *, group: str = "g", delay_level: int = 0, **members: Any
) -> RemotingCommand:
    return broker.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        ConsumerSendMsgBackRequestHeader(offset=offset, group=group, delay_level=delay_level, **members),
    )


def stored(broker: BrokerUnderTest, **fields: Any) -> AppendResult:
    return broker.store_message("orders", b"failing", properties={"TAGS": "paid", "UNIQ_KEY": "u1"}, **fields)


def deliver_all(broker: BrokerUnderTest) -> None:
    broker.clock.advance(7200)
    while broker.broker.schedule.deliver_due():
        pass


def test_the_copy_waits_at_level_3_and_comes_in_the_retry_topic(retry_broker: BrokerUnderTest) -> None:
    offset = stored(retry_broker).physical_offset
    assert send_back(retry_broker, offset).code == ResponseCode.SUCCESS
    assert len(retry_broker.messages(SCHEDULE_TOPIC, 2)) == 1
    deliver_all(retry_broker)
    (copy,) = retry_broker.messages("%RETRY%g")
    assert (copy.body, copy.reconsume_times, copy.properties["RETRY_TOPIC"], copy.properties["TAGS"]) == (
        b"failing",
        1,
        "orders",
        "paid",
    )


def test_each_retry_waits_one_level_longer_and_keeps_the_first_id(retry_broker: BrokerUnderTest) -> None:
    first = stored(retry_broker)
    first_id = retry_broker.messages("orders")[0].offset_message_id
    offset = first.physical_offset
    for times in range(3):
        send_back(retry_broker, offset)
        assert len(retry_broker.messages(SCHEDULE_TOPIC, 2 + times)) == 1
        deliver_all(retry_broker)
        copy = retry_broker.messages("%RETRY%g")[-1]
        assert copy.properties["ORIGIN_MESSAGE_ID"] == first_id
        assert copy.properties["RETRY_TOPIC"] == "orders"
        assert copy.reconsume_times == times + 1
        offset = copy.physical_offset


def test_retries_come_in_queues_that_are_read_when_the_group_asks_for_more_than_its_retry_topic_has(
    broker: BrokerUnderTest,
) -> None:
    broker.create_topic("orders")
    for retry_queues in (1, 8):
        config = SubscriptionGroupConfig(group_name="g", retry_queue_nums=retry_queues)
        broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.to_json())
    for _ in range(20):
        assert send_back(broker, stored(broker).physical_offset).code == ResponseCode.SUCCESS
    deliver_all(broker)
    read = range(broker.topic_config("%RETRY%g").read_queue_nums)
    assert sum(len(broker.messages("%RETRY%g", queue_id)) for queue_id in read) == 20


def test_a_wished_delay_level_is_used(retry_broker: BrokerUnderTest) -> None:
    send_back(retry_broker, stored(retry_broker).physical_offset, delay_level=7)
    assert len(retry_broker.messages(SCHEDULE_TOPIC, 6)) == 1


def test_after_the_maximum_the_message_goes_to_the_dead_letters_at_once(retry_broker: BrokerUnderTest) -> None:
    offset = stored(retry_broker, reconsume_times=16).physical_offset
    assert send_back(retry_broker, offset).code == ResponseCode.SUCCESS
    (dead,) = retry_broker.messages("%DLQ%g")
    assert (dead.properties["DLQ_ORIGIN_TOPIC"], dead.reconsume_times) == ("orders", 17)
    assert "DELAY" not in dead.properties


def test_a_message_larger_than_the_maximum_size_is_now_is_retried_all_the_same(make_broker: MakeBroker) -> None:
    broker = make_broker(maxMessageSize="1024")
    broker.create_topic("orders")
    broker.create_group("g")
    taken_before = broker.broker.append([message(b"." * 2000)], any_size=True)[0]
    assert send_back(broker, taken_before.physical_offset).code == ResponseCode.SUCCESS
    deliver_all(broker)
    assert len(broker.messages("%RETRY%g")) == 1


def test_a_message_is_taken_back_by_a_master_that_is_alone(make_broker: MakeBroker) -> None:
    """With any other answer clients give it back again, and each of these copies twice more when it fails."""
    leader, follower = in_sync_pair(make_broker)
    leader.create_topic("orders")
    leader.create_group("g")
    offset = stored(leader).physical_offset
    settle(leader, follower)
    leader.clock.advance(60)
    leader.broker.held_changed()
    answer = send_back(leader, offset)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "the copy is on the master alone: too few slaves are in sync (inSyncReplicas)"


def test_a_negative_delay_level_asks_for_the_dead_letters(retry_broker: BrokerUnderTest) -> None:
    send_back(retry_broker, stored(retry_broker).physical_offset, delay_level=-1)
    assert len(retry_broker.messages("%DLQ%g")) == 1


@pytest.mark.parametrize(("asked", "dead"), [(1, True), (2, False), (-1, False), (0, True)])
def test_the_clients_own_maximum_counts_unless_it_is_negative(
    retry_broker: BrokerUnderTest, asked: int, dead: bool
) -> None:
    offset = stored(retry_broker, reconsume_times=1).physical_offset
    send_back(retry_broker, offset, max_reconsume_times=asked)
    assert len(retry_broker.messages("%DLQ%g")) == int(dead)


def test_a_group_without_retry_queues_drops_the_message(retry_broker: BrokerUnderTest) -> None:
    retry_broker.create_group("h", retry_queue_nums=0)
    end = retry_broker.store.end_offset
    assert send_back(retry_broker, 0, group="h").code == ResponseCode.SUCCESS
    assert retry_broker.store.end_offset == end


@pytest.mark.parametrize("offset", [-1, 1, 10**12])
def test_an_offset_where_no_message_begins_is_refused(retry_broker: BrokerUnderTest, offset: int) -> None:
    stored(retry_broker)
    reply = send_back(retry_broker, offset)
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "no message begins there" in (reply.remark or "")


def test_an_unknown_group_is_refused_where_groups_are_not_created(make_broker: MakeBroker) -> None:
    broker = make_broker(autoCreateSubscriptionGroup="false")
    offset = broker.store_message("orders").physical_offset
    assert send_back(broker, offset).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_broker_that_takes_no_messages_refuses(retry_broker: BrokerUnderTest) -> None:
    offset = stored(retry_broker).physical_offset
    retry_broker.broker.stopping = True
    assert send_back(retry_broker, offset).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_retry_topic_without_write_permission_refuses(retry_broker: BrokerUnderTest) -> None:
    retry_broker.create_topic("%RETRY%g", perm=4)
    assert send_back(retry_broker, stored(retry_broker).physical_offset).code == ResponseCode.NO_PERMISSION


def test_under_sync_flush_the_answer_waits_for_the_disk(
    make_broker: MakeBroker, new_peer: type[RecordingPeer], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(flushDiskType="SYNC_FLUSH")
    broker.create_group("g")
    monkeypatch.setattr(broker.broker.flush_service, "flush_soon", lambda: None)
    offset = broker.store_message("orders").physical_offset
    broker.store.flush()
    broker.broker.held_changed()
    peer = new_peer()
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="g", delay_level=0)
    assert broker.request(RequestCode.CONSUMER_SEND_MSG_BACK, header, peer=peer) == []
    broker.store.flush()
    broker.broker.held_changed()
    (reply,) = peer.take()
    assert reply.code == ResponseCode.SUCCESS


# --- retries that a client sends itself ---


def send_retry(broker: BrokerUnderTest, reconsume_times: int, most: int = 3, group: str = "g") -> None:
    """As a Java consumer's own producer sends a message back: a concurrent one when CONSUMER_SEND_MSG_BACK has failed, an orderly
    one after the last retry in place.
    """
    fields = {
        "a": "CLIENT_INNER_PRODUCER", "b": f"%RETRY%{group}", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": f"RETRY_TOPIC\x01orders\x02DELAY\x01{3 + reconsume_times}\x02", "j": str(reconsume_times), "l": str(most),
    }  # fmt: skip
    reply = broker.ask(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"failing")
    assert reply.code == ResponseCode.SUCCESS


def lock_a_queue(broker: BrokerUnderTest) -> None:
    queue = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
    body = LockBatchRequestBody(consumer_group="g", client_id="c1", mq_set=[queue])
    broker.ask(RequestCode.LOCK_BATCH_MQ, body=body.to_json())


def retries_and_dead_letters(broker: BrokerUnderTest, group: str = "g") -> tuple[list[bytes], list[bytes]]:
    deliver_all(broker)
    retries, dead_letters = ([copy.body for copy in broker.messages(topic + group)] for topic in ("%RETRY%", "%DLQ%"))
    return retries, dead_letters


def test_a_message_that_an_orderly_consumer_sends_back_is_a_dead_letter(retry_broker: BrokerUnderTest) -> None:
    lock_a_queue(retry_broker)
    send_retry(retry_broker, 3, most=3)
    assert retries_and_dead_letters(retry_broker) == ([], [b"failing"])


def test_a_message_that_a_concurrent_consumer_sends_itself_is_retried(retry_broker: BrokerUnderTest) -> None:
    send_retry(retry_broker, 3, most=3)
    assert retries_and_dead_letters(retry_broker) == ([b"failing"], [])


def test_a_message_that_a_consumer_sends_past_its_maximum_is_a_dead_letter(retry_broker: BrokerUnderTest) -> None:
    send_retry(retry_broker, 4, most=3)
    assert retries_and_dead_letters(retry_broker) == ([], [b"failing"])


def test_an_expired_lock_makes_no_orderly_consumer(retry_broker: BrokerUnderTest) -> None:
    lock_a_queue(retry_broker)
    retry_broker.clock.advance(61)
    send_retry(retry_broker, 3, most=3)
    assert retries_and_dead_letters(retry_broker) == ([b"failing"], [])


def test_another_groups_lock_makes_no_orderly_consumer(retry_broker: BrokerUnderTest) -> None:
    lock_a_queue(retry_broker)
    retry_broker.create_group("h")
    send_retry(retry_broker, 3, most=3, group="h")
    assert retries_and_dead_letters(retry_broker, "h") == ([b"failing"], [])
