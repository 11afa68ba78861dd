"""GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY: asked of the broker, answered by a member of the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from brokerd import client_calls
from brokerd.client_calls import (
    CALL_TIMEOUT_S,
    CALLS_MAX,
    CALLS_PER_CLIENT_MAX,
    GATHERED_BYTES_MAX,
    UNREAD_MAX_BYTES,
)
from mqwire.acl import SessionCredentials
from mqwire.bodies import GetConsumerStatusBody, MessageQueue
from mqwire.bodies.base import CLIENT_PARTS_MAX
from mqwire.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.message import decode_record, encode_record, offset_message_id, pack_host
from tests.brokerd.acl_accounts import ADMIN, ALICE
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.brokerd.test_client_manage import heartbeat

INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY
GROUP = "alice-group"
HOST = pack_host("127.0.0.1", 10911)


def join(
    broker: BrokerUnderTest,
    *,
    client_id: str = "c@1",
    peer: RecordingPeer | None = None,
    version: int = 479,
    **keywords: Any,
) -> RecordingPeer:
    """A member of the group, which has received all there is so far."""
    if broker.broker.subscription_groups.select(GROUP) is None:
        broker.create_group(GROUP)
    peer = peer or RecordingPeer()
    request = RemotingCommand.request(RequestCode.HEART_BEAT, body=heartbeat(client_id, GROUP))
    request.version = version
    if keywords:
        broker.request(RequestCode.HEART_BEAT, body=heartbeat(client_id, GROUP), peer=peer, **keywords)
    else:
        broker.dispatch(peer, [request])
    peer.take()
    return peer


def ask(
    broker: BrokerUnderTest, code: int = INFO, *, peer: RecordingPeer | None = None, **fields: str
) -> list[RemotingCommand]:
    """What is answered at once."""
    fields = {"consumerGroup": GROUP, "clientId": "c@1", **fields}
    return broker.request(code, ext_fields=fields, peer=peer)


def respond(
    broker: BrokerUnderTest, member: RecordingPeer, request: RemotingCommand, code: int = 0, **keywords: Any
) -> None:
    broker.dispatch(member, [request.reply(code, **keywords)])


@pytest.fixture
def admin() -> RecordingPeer:
    return RecordingPeer()


def test_a_member_is_sent_the_request(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    assert ask(broker, peer=admin, jstackEnable="true") == []
    (asked,) = member.take()
    assert (asked.code, asked.is_response, asked.is_oneway) == (INFO, False, False)
    assert asked.ext_fields == {"consumerGroup": GROUP, "clientId": "c@1", "jstackEnable": "true"}


def test_the_member_s_answer_is_that_of_the_request(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    ask(broker, peer=admin)
    respond(broker, member, member.take()[0], 1, remark="not me", body=b"{}")
    (answer,) = admin.take()
    assert (answer.is_response, answer.code, answer.remark, bytes(answer.body)) == (True, 1, "not me", b"{}")


def test_an_answer_has_the_opaque_of_its_own_request(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    requests = [
        RemotingCommand.request(INFO, ext_fields={"consumerGroup": GROUP, "clientId": "c@1"}) for _number in range(2)
    ]
    broker.dispatch(admin, requests)
    first, second = member.take()
    respond(broker, member, second, body=b"second")
    respond(broker, member, first, body=b"first")
    assert {answer.opaque: bytes(answer.body) for answer in admin.take()} == {
        requests[0].opaque: b"first",
        requests[1].opaque: b"second",
    }


def test_an_answer_is_written_in_the_requester_s_kind_of_header(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    fields = {"consumerGroup": GROUP, "clientId": "c@1"}
    broker.request(INFO, ext_fields=fields, peer=admin, serialize_type=SerializeType.ROCKETMQ)
    asked = member.take()[0]
    answer = asked.reply(body=b"{}")
    answer.language = LanguageCode.GO
    broker.dispatch(member, [answer])
    (relayed,) = admin.take()
    assert (relayed.serialize_type, relayed.language) == (SerializeType.ROCKETMQ, LanguageCode.GO)


def test_only_the_member_that_was_asked_can_answer(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member, other = join(broker), join(broker, client_id="c@2")
    ask(broker, peer=admin)
    respond(broker, other, member.take()[0], body=b"forged")
    assert admin.take() == []


def test_a_second_answer_goes_nowhere(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    ask(broker, peer=admin)
    (asked,) = member.take()
    respond(broker, member, asked)
    respond(broker, member, asked)
    assert len(admin.take()) == 1


def test_a_code_that_no_header_can_hold_is_an_error(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    ask(broker, peer=admin)
    respond(broker, member, member.take()[0], 70_000)
    assert admin.take()[0].code == ResponseCode.SYSTEM_ERROR


def test_an_answer_that_cannot_be_handed_on_ends_no_connection(
    broker: BrokerUnderTest, admin: RecordingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = join(broker)
    ask(broker, peer=admin)
    monkeypatch.setattr(admin, "send", Mock(side_effect=UnicodeEncodeError("utf-8", "\ud800", 0, 1, "half a pair")))
    respond(broker, member, member.take()[0])
    assert len(broker.broker.client_calls) == 0


@pytest.mark.parametrize(("group", "client_id"), [("none", "c@1"), (GROUP, "none")])
def test_a_client_that_is_not_in_the_group_is_not_online(broker: BrokerUnderTest, group: str, client_id: str) -> None:
    join(broker)
    (answer,) = ask(broker, consumerGroup=group, clientId=client_id)
    assert (answer.code, "not online" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


def test_a_client_whose_connection_has_ended_is_not_online(broker: BrokerUnderTest) -> None:
    join(broker).close()
    assert "not online" in str(ask(broker)[0].remark)


def test_a_client_that_reconnected_is_asked_over_its_open_connection(broker: BrokerUnderTest) -> None:
    member = join(broker)
    join(broker).close()
    ask(broker)
    assert [asked.code for asked in member.take() if not asked.is_oneway] == [INFO]


def test_a_client_before_3_1_8_is_not_asked(broker: BrokerUnderTest) -> None:
    member = join(broker, version=61)
    (answer,) = ask(broker)
    assert (answer.code, member.take()) == (ResponseCode.SYSTEM_ERROR, [])
    assert "Version <61> too low" in str(answer.remark)


def test_a_client_of_3_1_8_is_asked(broker: BrokerUnderTest) -> None:
    member = join(broker, version=62)
    ask(broker)
    assert len(member.take()) == 1


def test_no_answer_within_the_time_is_a_timeout(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    join(broker)
    ask(broker, peer=admin)
    broker.clock.advance(CALL_TIMEOUT_S)
    broker.broker.answer_expired()
    assert [answer.code for answer in admin.take()] == [ResponseCode.CONSUME_MSG_TIMEOUT]


def test_nothing_times_out_before(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    join(broker)
    ask(broker, peer=admin)
    broker.clock.advance(CALL_TIMEOUT_S - 0.1)
    broker.broker.answer_expired()
    assert admin.take() == []


def test_an_answer_after_the_timeout_goes_nowhere(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    ask(broker, peer=admin)
    broker.clock.advance(CALL_TIMEOUT_S)
    broker.broker.answer_expired()
    respond(broker, member, member.take()[0])
    assert [answer.code for answer in admin.take()] == [ResponseCode.CONSUME_MSG_TIMEOUT]


def test_a_connection_that_ends_answers_at_once(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    ask(broker, peer=admin)
    member.close()
    broker.broker.peer_closed(member)
    (answer,) = admin.take()
    assert (answer.code, "disconnected" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)


def test_a_requester_that_has_gone_leaves_nothing_behind(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    join(broker)
    ask(broker, peer=admin)
    admin.close()
    broker.broker.peer_closed(admin)
    assert len(broker.broker.client_calls) == 0


def test_a_client_is_asked_so_much_at_once_and_not_more(broker: BrokerUnderTest) -> None:
    member = join(broker)
    answers = [answer for _number in range(CALLS_PER_CLIENT_MAX + 1) for answer in ask(broker)]
    assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_BUSY]
    assert len(member.take()) == CALLS_PER_CLIENT_MAX


def test_an_answer_makes_room_for_another_request(broker: BrokerUnderTest) -> None:
    member = join(broker)
    for _number in range(CALLS_PER_CLIENT_MAX):
        ask(broker)
    respond(broker, member, member.take()[0])
    assert ask(broker) == []


def test_all_clients_together_have_a_bound(broker: BrokerUnderTest) -> None:
    clients = CALLS_MAX // CALLS_PER_CLIENT_MAX
    for number in range(clients + 1):
        join(broker, client_id=f"c@{number}")
    for number in range(clients):
        for _number in range(CALLS_PER_CLIENT_MAX):
            assert ask(broker, clientId=f"c@{number}") == []
    assert ask(broker, clientId=f"c@{clients}")[0].code == ResponseCode.SYSTEM_BUSY


def test_a_client_that_does_not_read_is_not_asked(broker: BrokerUnderTest) -> None:
    join(broker).pending_bytes = UNREAD_MAX_BYTES + 1
    assert ask(broker)[0].code == ResponseCode.SYSTEM_BUSY


def test_a_one_way_request_asks_no_one(broker: BrokerUnderTest) -> None:
    member = join(broker)
    broker.request(INFO, ext_fields={"consumerGroup": GROUP, "clientId": "c@1"}, oneway=True)
    assert member.take() == []


# --- CONSUME_MESSAGE_DIRECTLY


@pytest.fixture
def message_id(broker: BrokerUnderTest) -> str:
    return stored(broker, "orders")


def stored(broker: BrokerUnderTest, topic: str) -> str:
    broker.create_topic(topic)
    return offset_message_id(HOST, broker.store_message(topic, b"paid", properties={"KEYS": "k"}).physical_offset)


def test_the_message_is_in_the_request_s_body(broker: BrokerUnderTest, message_id: str) -> None:
    member = join(broker)
    ask(broker, DIRECTLY, msgId=message_id)
    message = decode_record(member.take()[0].body)
    assert (message.topic, message.body, message.offset_message_id) == ("orders", b"paid", message_id)


def test_the_request_names_the_broker_and_the_flags(broker: BrokerUnderTest, message_id: str) -> None:
    member = join(broker)
    ask(broker, DIRECTLY, msgId=message_id, topic="orders", brokerName="another")
    assert member.take()[0].ext_fields == {
        "consumerGroup": GROUP,
        "clientId": "c@1",
        "msgId": message_id,
        "brokerName": "broker-a",
        "topic": "orders",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda right: "", id="none"),
        pytest.param(lambda right: "order-4711", id="no message id"),
        pytest.param(lambda right: right[:-1] + "1", id="no message begins there"),
        pytest.param(lambda right: right[:16] + "F" * 16, id="a negative offset"),
        pytest.param(lambda right: offset_message_id(pack_host("10.0.0.9", 10911), 0), id="another broker's"),
    ],
)
def test_no_one_is_asked_about_a_message_that_is_not_there(
    broker: BrokerUnderTest, message_id: str, wrong: Callable[[str], str]
) -> None:
    member = join(broker)
    (answer,) = ask(broker, DIRECTLY, msgId=wrong(message_id))
    assert (answer.code, member.take()) == (ResponseCode.SYSTEM_ERROR, [])


def test_no_one_is_asked_about_a_record_that_lies_in_a_message_s_body(broker: BrokerUnderTest) -> None:
    member = join(broker)
    broker.create_topic("orders")
    at = broker.store.end_offset + 88  # which a record has in front of its body
    forged = encode_record(
        topic="orders", queue_id=0, queue_offset=0, physical_offset=at, body=b"forged", properties=b"",
        born_host=HOST, store_host=HOST, born_timestamp_ms=1, store_timestamp_ms=1,
    )  # fmt: skip
    broker.store_message("orders", forged)
    (answer,) = ask(broker, DIRECTLY, msgId=offset_message_id(HOST, at))
    assert (answer.code, member.take()) == (ResponseCode.SYSTEM_ERROR, [])


def test_a_message_beyond_the_quota_of_pulls_is_not_handed_out(broker: BrokerUnderTest, message_id: str) -> None:
    member = join(broker)
    broker.config.quota_topic_bytes_per_second = 1
    assert ask(broker, DIRECTLY, msgId=message_id) == []
    (answer,) = ask(broker, DIRECTLY, msgId=message_id)
    assert (answer.code, len(member.take())) == (ResponseCode.SYSTEM_BUSY, 1)


# --- who may


def signed_ask(
    broker: BrokerUnderTest, credentials: SessionCredentials, code: int = INFO, **fields: str
) -> list[RemotingCommand]:
    fields = {"consumerGroup": GROUP, "clientId": "c@1", **fields}
    return broker.request(code, ext_fields=fields, signed_as=credentials)


@pytest.mark.parametrize("credentials", [ADMIN, ALICE])
def test_an_administrator_and_a_key_of_the_group_may_ask(
    acl_broker: BrokerUnderTest, credentials: SessionCredentials
) -> None:
    member = join(acl_broker, signed_as=ALICE)
    signed_ask(acl_broker, credentials)
    assert [asked.code for asked in member.take()] == [INFO]


@pytest.mark.parametrize("code", [INFO, DIRECTLY])
@pytest.mark.parametrize("group", ["foreign", "idle", ""])
def test_a_key_without_the_group_may_not(acl_broker: BrokerUnderTest, code: int, group: str) -> None:
    (answer,) = signed_ask(acl_broker, ALICE, code, consumerGroup=group, msgId="0" * 32)
    assert answer.code == ResponseCode.NO_PERMISSION


def test_a_member_never_sees_the_requester_s_key_and_signature(acl_broker: BrokerUnderTest) -> None:
    member = join(acl_broker, signed_as=ALICE)
    signed_ask(acl_broker, ADMIN, DIRECTLY, msgId=stored(acl_broker, "orders"))
    assert not {"AccessKey", "Signature"} & set(member.take()[0].ext_fields)


def test_a_key_of_the_group_hands_its_members_no_one_else_s_messages(acl_broker: BrokerUnderTest) -> None:
    member = join(acl_broker, signed_as=ALICE)
    (answer,) = signed_ask(acl_broker, ALICE, DIRECTLY, msgId=stored(acl_broker, "audit"))
    assert (answer.code, member.take()) == (ResponseCode.SYSTEM_ERROR, [])


def test_a_foreign_message_looks_as_if_it_were_not_there(acl_broker: BrokerUnderTest) -> None:
    join(acl_broker, signed_as=ALICE)
    foreign = stored(acl_broker, "audit")
    missing = foreign[:-4] + "FFFF"
    remarks = [
        str(signed_ask(acl_broker, ALICE, DIRECTLY, msgId=message_id)[0].remark).replace(message_id, "X")
        for message_id in (foreign, missing)
    ]
    assert remarks[0] == remarks[1]


STATUS = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
QUEUE = MessageQueue(topic="t", broker_name="broker-a", queue_id=1)


def ask_status(broker: BrokerUnderTest, peer: RecordingPeer, **fields: str) -> list[RemotingCommand]:
    return broker.request(STATUS, ext_fields={"topic": "t", "group": GROUP, **fields}, peer=peer)


def status_at(offset: int) -> bytes:
    return GetConsumerStatusBody(message_queue_table={QUEUE: offset}).to_json()


def asked_where(member: RecordingPeer) -> RemotingCommand:
    """What it was asked; it is also notified of those who join and leave."""
    (asked,) = [one for one in member.take() if one.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT]
    return asked


def statuses(answer: RemotingCommand) -> dict[str, dict[MessageQueue, int]]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return GetConsumerStatusBody.from_json(bytes(answer.body)).consumer_table


def test_each_member_is_asked_where_it_is_and_the_answers_are_one(
    broker: BrokerUnderTest, admin: RecordingPeer
) -> None:
    first, second = join(broker), join(broker, client_id="c@2")
    assert ask_status(broker, admin) == []
    asked = asked_where(first)
    assert asked.ext_fields == {"topic": "t", "group": GROUP}
    respond(broker, first, asked, body=status_at(7))
    assert admin.take() == []
    respond(broker, second, asked_where(second), body=status_at(9))
    assert statuses(admin.take()[0]) == {"c@1": {QUEUE: 7}, "c@2": {QUEUE: 9}}


def test_one_member_alone_is_asked_where_it_is_when_it_is_named(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    first, second = join(broker), join(broker, client_id="c@2")
    ask_status(broker, admin, clientAddr="c@2")
    assert RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT not in [one.code for one in first.take()]
    respond(broker, second, asked_where(second), body=status_at(9))
    assert statuses(admin.take()[0]) == {"c@2": {QUEUE: 9}}


def test_who_leaves_or_talks_nonsense_is_left_out_of_the_statuses(
    broker: BrokerUnderTest, admin: RecordingPeer
) -> None:
    members = [join(broker, client_id=f"c@{number}") for number in range(4)]
    ask_status(broker, admin)
    members[0].close()
    broker.broker.peer_closed(members[0])
    respond(broker, members[1], asked_where(members[1]), 1, remark="no")
    respond(broker, members[2], asked_where(members[2]), body=b"[")
    respond(broker, members[3], asked_where(members[3]), body=status_at(3))
    assert statuses(admin.take()[0]) == {"c@3": {QUEUE: 3}}


def test_members_that_never_say_where_they_are_end_the_wait(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    join(broker)
    ask_status(broker, admin)
    broker.clock.advance(CALL_TIMEOUT_S)
    broker.broker.answer_expired()
    assert statuses(admin.take()[0]) == {}


def test_the_statuses_of_all_members_have_a_bound(
    broker: BrokerUnderTest, admin: RecordingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [join(broker, client_id=f"c@{number}") for number in range(3)]
    other = RecordingPeer()
    ask_status(broker, other)
    respond(broker, members[0], asked_where(members[0]), body=status_at(1).ljust(1000))
    ask_status(broker, admin)
    asked = [asked_where(members[0]), *(member.take()[-1] for member in members[1:])]
    respond(broker, members[0], asked[0], body=status_at(3).ljust(GATHERED_BYTES_MAX - 1000))
    respond(broker, members[1], asked[1], body=status_at(5).ljust(1001))
    monkeypatch.setattr(client_calls, "GATHERED_BYTES_OF_ALL_MAX", GATHERED_BYTES_MAX + 1)
    respond(broker, members[2], asked[2], body=status_at(7).ljust(2))
    assert statuses(admin.take()[0]) == {"c@0": {QUEUE: 3}}


def test_a_status_that_would_hold_up_everyone_is_left_out(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    member = join(broker)
    ask_status(broker, admin)
    body = b'{"messageQueueTable":{},x:[' + b"1," * CLIENT_PARTS_MAX + b"]}"
    respond(broker, member, asked_where(member), body=body)
    assert statuses(admin.take()[0]) == {}


def test_statuses_are_read_as_they_come_not_all_in_one_turn(
    broker: BrokerUnderTest, admin: RecordingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Mock(wraps=GetConsumerStatusBody.from_client)
    monkeypatch.setattr(GetConsumerStatusBody, "from_client", read)
    members = [join(broker, client_id=f"c@{number}") for number in range(3)]
    ask_status(broker, admin)
    for number, member in enumerate(members):
        respond(broker, member, asked_where(member), body=status_at(number))
        assert read.call_count == number + 1
    assert statuses(admin.take()[0]) == {f"c@{number}": {QUEUE: number} for number in range(3)}


def test_a_member_of_a_topic_of_thousands_of_queues_says_where_it_is(
    broker: BrokerUnderTest, admin: RecordingPeer
) -> None:
    member = join(broker)
    ask_status(broker, admin)
    where = {MessageQueue(topic="t" * 100, broker_name="broker-a", queue_id=number): 10**12 for number in range(2048)}
    body = GetConsumerStatusBody(message_queue_table=where).to_json()
    respond(broker, member, asked_where(member), body=body)
    assert statuses(admin.take()[0]) == {"c@1": where}


def test_no_more_members_are_asked_where_they_are_than_all_clients_together_may_be(
    broker: BrokerUnderTest, admin: RecordingPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [join(broker, client_id=f"c@{number}") for number in range(3)]
    for member in members:
        member.take()
    monkeypatch.setattr(client_calls, "CALLS_MAX", 2)
    ask_status(broker, admin)
    assert [len(member.take()) for member in members] == [1, 1, 0]


def test_a_group_without_members_has_no_status(broker: BrokerUnderTest, admin: RecordingPeer) -> None:
    (answer,) = ask_status(broker, admin)
    assert (answer.code, "No Any Consumer online" in str(answer.remark)) == (ResponseCode.SYSTEM_ERROR, True)
