"""Quotas of a broker: what one credential and one topic may take of it, and the answer to a client that is over one."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from brokerd import topic_config
from brokerd.quotas import Bucket
from brokerd.topic_config import REGISTERED_BYTES_MAX
from mqwire.acl import SessionCredentials, sign_request
from mqwire.bodies import ConsumerData, HeartbeatData, KVTable, SubscriptionData, SubscriptionGroupConfig
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.compression import CompressionType, compress
from mqwire.headers_pull import PullMessageRequestHeader, QueryMessageRequestHeader, ViewMessageRequestHeader
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from mqwire.headers_topic import CreateTopicRequestHeader
from mqwire.message import BatchItem, encode_batch_body
from mqwire.names import RMQ_SYS_TRACE_TOPIC
from namesrvd.server import MAX_FRAME_BYTES
from tests.brokerd.acl_accounts import SEND_FIELDS, MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.security.accounts import ACCOUNTS, PLATFORM, PROGRAM, TENANT_ADMIN, ask
from tests.security.live_broker import send_request


@pytest.fixture
def broker(platform_broker: BrokerUnderTest) -> BrokerUnderTest:
    platform_broker.create_topic("orders", queues=1)
    platform_broker.create_topic("bills", queues=1)
    platform_broker.create_group("readers")
    return platform_broker


def send(
    broker: BrokerUnderTest, credentials: SessionCredentials = PROGRAM, *, topic: str = "orders", body: bytes = b"x"
) -> RemotingCommand:
    request = send_request(body, credentials)
    request.ext_fields["b"] = topic
    sign_request(request, credentials)
    return broker.answer(request)


def pull(
    broker: BrokerUnderTest,
    offset: int = 0,
    *,
    suspend: bool = False,
    credentials: SessionCredentials = PROGRAM,
    topic: str = "orders",
) -> RemotingCommand | None:
    header = PullMessageRequestHeader(
        consumer_group="readers", topic=topic, queue_id=0, queue_offset=offset, max_msg_nums=32,
        sys_flag=4 | (2 if suspend else 0), commit_offset=0, suspend_timeout_millis=15_000, subscription="*", sub_version=0,
    )  # fmt: skip
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    sign_request(request, credentials)
    peer = RecordingPeer()
    broker.dispatch(peer, [request])
    return next(iter(peer.take()), None)


def refused_by(reply: RemotingCommand | None) -> str:
    """The quota that a refusal names; fails unless it is one."""
    assert reply is not None
    assert reply.code == ResponseCode.SYSTEM_BUSY, reply
    return next(
        word for word in (reply.remark or "").replace(":", " ").split() if word.startswith("quota") and word != "quota"
    )


def test_a_credential_over_its_rate_is_refused_until_a_second_has_paid_it_back(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_messages_per_second = 3
    assert [send(broker).code for _ in range(3)] == [ResponseCode.SUCCESS] * 3
    assert refused_by(send(broker)) == "quotaCredentialMessagesPerSecond"
    broker.clock.advance(0.5)
    assert send(broker).code == ResponseCode.SUCCESS


def test_one_credentials_rate_takes_nothing_of_anothers(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_messages_per_second = 1
    assert send(broker).code == ResponseCode.SUCCESS
    assert refused_by(send(broker))
    assert send(broker, TENANT_ADMIN).code == ResponseCode.SUCCESS


def test_one_topics_rate_takes_nothing_of_anothers(broker: BrokerUnderTest) -> None:
    broker.config.quota_topic_bytes_per_second = 1000
    assert send(broker, body=b"x" * 5000).code == ResponseCode.SUCCESS
    assert refused_by(send(broker, TENANT_ADMIN)) == "quotaTopicBytesPerSecond"
    assert send(broker, topic="bills").code == ResponseCode.SUCCESS
    broker.clock.advance(3)  # 4,000 bytes were overdrawn
    assert refused_by(send(broker)) == "quotaTopicBytesPerSecond"
    broker.clock.advance(2)
    assert send(broker).code == ResponseCode.SUCCESS


def test_the_infrastructure_has_no_rate(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_messages_per_second = 1
    for _ in range(3):
        request = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, ext_fields=send_request(b"x").ext_fields, body=b"x"
        )
        for field in ("AccessKey", "Signature"):
            del request.ext_fields[field]
        reply = ask(broker, RequestCode.SEND_MESSAGE_V2, PLATFORM, fields=dict(request.ext_fields), body=b"x")
        assert reply.code == ResponseCode.SUCCESS, reply.remark


def test_pulls_have_a_rate_of_their_own(broker: BrokerUnderTest) -> None:
    for _ in range(5):
        send(broker)
    broker.config.quota_credential_messages_per_second = 4
    first = pull(broker)
    assert first is not None
    assert first.code == ResponseCode.SUCCESS
    assert refused_by(pull(broker)) == "quotaCredentialMessagesPerSecond"
    assert send(broker).code == ResponseCode.SUCCESS


def send_back(broker: BrokerUnderTest) -> RemotingCommand:
    header = ConsumerSendMsgBackRequestHeader(
        offset=broker.messages("orders")[0].physical_offset, group="readers", delay_level=1
    )
    return ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, PROGRAM, header=header)


def test_messages_that_come_back_count_as_sends(broker: BrokerUnderTest) -> None:
    send(broker)
    broker.config.quota_credential_messages_per_second = 1
    assert send_back(broker).code == ResponseCode.SUCCESS
    assert refused_by(send_back(broker)) == "quotaCredentialMessagesPerSecond"
    broker.config.quota_credential_messages_per_second = 0
    broker.config.quota_stored_bytes = 1
    assert refused_by(send_back(broker)) == "quotaStoredBytes"


@pytest.mark.parametrize("code", [RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE])
def test_looks_at_messages_count_as_pulls(broker: BrokerUnderTest, code: RequestCode) -> None:
    for _ in range(3):
        send(broker)
    broker.config.quota_topic_bytes_per_second = 1
    offset = broker.messages("orders")[0].physical_offset
    view = ViewMessageRequestHeader(topic="orders", offset=offset)
    assert ask(broker, RequestCode.VIEW_MESSAGE_BY_ID, PROGRAM, header=view).code == ResponseCode.SUCCESS
    query = QueryMessageRequestHeader(topic="orders", key="k", max_num=1, begin_timestamp=0, end_timestamp=2**62)
    again = ask(broker, code, PROGRAM, header=view if code == RequestCode.VIEW_MESSAGE_BY_ID else query)
    assert refused_by(again) == "quotaTopicBytesPerSecond"


def test_a_full_log_takes_no_more_sends_and_still_hands_out(broker: BrokerUnderTest) -> None:
    assert send(broker).code == ResponseCode.SUCCESS
    broker.config.quota_stored_bytes = 1
    assert refused_by(send(broker)) == "quotaStoredBytes"
    reply = pull(broker)
    assert reply is not None
    assert reply.code == ResponseCode.SUCCESS


# --- topics, groups and offsets ---


def put_topic(broker: BrokerUnderTest, topic: str, *, queues: int = 1) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG", order=False,
    )  # fmt: skip
    return ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, TENANT_ADMIN, header=header)


def put_group(broker: BrokerUnderTest, group: str, **members: Any) -> RemotingCommand:
    body = SubscriptionGroupConfig(group_name=group, **members).to_json()
    return ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, TENANT_ADMIN, body=body)


def delete_topic(broker: BrokerUnderTest, topic: str) -> RemotingCommand:
    return ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, TENANT_ADMIN, fields={"topic": topic})


def commit(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    fields = {"topic": "orders", "consumerGroup": "readers", "queueId": "0", "commitOffset": str(offset)}
    return ask(broker, RequestCode.UPDATE_CONSUMER_OFFSET, PROGRAM, fields=fields)


def reset(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    fields = {"topic": "orders", "group": "readers", "queueId": "0", "offset": str(offset), "timestamp": "-1"}
    return ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, TENANT_ADMIN, fields={**fields, "isForce": "true"})


def stored_bytes(broker: BrokerUnderTest) -> int:
    return broker.store.end_offset - broker.store.min_physical_offset


def test_making_and_deleting_topics_without_end_stops_near_the_quota(broker: BrokerUnderTest) -> None:
    broker.config.quota_stored_bytes = limit = 100_000
    for number in range(1_000):
        reply = put_topic(broker, f"topic-{number}")
        if reply.code != ResponseCode.SUCCESS:
            break
        delete_topic(broker, f"topic-{number}")
    assert refused_by(reply) == "quotaStoredBytes"
    assert broker.broker.topic_configs.select(f"topic-{number}") is None
    assert stored_bytes(broker) < limit * 9 // 8


def test_resets_and_changes_of_groups_without_end_stop_near_the_quota(broker: BrokerUnderTest) -> None:
    send(broker)
    broker.config.quota_stored_bytes = 1 + stored_bytes(broker)
    for number in range(1_000):
        if (reply := put_group(broker, "readers", retry_max_times=number)).code != ResponseCode.SUCCESS:
            break
    assert refused_by(reply) == "quotaStoredBytes"
    assert refused_by(reset(broker, 0)) == "quotaStoredBytes"


def test_a_full_broker_lets_consumers_finish_and_topics_go(broker: BrokerUnderTest) -> None:
    send(broker)
    broker.config.quota_stored_bytes = stored_bytes(broker)
    assert refused_by(send(broker)) == "quotaStoredBytes"
    assert commit(broker, 1).code == ResponseCode.SUCCESS
    assert delete_topic(broker, "bills").code == ResponseCode.SUCCESS
    broker.crash()
    assert broker.broker.consumer_offsets.query("orders", "readers", 0) == 1


def test_commits_without_end_stop_an_eighth_past_the_quota_and_say_so(broker: BrokerUnderTest) -> None:
    for _ in range(300):
        send(broker)
    broker.config.quota_stored_bytes = limit = stored_bytes(broker)
    for offset in range(1, 301):
        reply = commit(broker, offset)
        if reply.code != ResponseCode.SUCCESS:
            break
    assert refused_by(reply) == "quotaStoredBytes"
    assert stored_bytes(broker) < limit * 9 // 8 + 1_000
    broker.crash()
    assert broker.broker.consumer_offsets.query("orders", "readers", 0) == offset - 1


def test_the_index_of_keys_counts_as_stored(broker: BrokerUnderTest) -> None:
    broker.store_message("orders", properties={"KEYS": " ".join(f"k{number}" for number in range(5_000))})
    while broker.store.index.build(broker.store.end_offset, 1_000):
        pass
    broker.config.quota_stored_bytes = stored_bytes(broker) + 100_000  # 24 bytes for each key are 120,000
    assert refused_by(send(broker)) == "quotaStoredBytes"


def fill(broker: BrokerUnderTest, properties: str, body: bytes = b"x") -> None:
    """Send until the quota of stored bytes refuses."""
    for _ in range(1_000):
        reply = send_with(broker, properties, body)
        if reply.code != ResponseCode.SUCCESS:
            break
    assert refused_by(reply) == "quotaStoredBytes"


def send_with(broker: BrokerUnderTest, properties: str, body: bytes = b"x") -> RemotingCommand:
    request = send_request(body, PROGRAM)
    request.ext_fields["i"] = properties
    sign_request(request, PROGRAM)
    return broker.answer(request)


def index_all(broker: BrokerUnderTest) -> None:
    while broker.store.index.build(broker.store.end_offset, 1_000):
        pass


def test_keys_count_as_stored_before_the_index_has_read_them(broker: BrokerUnderTest) -> None:
    broker.config.quota_stored_bytes = limit = 500_000
    fill(broker, "KEYS\x01" + "k " * 1_000 + "\x02")
    index_all(broker)
    assert stored_bytes(broker) + broker.store.index.used_bytes < limit + 30_000  # with the one send that was over


def test_keys_of_a_batch_count_as_stored_before_the_index_has_read_them(broker: BrokerUnderTest) -> None:
    broker.config.quota_stored_bytes = stored_bytes(broker) + 100_000
    item = BatchItem(0, b"x", ("KEYS\x01" + "k " * 1_000 + "\x02").encode())
    assert send_batch(broker, [item] * 5).code == ResponseCode.SUCCESS
    assert refused_by(send(broker)) == "quotaStoredBytes"


def test_keys_that_are_indexed_count_once(broker: BrokerUnderTest) -> None:
    broker.config.quota_stored_bytes = 10_000_000
    assert send_with(broker, "KEYS\x01" + "k " * 1_000 + "\x02").code == ResponseCode.SUCCESS
    before = broker.broker._stored_bytes()
    index_all(broker)
    assert abs(broker.broker._stored_bytes() - before) < 100


def test_a_message_with_more_keys_than_are_taken_is_refused(broker: BrokerUnderTest) -> None:
    keys = " ".join("k" for _ in range(1_025))
    reply = send_with(broker, f"KEYS\x01{keys}\x02")
    assert (reply.code, "at most 1024 are taken" in (reply.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    reply = send_batch(broker, [BatchItem(0, b"x", b""), BatchItem(0, b"x", f"KEYS\x01{keys}\x02".encode())])
    assert (reply.code, "at most 1024 are taken" in (reply.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)


def test_a_batch_with_more_keys_than_are_taken_is_refused(broker: BrokerUnderTest) -> None:
    item = BatchItem(0, b"x", b"KEYS\x01" + b"k " * 1_000 + b"\x02")
    reply = send_batch(broker, [item] * 66)
    assert (reply.code, reply.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "the batch has 66000 keys, at most 65536 are taken: split it",
    )
    assert send_batch(broker, [item] * 65).code == ResponseCode.SUCCESS


def test_trace_records_of_a_thousand_messages_keep_all_their_keys(broker: BrokerUnderTest) -> None:
    """Stock clients collect the ids of the messages, and their keys, in one trace message's."""
    keys = " ".join(f"{number:032X}" for number in range(980))
    assert send_with(broker, f"KEYS\x01{keys}\x02").code == ResponseCode.SUCCESS


