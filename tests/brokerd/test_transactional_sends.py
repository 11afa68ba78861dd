"""Transactions are not served yet: a transactional message is refused in whatever way it says what it is, and nothing is stored."""

from __future__ import annotations

from typing import Any

import pytest

from mqwire.codes import MessageSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_send import SendMessageRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest

CODES = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2]


@pytest.fixture
def topic_broker(broker: BrokerUnderTest) -> BrokerUnderTest:
    broker.create_topic("orders")
    return broker


def send(broker: BrokerUnderTest, code: int, *, sys_flag: int = 0, properties: str = "") -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="p", topic="orders", default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=sys_flag, born_timestamp=1, flag=0, properties=properties,
    )  # fmt: skip
    return broker.ask(code, header if code == RequestCode.SEND_MESSAGE else header.to_v2(), body=b"half")


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "sent",
    [
        {"properties": "TRAN_MSG\x01true\x02PGROUP\x01p\x02"},
        {"sys_flag": MessageSysFlag.TRANSACTION_PREPARED_TYPE, "properties": "TRAN_MSG\x01true\x02"},
        {"sys_flag": MessageSysFlag.TRANSACTION_PREPARED_TYPE},
        {"sys_flag": MessageSysFlag.TRANSACTION_COMMIT_TYPE},
        {"sys_flag": MessageSysFlag.TRANSACTION_ROLLBACK_TYPE | MessageSysFlag.COMPRESSED},
    ],
    ids=["property", "both", "flag alone", "commit", "rollback"],
)
def test_a_transactional_message_is_refused_with_a_way_out(
    topic_broker: BrokerUnderTest, code: int, sent: dict[str, Any]
) -> None:
    end = topic_broker.store.end_offset
    reply = send(topic_broker, code, **sent)
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "does not serve transactions yet; nothing was stored" in (reply.remark or "")
    assert "Send an ordinary message" in (reply.remark or "")
    assert topic_broker.store.end_offset == end


@pytest.mark.parametrize("code", CODES)
def test_a_message_that_says_that_it_is_no_transactional_one_is_stored(
    topic_broker: BrokerUnderTest, code: int
) -> None:
    assert send(topic_broker, code, properties="TRAN_MSG\x01false\x02").code == ResponseCode.SUCCESS
    assert [message.body for message in topic_broker.messages("orders")] == [b"half"]
