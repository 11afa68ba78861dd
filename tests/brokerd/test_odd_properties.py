"""Properties of a batch are bytes in its body, so a hostile client may send any: the group goes on."""

from __future__ import annotations

import pytest

from brokerd.store import BatchToStore
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.message import BatchItem, encode_batch_body, pack_host
from mqwire.names import RMQ_SYS_EPOCH, RMQ_SYS_METADATA
from tests.brokerd.broker_under_test import MakeBroker
from tests.brokerd.replicated_broker import in_sync_pair, settle

NO_TEXT = b"KEYS\x01\xff\x02"
FIELDS = {"a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000"}
FIELDS |= {"h": "0", "i": "", "j": "0", "k": "false", "m": "true"}


def batch(*properties: bytes) -> RemotingCommand:
    body = encode_batch_body([BatchItem(0, b"hello", each) for each in properties])
    return RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, ext_fields=FIELDS, body=body)


def test_a_batch_whose_properties_are_no_text_is_refused_with_the_message_that_has_them(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker()
    broker.create_topic("orders")
    answer = broker.answer(batch("KEYS\x01\u00e9\x02".encode(), NO_TEXT))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark == "the properties of message 1 of the batch are not UTF-8"
    assert broker.messages("orders") == []


def test_a_batch_with_text_of_any_script_is_stored(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.create_topic("orders")
    assert broker.answer(batch("KEYS\x01\u8ba2\u5355\x02".encode())).code == ResponseCode.SUCCESS
    assert [message.properties["KEYS"] for message in broker.messages("orders")] == ["\u8ba2\u5355"]


@pytest.mark.parametrize("named", [RMQ_SYS_METADATA, RMQ_SYS_EPOCH])
def test_followers_store_a_message_that_names_a_system_topic_and_has_properties_that_are_no_text(
    make_broker: MakeBroker, named: str
) -> None:
    leader, follower = in_sync_pair(make_broker)
    leader.create_topic("orders")
    born, body = pack_host("10.9.8.7", 1234), b"about " + named.encode()
    # As an older broker took it.
    poison = BatchToStore("orders", 0, 0, 1_700_000_000_000, born, 0, b"", [0], [body], [NO_TEXT], (0,))
    leader.broker.append_batch(poison, counted_for="")
    leader.store_message("orders")
    settle(leader, follower)
    assert follower.store.end_offset == leader.store.end_offset
    assert leader.broker.replica.confirm_offset == leader.store.end_offset
    assert len(follower.messages("orders")) == 2
