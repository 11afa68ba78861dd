"""Access control: who is asking, what each request needs, and the accounts' file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brokerd import acl_file
from brokerd.acl_file import AclFileError, Permission
from brokerd.acl_needs import NEEDS, Level
from brokerd.config_file import UnreadableConfigFile
from brokerd.processors import HANDLERS
from mqwire.acl import SessionCredentials, sign_request
from mqwire.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    MessageQueue,
    SubscriptionData,
)
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.compression import compress
from mqwire.headers_pull import ViewMessageRequestHeader
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from mqwire.names import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRACE_TOPIC
from mqwire.trace_records import TraceKind, TraceRecord, write_traces
from tests.brokerd.acl_accounts import (
    ACCOUNTS,
    ADMIN,
    ALICE,
    SEND_FIELDS,
    MakeAclBroker,
    accounts_file,
    code_of,
    remark_of,
)
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer

# --- who is it ---


@pytest.mark.parametrize("code", sorted({*HANDLERS, *NEEDS, 9999}))
def test_an_unsigned_request_is_refused_whatever_it_asks(acl_broker: BrokerUnderTest, code: int) -> None:
    reply = acl_broker.ask(code)
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "signed requests only" in (reply.remark or "")


@pytest.mark.parametrize(
    "credentials",
    [SessionCredentials("alice-app", "wrong-secret"), SessionCredentials("nobody-at-all", "alice-secret")],
)
def test_a_wrong_secret_and_an_unknown_key_get_the_same_answer(
    acl_broker: BrokerUnderTest, credentials: SessionCredentials
) -> None:
    remark = remark_of(
        acl_broker, RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}, signed_as=credentials
    )
    assert remark == (
        f"Check signature failed for accessKey='{credentials.access_key}': the key or its secret is wrong"
    )


def test_a_white_list_lets_no_one_in_without_a_signature(
    acl_broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    assert acl_broker.ask(RequestCode.HEART_BEAT, peer=new_peer("127.0.0.1")).code == ResponseCode.NO_PERMISSION
    assert acl_broker.ask(RequestCode.HEART_BEAT, peer=new_peer("10.1.2.3")).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("change", ["field", "body", "added field"])
def test_a_request_that_was_changed_after_signing_is_refused(acl_broker: BrokerUnderTest, change: str) -> None:
    request = RemotingCommand.request(
        RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "orders", "queueId": "0"}, body=b"body"
    )
    sign_request(request, ALICE)
    if change == "field":
        request.ext_fields["topic"] = "audit"
    elif change == "body":
        request.body = b"BODY"
    else:
        request.ext_fields["zusatz"] = "1"
    assert "Check signature failed" in (acl_broker.access_control.check(request, ("127.0.0.1", 1)) or "")


def test_a_signed_request_in_a_binary_header_is_served(acl_broker: BrokerUnderTest) -> None:
    acl_broker.create_topic("orders")
    fields = {"topic": "orders", "queueId": "0"}
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, fields, serialize_type=1) == ResponseCode.SUCCESS


# --- what may it do ---


def heartbeat(group: str, *topics: str) -> bytes:
    consumer = ConsumerData(
        group_name=group,
        subscription_data_set=[SubscriptionData(topic=topic, sub_string="*") for topic in topics],
    )
    return HeartbeatData(client_id="c", consumer_data_set=[consumer]).to_json()


def locks(group: str, *topics: str) -> bytes:
    queues = [MessageQueue(topic=topic, broker_name="broker-a", queue_id=0) for topic in topics]
    return LockBatchRequestBody(consumer_group=group, client_id="c", mq_set=queues).to_json()


V1_FIELDS = {
    "producerGroup": "p",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "0",
    "flag": "0",
}

# (request code, fields, body, whether Alice may)
CASES = [
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "orders"}, b"x", True),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "audit"}, b"x", True),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "news"}, b"x", False),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "closed"}, b"x", False),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "foreign"}, b"x", False),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "foreign", "topic": "orders"}, b"x", False),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "%RETRY%alice-group"}, b"x", True),
    (RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": "%RETRY%foreign"}, b"x", False),
    (RequestCode.SEND_MESSAGE, {**V1_FIELDS, "topic": "orders"}, b"x", True),
    (RequestCode.SEND_MESSAGE, {**V1_FIELDS, "topic": "foreign", "b": "orders"}, b"x", False),
    (RequestCode.SEND_BATCH_MESSAGE, {**SEND_FIELDS, "b": "foreign", "m": "true"}, b"x", False),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "alice-group", "topic": "orders"}, b"", True),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "alice-group", "topic": "audit"}, b"", False),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "foreign", "topic": "orders"}, b"", False),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "idle", "topic": "orders"}, b"", False),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "alice-group", "topic": "%RETRY%alice-group"}, b"", True),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "alice-group", "topic": "%DLQ%alice-group"}, b"", True),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "alice-group", "topic": "%DLQ%foreign"}, b"", False),
    (RequestCode.PULL_MESSAGE, {"consumerGroup": "alice-group", "topic": "SCHEDULE_TOPIC_XXXX"}, b"", False),
    (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "alice-group", "topic": "orders"}, b"", True),
    (RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "foreign", "topic": "orders"}, b"", False),
    (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "foreign", "topic": "orders"}, b"", False),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "alice-group"}, b"", True),
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "foreign"}, b"", False),
    (RequestCode.GET_MAX_OFFSET, {"topic": "audit"}, b"", True),
    (RequestCode.GET_MAX_OFFSET, {"topic": "foreign"}, b"", False),
    (RequestCode.HEART_BEAT, {}, heartbeat("alice-group", "orders", "%RETRY%alice-group"), True),
    (RequestCode.HEART_BEAT, {}, heartbeat("alice-group", "audit"), False),
    (RequestCode.HEART_BEAT, {}, heartbeat("foreign", "orders"), False),
    (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "p"}, b"", True),
    (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "foreign"}, b"", False),
    (RequestCode.LOCK_BATCH_MQ, {}, locks("alice-group", "orders"), True),
    (RequestCode.LOCK_BATCH_MQ, {}, locks("foreign", "orders"), False),
    (RequestCode.LOCK_BATCH_MQ, {}, locks("alice-group", "foreign"), False),
    (RequestCode.UNLOCK_BATCH_MQ, {}, locks("foreign", "orders"), False),
    (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}, b"", True),
    (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "foreign"}, b"", False),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "alice-group"}, b"", True),
    (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "alice-group", "topic": "foreign"}, b"", False),
    (RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "foreign", "offset": "0", "delayLevel": "0"}, b"", False),
]


@pytest.mark.parametrize(("code", "fields", "body", "allowed"), CASES)
def test_each_request_needs_its_permission(
    acl_broker: BrokerUnderTest, code: int, fields: dict[str, str], body: bytes, allowed: bool
) -> None:
    refused = code_of(acl_broker, code, fields, body=body) == ResponseCode.NO_PERMISSION
    assert refused is not allowed


@pytest.mark.parametrize(("code", "fields", "body", "allowed"), CASES)
def test_an_admin_account_needs_no_permission(
    acl_broker: BrokerUnderTest, code: int, fields: dict[str, str], body: bytes, allowed: bool
) -> None:
    remark = remark_of(acl_broker, code, fields, body=body, signed_as=ADMIN) or ""
    assert "permission for" not in remark


@pytest.mark.parametrize("code", sorted([9999, *(code for code, needs in NEEDS.items() if needs is Level.ADMIN)]))
def test_a_code_of_administration_or_of_no_one_needs_an_admin_account(acl_broker: BrokerUnderTest, code: int) -> None:
    assert "needs an admin account" in remark_of(acl_broker, code)


def test_reading_someone_elses_statistics_by_a_list_of_topics_is_refused(acl_broker: BrokerUnderTest) -> None:
    fields = {"consumerGroup": "alice-group", "topicList": "orders;foreign"}
    assert code_of(acl_broker, RequestCode.GET_CONSUME_STATS, fields) == ResponseCode.NO_PERMISSION


def test_a_missing_and_a_forbidden_topic_get_the_same_answer(acl_broker: BrokerUnderTest) -> None:
    acl_broker.create_topic("foreign")
    remarks = {
        remark_of(acl_broker, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).replace(topic, "X")
        for topic in ("foreign", "missing")
    }
    assert len(remarks) == 1


def test_a_foreign_message_looks_as_if_it_were_not_there(acl_broker: BrokerUnderTest) -> None:
    acl_broker.create_topic("foreign")
    foreign = acl_broker.store_message("foreign").physical_offset

    def view(offset: int) -> tuple[int, str, bytes]:
        reply = acl_broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=offset), signed_as=ALICE)
        return reply.code, (reply.remark or "").replace(str(offset), "N"), bytes(reply.body)

    assert view(foreign) == view(10**9)


def test_an_own_message_is_viewed(acl_broker: BrokerUnderTest) -> None:
    acl_broker.create_topic("orders")
    header = ViewMessageRequestHeader(offset=acl_broker.store_message("orders").physical_offset)
    assert acl_broker.ask(RequestCode.VIEW_MESSAGE_BY_ID, header, signed_as=ALICE).code == ResponseCode.SUCCESS


def test_a_foreign_message_cannot_be_fetched_by_sending_it_back(acl_broker: BrokerUnderTest) -> None:
    acl_broker.create_topic("foreign")
    offset = acl_broker.store_message("foreign", b"secret").physical_offset
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="alice-group", delay_level=1)
    assert acl_broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, signed_as=ALICE).code != ResponseCode.SUCCESS
    assert acl_broker.store.max_offset(RMQ_SYS_SCHEDULE_TOPIC, 0) == 0


def test_an_own_message_is_sent_back(acl_broker: BrokerUnderTest) -> None:
    acl_broker.create_topic("orders")
    offset = acl_broker.store_message("orders").physical_offset
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="alice-group", delay_level=1)
    assert acl_broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header, signed_as=ALICE).code == ResponseCode.SUCCESS


def test_default_permissions_hold_for_what_is_not_named_but_not_for_the_brokers_own_topics(
    make_acl_broker: MakeAclBroker,
) -> None:
    broker = make_acl_broker(
        ACCOUNTS.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB|SUB").replace(
            "defaultGroupPerm: DENY", "defaultGroupPerm: SUB"
        )
    )

    def may_pull(topic: str, group: str = "any-group") -> bool:
        fields = {"consumerGroup": group, "topic": topic}
        return code_of(broker, RequestCode.PULL_MESSAGE, fields) != ResponseCode.NO_PERMISSION

    assert may_pull("anything")
    assert not may_pull("closed")
    assert not may_pull("anything", "idle")
    assert not may_pull("SCHEDULE_TOPIC_XXXX")
    assert not may_pull("RMQ_SYS_TRANS_HALF_TOPIC")


@pytest.mark.parametrize("prefixes", ["%RETRY%%DLQ%", "%DLQ%%DLQ%"])
def test_a_group_named_like_dead_letters_is_not_the_group_whose_they_would_be(
    make_acl_broker: MakeAclBroker, prefixes: str
) -> None:
    broker = make_acl_broker(ACCOUNTS.replace("- alice-group=SUB", "- x=SUB"))
    broker.create_topic(f"{prefixes}x", queues=1)
    fields = {"topic": f"{prefixes}x", "queueId": "0"}
    assert code_of(broker, RequestCode.GET_MAX_OFFSET, fields) == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("topic", ["RMQ_SYS_PROBE", "rmq_sys_anything"])
def test_no_key_may_send_to_the_brokers_own_topics_though_it_names_them(
    make_acl_broker: MakeAclBroker, topic: str
) -> None:
    text = ACCOUNTS.replace("- orders=PUB|SUB", f"- {topic}=PUB|SUB")
    broker = make_acl_broker(text, autoCreateTopicEnable="true")
    assert "permission" in remark_of(broker, RequestCode.SEND_MESSAGE_V2, {**SEND_FIELDS, "b": topic, "i": ""})
    pull = {"consumerGroup": "alice-group", "topic": topic}
    assert code_of(broker, RequestCode.PULL_MESSAGE, pull) != ResponseCode.NO_PERMISSION


# --- the file ---


def test_a_missing_file_refuses_to_start(make_broker: MakeBroker, tmp_path: Path) -> None:
    with pytest.raises(UnreadableConfigFile, match="does not exist"):
        make_broker(aclEnable="true", aclConfigFile=str(tmp_path / "none.yml"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("accounts: [", "not YAML"),
        ("- a", "must hold a map"),
        ("accounts: {}", None),
        ("accounts: text", "must be a list"),
        ("accounts: [{accessKey: short, secretKey: long-enough}]", "at least 7 characters"),
        ("accounts: [{accessKey: long-enough, secretKey: short}]", "at least 7 characters"),
        ("accounts: [{accessKey: long-enough}]", "secretKey"),
        ("accounts: [{accessKey: long-enough, secretKey: 12345678, admin: maybe}]", "true or false"),
        ("accounts: [{accessKey: long-enough, secretKey: 12345678, defaultTopicPerm: ALL}]", "DENY, PUB, SUB"),
        ("accounts: [{accessKey: long-enough, secretKey: 12345678, topicPerms: [orders]}]", "name=PUB"),
        ("accounts: [{accessKey: long-enough, secretKey: 12345678, topicPerms: [../x=PUB]}]", "illegal characters"),
        ("accounts: [{accessKey: a-a-a-a, secretKey: 12345678}, {accessKey: a-a-a-a, secretKey: 12345678}]", "twice"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(text: str, reason: str | None) -> None:
    if reason is None:
        assert acl_file.parse(text.encode()).accounts == {}
        return
    with pytest.raises(AclFileError, match=reason):
        acl_file.parse(text.encode())


def test_a_secret_is_never_in_an_error_or_a_representation() -> None:
    file = acl_file.parse(ACCOUNTS.encode())
    assert "alice-secret" not in repr(file)
    with pytest.raises(AclFileError) as caught:
        acl_file.parse(b"accounts: [{accessKey: long-enough, secretKey: hunter2-hunter2, admin: x}]")
    assert "hunter2" not in str(caught.value)


def test_numbers_in_the_file_are_texts() -> None:
    account = acl_file.parse(b"accounts: [{accessKey: 12345678, secretKey: 87654321}]").accounts["12345678"]
    assert account.secret_key == "87654321"


def test_what_is_written_is_read_again() -> None:
    file = acl_file.parse(ACCOUNTS.encode())
    again = acl_file.parse(acl_file.dump(file))
    assert again.accounts == file.accounts
    assert again.global_white_remote_addresses == ("127.0.0.1", "10.*.*.*")


def test_permissions_are_written_in_rocketmqs_words() -> None:
    assert [str(Permission(number)) for number in range(4)] == ["DENY", "PUB", "SUB", "PUB|SUB"]


def test_a_changed_file_is_taken_over_while_the_broker_runs(acl_broker: BrokerUnderTest) -> None:
    accounts_file(acl_broker).write_text(ACCOUNTS.replace("alice-secret", "alice-new-secret"))
    assert acl_broker.access_control.reload_if_changed()
    fields = {"topic": "orders", "queueId": "0"}
    new = SessionCredentials("alice-app", "alice-new-secret")
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, fields) == ResponseCode.NO_PERMISSION
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, fields, signed_as=new) == ResponseCode.SUCCESS


def test_a_changed_file_that_is_bad_leaves_the_accounts_as_they_were(acl_broker: BrokerUnderTest) -> None:
    accounts_file(acl_broker).write_text("accounts: [")
    assert not acl_broker.access_control.reload_if_changed()
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}) == ResponseCode.SUCCESS


def test_a_removed_file_leaves_the_accounts_as_they_were(acl_broker: BrokerUnderTest) -> None:
    os.unlink(accounts_file(acl_broker))
    assert not acl_broker.access_control.reload_if_changed()
    assert code_of(acl_broker, RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"}) == ResponseCode.SUCCESS


def test_an_unchanged_file_is_not_read_again(acl_broker: BrokerUnderTest) -> None:
    assert not acl_broker.access_control.reload_if_changed()


# --- trace records ---


def trace(kind: TraceKind, **members: str) -> TraceRecord:
    numbers = {"timestamp_ms": 1, "cost_ms": 1, "retried": 0, "body_size_bytes": 1, "message_type": 0, "code": 0}
    return TraceRecord(kind, "7F01", is_success=True, **numbers, **members)  # type: ignore[arg-type]  # all are numbers


@pytest.mark.parametrize(
    ("record", "allowed"),
    [
        (trace(TraceKind.PUB, topic="orders", group="p"), True),
        (trace(TraceKind.PUB, topic="news", group="p"), False),
        (trace(TraceKind.PUB, topic="foreign", group="p"), False),
        (trace(TraceKind.SUB_BEFORE, group="alice-group", request_id="R"), True),
        (trace(TraceKind.SUB_BEFORE, group="foreign", request_id="R"), False),
        (trace(TraceKind.SUB_AFTER, group="alice-group", request_id="R"), True),
        (trace(TraceKind.SUB_AFTER, group="idle", request_id="R"), False),
        (trace(TraceKind.SUB_BEFORE, request_id="R"), False),
        (trace(TraceKind.SUB_AFTER, request_id="R"), True),
    ],
)
def test_a_key_writes_trace_records_of_what_it_may_send_and_consume(
    make_acl_broker: MakeAclBroker, record: TraceRecord, allowed: bool
) -> None:
    broker = make_acl_broker(ACCOUNTS)
    broker.create_topic(RMQ_SYS_TRACE_TOPIC)
    fields = {**SEND_FIELDS, "b": RMQ_SYS_TRACE_TOPIC}
    code = code_of(broker, RequestCode.SEND_MESSAGE_V2, fields, body=write_traces([record]))
    assert code == (ResponseCode.SUCCESS if allowed else ResponseCode.NO_PERMISSION)


def test_one_foreign_record_among_its_own_refuses_them_all(make_acl_broker: MakeAclBroker) -> None:
    broker = make_acl_broker(ACCOUNTS)
    broker.create_topic(RMQ_SYS_TRACE_TOPIC)
    records = [trace(TraceKind.PUB, topic=topic, group="p") for topic in ("orders", "foreign")]
    text = write_traces(records)
    for body, flags in ((text, 0), compress(text)):
        fields = {**SEND_FIELDS, "b": RMQ_SYS_TRACE_TOPIC, "f": str(flags)}
        assert "'foreign'" in remark_of(broker, RequestCode.SEND_MESSAGE_V2, fields, body=body)


@pytest.mark.parametrize("body", [b"hello", b"Pub\x01x\x02"])
def test_what_is_no_trace_record_is_not_sent_to_the_trace_topic(make_acl_broker: MakeAclBroker, body: bytes) -> None:
    broker = make_acl_broker(ACCOUNTS)
    broker.create_topic(RMQ_SYS_TRACE_TOPIC)
    fields = {**SEND_FIELDS, "b": RMQ_SYS_TRACE_TOPIC}
    assert "this body is none" in remark_of(broker, RequestCode.SEND_MESSAGE_V2, fields, body=body)


def test_an_account_that_names_the_trace_topic_has_what_it_names(make_acl_broker: MakeAclBroker) -> None:
    foreign = write_traces([trace(TraceKind.PUB, topic="foreign", group="p")])
    fields = {**SEND_FIELDS, "b": RMQ_SYS_TRACE_TOPIC}
    for permission, code in (("PUB", ResponseCode.SUCCESS), ("DENY", ResponseCode.NO_PERMISSION)):
        named = ACCOUNTS.replace("- audit=PUB", f"- {RMQ_SYS_TRACE_TOPIC}={permission}")
        broker = make_acl_broker(named)
        broker.create_topic(RMQ_SYS_TRACE_TOPIC)
        assert code_of(broker, RequestCode.SEND_MESSAGE_V2, fields, body=foreign) == code


def test_a_key_that_receives_nowhere_ends_no_delivery_in_trace_records(make_acl_broker: MakeAclBroker) -> None:
    body = write_traces([trace(TraceKind.SUB_AFTER, request_id="R")])
    fields = {**SEND_FIELDS, "b": RMQ_SYS_TRACE_TOPIC}
    broker = make_acl_broker(ACCOUNTS.replace("alice-group=SUB", "alice-group=DENY"))
    broker.create_topic(RMQ_SYS_TRACE_TOPIC)
    assert "may receive in no group" in remark_of(broker, RequestCode.SEND_MESSAGE_V2, fields, body=body)


def test_who_may_write_trace_records_may_not_read_them(make_acl_broker: MakeAclBroker) -> None:
    broker = make_acl_broker(ACCOUNTS)
    broker.create_topic(RMQ_SYS_TRACE_TOPIC)
    fields = {"topic": RMQ_SYS_TRACE_TOPIC, "queueId": "0"}
    assert code_of(broker, RequestCode.GET_MAX_OFFSET, fields) == ResponseCode.NO_PERMISSION