def test_words_of_another_property_are_no_keys(broker: BrokerUnderTest) -> None:
    properties = "KEYS\x01k\x02note\x01" + "word " * 2_000 + "\x02"
    assert send_with(broker, properties).code == ResponseCode.SUCCESS
    assert send_batch(broker, [BatchItem(0, b"x", properties.encode())] * 40).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("properties", ["DELAY\x011\x02", "DELAY\x011\x02KEYS\x01" + "k " * 1_000 + "\x02"])
def test_delayed_messages_count_twice_from_the_send_on(broker: BrokerUnderTest, properties: str) -> None:
    broker.config.quota_stored_bytes = limit = stored_bytes(broker) + 600_000
    fill(broker, properties, bytes(5_000))
    before = broker.broker._stored_bytes()
    broker.clock.advance(10)
    while broker.broker.schedule.deliver_due():
        pass
    index_all(broker)
    stored = stored_bytes(broker) + broker.store.index.used_bytes
    assert limit - 5_000 < stored < limit + 65_000  # with the one send that was over
    assert abs(broker.broker._stored_bytes() - before) < 0.02 * before


def test_delayed_messages_count_twice_after_a_restart(broker: BrokerUnderTest) -> None:
    broker.config.quota_stored_bytes = 10_000_000
    for _ in range(20):
        send_with(broker, "DELAY\x011\x02", bytes(5_000))
    before = broker.broker.schedule.waiting_bytes
    broker.keys["quotaStoredBytes"] = "10000000"
    broker.stop()
    (broker.folder / "broker.conf").unlink()
    broker.start()
    assert broker.broker.schedule.waiting_bytes == before > 100_000


