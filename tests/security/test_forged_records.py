"""A program that knows where the log ends puts whole records, of topics that are not its own, into the bodies of its messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.headers_pull import ViewMessageRequestHeader
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from mqwire.message import encode_record, pack_host
from tests.brokerd.acl_accounts import SEND_FIELDS, MakeAclBroker
from tests.brokerd.broker_under_test import BrokerUnderTest
from tests.security.accounts import ACCOUNTS, PROGRAM, ask

HOST = pack_host("127.0.0.1", 10911)
HEAD_BYTES = 88  # of a record, in front of its body


def send(broker: BrokerUnderTest, topic: str, body: bytes) -> int:
    """Where the log has it, as the message's id tells the program."""
    reply = ask(broker, RequestCode.SEND_MESSAGE_V2, PROGRAM, fields={**SEND_FIELDS, "b": topic}, body=body)
    assert reply.code == 0, reply.remark
    return int((reply.ext_fields or {})["msgId"][16:], 16)


def send_forged(broker: BrokerUnderTest, more: bytes = b"") -> int:
    """A message whose body begins with a record of another topic; returns where that record lies."""
    probe = send(broker, "mine", b"probe")
    place = broker.store.end_offset + HEAD_BYTES
    forged = encode_record(
        topic="orders", queue_id=0, queue_offset=0, physical_offset=place, body=b"forged", properties=b"",
        born_host=HOST, store_host=HOST, born_timestamp_ms=1, store_timestamp_ms=1_700_000_000_000,
    )  # fmt: skip
    at = send(broker, "mine", forged + more)
    assert probe < at == place - HEAD_BYTES
    return place


def view(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    return ask(broker, RequestCode.VIEW_MESSAGE_BY_ID, PROGRAM, header=ViewMessageRequestHeader(offset=offset))


def send_back(broker: BrokerUnderTest, offset: int) -> RemotingCommand:
    broker.create_group("readers")
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="readers", delay_level=1)
    return ask(broker, RequestCode.CONSUMER_SEND_MSG_BACK, PROGRAM, header=header)


@pytest.fixture
def broker(platform_broker: BrokerUnderTest) -> BrokerUnderTest:
    for topic in ("orders", "mine"):
        platform_broker.create_topic(topic)
    return platform_broker


@pytest.mark.parametrize("look", [view, send_back])
def test_a_record_within_a_body_is_no_message(
    broker: BrokerUnderTest, look: Callable[[BrokerUnderTest, int], RemotingCommand]
) -> None:
    at = send_forged(broker)
    found, missing = look(broker, at), look(broker, 10**9)
    assert found.code == missing.code != 0
    assert str(found.remark).replace(str(at), "N") == str(missing.remark).replace(str(10**9), "N")


def test_a_broker_that_is_killed_while_it_writes_it_starts_and_takes_messages(make_acl_broker: MakeAclBroker) -> None:
    broker = make_acl_broker(ACCOUNTS, mappedFileSizeCommitLog=str(1024 * 1024))
    broker.create_topic("mine")
    place = send_forged(broker, b"." * 100_000)
    broker.kill()
    (path,) = (broker.folder / "store" / "commitlog").iterdir()
    written = path.read_bytes()
    torn = place - place % 4096 + 8 * 4096
    path.write_bytes(written[:torn] + bytes(len(written) - torn))
    broker.start()
    assert [one.body for one in broker.messages("mine")] == [b"probe"]
    send(broker, "mine", b"after the start")
