"""Quotas of a broker: what one credential and one topic may take of it, and what whoever is over one is told."""

from __future__ import annotations

import json

import pytest

from brokerd.quotas import Bucket
from mqwire.acl import SessionCredentials, sign_request
from mqwire.bodies import KVTable
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_pull import PullMessageRequestHeader, QueryMessageRequestHeader, ViewMessageRequestHeader
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, RecordingPeer
from tests.security.accounts import PLATFORM, PROGRAM, TENANT_ADMIN, ask
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


def pull(broker: BrokerUnderTest, offset: int = 0, *, suspend: bool = False) -> RemotingCommand | None:
    header = PullMessageRequestHeader(
        consumer_group="readers", topic="orders", queue_id=0, queue_offset=offset, max_msg_nums=32,
        sys_flag=4 | (2 if suspend else 0), commit_offset=0, suspend_timeout_millis=15_000, subscription="*", sub_version=0,
    )  # fmt: skip
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    sign_request(request, PROGRAM)
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


def test_a_topic_that_stores_too_much_takes_no_more_sends_and_others_do(broker: BrokerUnderTest) -> None:
    send(broker)
    for _ in broker.broker.metering.stored_bytes.update():
        pass
    broker.config.quota_topic_stored_bytes = 1
    assert refused_by(send(broker)) == "quotaTopicStoredBytes"
    assert send(broker, topic="bills").code == ResponseCode.SUCCESS


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