def test_what_counts_as_waiting_is_nothing_when_all_is_delivered(broker: BrokerUnderTest) -> None:
    broker.config.quota_stored_bytes = 10_000_000
    for _ in range(600):
        send_with(broker, "DELAY\x011\x02KEYS\x01a b\x02")
    assert broker.broker.schedule.waiting_bytes > 600 * 3 * 24
    broker.clock.advance(10)
    while broker.broker.schedule.deliver_due():
        pass
    assert broker.broker.schedule.waiting_bytes == 0


def send_batch(broker: BrokerUnderTest, items: list[BatchItem]) -> RemotingCommand:
    fields = {**SEND_FIELDS, "b": "orders", "m": "true"}
    request = RemotingCommand.request(
        RequestCode.SEND_BATCH_MESSAGE, ext_fields=fields, body=encode_batch_body(iter(items))
    )
    sign_request(request, PROGRAM)
    return broker.answer(request)


def test_topics_have_a_quota_whoever_makes_them(broker: BrokerUnderTest) -> None:
    broker.config.quota_topics = 3
    assert send(broker, topic="made-by-a-send").code == ResponseCode.SUCCESS
    assert refused_by(put_topic(broker, "fourth")) == "quotaTopics"
    assert refused_by(send(broker, topic="fourth")) == "quotaTopics"
    delete_topic(broker, "bills")
    assert put_topic(broker, "fourth").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("prefix", ["%DLQ%", "%RETRY%"])
def test_a_send_makes_a_groups_topic_for_a_group_that_exists_alone(broker: BrokerUnderTest, prefix: str) -> None:
    """They count in no quota of topics: each goes with a group, of which a quota counts."""
    reply = send(broker, topic=f"{prefix}no-ones")
    assert (reply.code, "create the group" in (reply.remark or "")) == (ResponseCode.TOPIC_NOT_EXIST, True)
    assert broker.broker.topic_configs.select(f"{prefix}no-ones") is None
    assert send(broker, topic=f"{prefix}readers").code == ResponseCode.SUCCESS


def test_the_topics_of_a_broker_fit_in_a_registration(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = broker.broker.topic_configs
    registered = len(json.dumps(json.loads(topics.to_wrapper().to_json())["topicConfigTable"], separators=(",", ":")))
    monkeypatch.setattr(topic_config, "REGISTERED_BYTES_MAX", registered + 1_000)
    replies = [put_topic(broker, f"topic-{number}-".ljust(127, "x")) for number in range(4)]
    assert [reply.code for reply in replies] == [0, 0, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY]
    assert "the broker would register topics" in (replies[-1].remark or "")
    delete_topic(broker, "topic-0-".ljust(127, "x"))
    assert put_topic(broker, "short").code == ResponseCode.SUCCESS


def test_topics_that_are_too_many_for_a_registration_already_may_shrink(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_topic(broker, "wide", queues=100)
    monkeypatch.setattr(topic_config, "REGISTERED_BYTES_MAX", 1)
    assert put_topic(broker, "wide", queues=10).code == ResponseCode.SUCCESS
    assert put_topic(broker, "wide", queues=100).code == ResponseCode.SYSTEM_BUSY


def test_the_largest_registration_is_a_frame_that_name_servers_take() -> None:
    assert REGISTERED_BYTES_MAX + 2**20 < MAX_FRAME_BYTES


def test_queues_have_a_quota_in_all_topics_together(broker: BrokerUnderTest) -> None:
    broker.config.quota_queues = 8  # orders, bills and the retry topics have some
    assert refused_by(put_topic(broker, "wide", queues=8)) == "quotaQueues"
    assert refused_by(put_topic(broker, "orders", queues=1000)) == "quotaQueues"
    assert broker.topic_config("orders").read_queue_nums == 1


def test_a_topic_may_shrink_where_a_quota_was_lowered_below_what_is_there(broker: BrokerUnderTest) -> None:
    put_topic(broker, "wide", queues=100)
    broker.config.quota_queues = 10
    assert put_topic(broker, "wide", queues=50).code == ResponseCode.SUCCESS
    assert refused_by(put_topic(broker, "wide", queues=51)) == "quotaQueues"


def test_groups_have_a_quota_whoever_makes_them(broker: BrokerUnderTest) -> None:
    broker.config.quota_groups = 2
    assert put_group(broker, "second").code == ResponseCode.SUCCESS
    assert refused_by(put_group(broker, "third")) == "quotaGroups"
    consumer = ConsumerData(
        group_name="third", subscription_data_set=[SubscriptionData(topic="orders", sub_string="*")]
    )
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).to_json()
    assert refused_by(ask(broker, RequestCode.HEART_BEAT, PROGRAM, body=body)) == "quotaGroups"


def test_a_groups_settings_have_a_bound_over_all_its_changes(broker: BrokerUnderTest) -> None:
    replies = [put_group(broker, "readers", attributes={f"+{number}": "x" * 5_000}) for number in range(4)]
    assert [reply.code for reply in replies] == [0, 0, 0, ResponseCode.SYSTEM_BUSY]
    assert "at most 16384" in (replies[-1].remark or "")


def test_an_attribute_of_a_topic_has_a_bound(broker: BrokerUnderTest) -> None:
    fields = {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+reserve.time=" + "9" * 100_000}
    reply = ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, TENANT_ADMIN, fields=fields)
    assert (reply.code, "at most 64" in (reply.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)


def test_use_of_topics_queues_and_groups_is_shown(broker: BrokerUnderTest) -> None:
    broker.config.quota_topics, broker.config.quota_groups = 10, 5
    reply = ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO, TENANT_ADMIN)
    uses = {
        use["quota"]: (use["used"], use["limit"]) for use in json.loads(KVTable.from_json(reply.body).table["quotas"])
    }
    assert (uses["quotaTopics"], uses["quotaGroups"]) == ((2, 10), (1, 5))


# --- topics' own ---


def test_a_topic_that_stores_too_much_takes_no_more_sends_and_others_do(broker: BrokerUnderTest) -> None:
    send(broker)
    for _ in broker.broker.metering.stored_bytes.update():
        pass
    broker.config.quota_topic_stored_bytes = 1
    assert refused_by(send(broker)) == "quotaTopicStoredBytes"
    assert send(broker, topic="bills").code == ResponseCode.SUCCESS


def own_quota(broker: BrokerUnderTest, attributes: str, topic: str = "orders") -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", order=False, attributes=attributes,
    )  # fmt: skip
    return ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, TENANT_ADMIN, header=header)


def test_a_topics_own_rate_of_messages_holds_for_its_sends(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.messages.per.second=2")
    assert [send(broker).code for _ in range(2)] == [ResponseCode.SUCCESS] * 2
    assert refused_by(send(broker)) == "quota.messages.per.second"
    assert send(broker, topic="bills").code == ResponseCode.SUCCESS
    broker.clock.advance(1)
    assert send(broker).code == ResponseCode.SUCCESS


def test_a_topics_own_rate_leaves_its_consumers_alone(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.messages.per.second=1")
    send(broker)
    for _ in range(3):
        reply = pull(broker)
        assert reply is not None
        assert reply.code == ResponseCode.SUCCESS


def test_a_topics_own_rate_of_bytes_is_named(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.bytes.per.second=1000")
    send(broker, body=b"x" * 5000)
    reply = send(broker)
    assert refused_by(reply) == "quota.bytes.per.second"
    assert reply.remark == (
        "topic orders is over its quota quota.bytes.per.second: 1000 bytes in a second. Slow down, or ask for more"
    )


def test_a_topics_own_limit_of_stored_bytes_stops_its_sends(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.stored.bytes=10")
    send(broker)
    trio.run(broker.broker.topic_retention.look)
    assert refused_by(send(broker)) == "quota.stored.bytes"
    assert send(broker, topic="bills").code == ResponseCode.SUCCESS


def test_a_topic_that_keeps_less_gets_room_again(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.stored.bytes=10,+reserve.time=1")
    send(broker)
    broker.clock.advance(3661)
    for _ in range(2):  # what has expired is no longer counted from the next look on
        trio.run(broker.broker.topic_retention.look)
    assert send(broker).code == ResponseCode.SUCCESS


def test_the_brokers_quota_holds_where_it_is_lower_than_the_topics_own(broker: BrokerUnderTest) -> None:
    broker.config.quota_topic_messages_per_second = 1
    own_quota(broker, "+quota.messages.per.second=5")
    send(broker)
    assert refused_by(send(broker)) == "quotaTopicMessagesPerSecond"


def test_a_topics_own_quota_goes_with_its_attribute(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.messages.per.second=1")
    send(broker)
    assert refused_by(send(broker))
    own_quota(broker, "-quota.messages.per.second")
    assert send(broker).code == ResponseCode.SUCCESS


def test_use_of_a_topics_own_quotas_is_shown(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.messages.per.second=10,+quota.stored.bytes=1000000")
    send(broker)
    trio.run(broker.broker.topic_retention.look)
    broker.clock.advance(1)
    uses = {
        (use.quota, use.name): (use.used, use.limit) for use in broker.broker.quotas.usage(broker.broker.held_pulls)
    }
    stored = sum(message.size_bytes for message in broker.messages("orders"))
    assert uses == {
        ("quota.messages.per.second", "orders (send)"): (1, 10),
        ("quota.stored.bytes", "orders"): (stored, 1_000_000),
    }


def test_a_topics_own_bound_of_held_pulls_is_named_and_shown(broker: BrokerUnderTest) -> None:
    own_quota(broker, "+quota.held.pulls=1")
    send(broker)
    assert pull(broker, 1, suspend=True) is None
    assert refused_by(pull(broker, 1, suspend=True)) == "quota.held.pulls"
    assert pull(broker, 0, suspend=True, topic="bills") is None
    shown = {(use.quota, use.name, use.used, use.limit) for use in broker.broker.quotas.usage(broker.broker.held_pulls)}
    assert ("quota.held.pulls", "orders", 1, 1) in shown


@pytest.mark.parametrize("value", ["0", "many", "-2", "1.5", str(2**60)])
def test_a_quota_that_is_none_is_refused(broker: BrokerUnderTest, value: str) -> None:
    reply = own_quota(broker, f"+quota.stored.bytes={value}")
    assert reply.code == ResponseCode.INVALID_PARAMETER


def test_a_credential_has_a_bounded_number_of_connections(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_connections = 2
    peers = [RecordingPeer() for _ in range(3)]
    for peer in peers:
        broker.dispatch(peer, [send_request(b"x")])
    assert [peer.take()[0].code for peer in peers[:2]] == [ResponseCode.SUCCESS] * 2
    assert refused_by(peers[2].take()[0]) == "quotaCredentialConnections"
    broker.broker.peer_closed(peers[0])
    broker.dispatch(peers[2], [send_request(b"x")])
    assert peers[2].take()[0].code == ResponseCode.SUCCESS


def test_a_credential_has_a_bounded_number_of_held_pulls(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_held_pulls = 1
    send(broker)
    assert pull(broker, 1, suspend=True) is None
    assert refused_by(pull(broker, 1, suspend=True)) == "quotaCredentialHeldPulls"
    send(broker)  # answers the one that waited
    assert pull(broker, 2, suspend=True) is None


def test_a_refused_send_leaves_the_others_of_its_wake_up_alone(broker: BrokerUnderTest) -> None:
    broker.config.quota_topic_stored_bytes = 1
    send(broker)
    for _ in broker.broker.metering.stored_bytes.update():
        pass
    peer = RecordingPeer()
    elsewhere = send_request(b"x")
    elsewhere.ext_fields["b"] = "bills"
    sign_request(elsewhere, PROGRAM)
    broker.dispatch(peer, [send_request(b"x"), elsewhere])
    assert sorted(reply.code for reply in peer.take()) == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY]


def test_the_tenants_administrator_sees_use_and_limit_and_changes_neither(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_messages_per_second = 10
    send(broker)
    broker.clock.advance(1)
    reply = ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO, TENANT_ADMIN)
    usage = json.loads(KVTable.from_json(reply.body).table["quotas"])
    assert {
        "quota": "quotaCredentialMessagesPerSecond", "name": "tenant-app (send)", "used": 1, "limit": 10,
    } in usage  # fmt: skip
    change = ask(broker, RequestCode.UPDATE_BROKER_CONFIG, TENANT_ADMIN, body=b"quotaCredentialMessagesPerSecond=0\n")
    assert change.code == ResponseCode.NO_PERMISSION


def test_an_overdrawn_bucket_never_holds_more_than_one_second() -> None:
    bucket = Bucket(10, 0.0)
    bucket.take(1, 0.0)
    assert not bucket.is_empty(1000.0)
    assert bucket.balance == 10


def test_a_search_in_a_name_that_no_topic_may_have_leaves_no_bucket(broker: BrokerUnderTest) -> None:
    broker.config.quota_credential_messages_per_second = 1_000
    name = "x" * 10_000
    query = QueryMessageRequestHeader(topic=name, key="k", max_num=1, begin_timestamp=0, end_timestamp=1)
    ask(broker, RequestCode.QUERY_MESSAGE, PROGRAM, header=query)
    assert name not in {of_whom for _direction, _kind, of_whom in broker.broker.quotas._rates}


def test_full_buckets_are_forgotten_where_only_one_rate_has_a_limit(broker: BrokerUnderTest) -> None:
    broker.config.quota_topic_messages_per_second = 1_000
    quotas = broker.broker.quotas
    for number in range(10_100):
        quotas.pull_refusal("tenant-app", f"made-up-{number}")
    assert len(quotas._rates) < 1_000


def test_buckets_in_use_are_not_all_looked_at_for_each_new_one(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.config.quota_topic_messages_per_second = 1_000
    quotas = broker.broker.quotas
    looks = Mock(wraps=quotas._forget_idle)
    monkeypatch.setattr(quotas, "_forget_idle", looks)
    for number in range(10_100):
        quotas.pulled("tenant-app", f"busy-{number}", 1, 1)
    assert looks.call_count == 1


@pytest.mark.parametrize("body", [b"no trace record " * 10_000, b"x" * 1_000_000])
def test_refused_trace_records_count_as_what_they_unfold_to(make_acl_broker: MakeAclBroker, body: bytes) -> None:
    broker = make_acl_broker(ACCOUNTS, traceTopicEnable="true", quotaCredentialBytesPerSecond="100000")
    broker.create_topic("orders", queues=1)
    request = send_request(b"", PROGRAM)
    packed, flags = compress(body, CompressionType.ZSTD)
    assert len(packed) < 1000
    request.body = packed
    request.ext_fields.update({"b": RMQ_SYS_TRACE_TOPIC, "f": str(flags)})
    sign_request(request, PROGRAM)
    assert broker.answer(request).code in (ResponseCode.NO_PERMISSION, ResponseCode.MESSAGE_ILLEGAL)
    answer = send(broker)
    assert (answer.code, "quotaCredentialBytesPerSecond" in (answer.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
