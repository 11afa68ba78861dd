"""Answers to sends are written straight as bytes; any client must read in them what it reads elsewhere."""

import pytest

from brokerd.processors.send_reply import SendReplyEncoder
from brokerd.store import AppendResult, BatchResult
from mqwire.codes import SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.message import offset_message_id, pack_host

IPV4 = pack_host("127.0.0.1", 10911)
IPV6 = pack_host("::1", 10911)
UNIQUE_KEY = b"7F0000010A2B18B4AAC2" + b"0" * 12


def decoded(frame: bytes) -> RemotingCommand:
    connection = Connection()
    connection.receive_data(frame)
    (reply,) = connection.commands()
    return reply


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("host", [IPV4, IPV6])
@pytest.mark.parametrize("queue_offset", [0, 9, 10, 12345678901])
@pytest.mark.parametrize("unique_key", [UNIQUE_KEY, b"short", b"", b'with " and \\', "日本".encode()])
def test_an_answer_says_where_the_message_is(
    serialize_type: int, host: bytes, queue_offset: int, unique_key: bytes
) -> None:
    encoder = SendReplyEncoder(host, "DefaultRegion")
    request = RemotingCommand(310, opaque=77, serialize_type=serialize_type)
    for _ in range(2):  # the second time from what the first one prepared
        reply = decoded(encoder.encode(request, 3, AppendResult(4096, 100, queue_offset, 1), unique_key))
        assert (reply.code, reply.opaque, reply.is_response, reply.serialize_type) == (0, 77, True, serialize_type)
        assert reply.ext_fields == {
            "msgId": offset_message_id(host, 4096),
            "queueId": "3",
            "queueOffset": str(queue_offset),
            "transactionId": unique_key.decode(),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("host", [IPV4, IPV6])
@pytest.mark.parametrize("offsets", [(7,), (0, 100, 2**40)])
def test_a_batch_is_answered_with_the_ids_of_all_its_messages(
    serialize_type: int, host: bytes, offsets: tuple[int, ...]
) -> None:
    request = RemotingCommand(320, opaque=1, serialize_type=serialize_type)
    fields = decoded(SendReplyEncoder(host).encode_batch(request, 3, BatchResult(offsets, 5, 2**41, 1))).ext_fields
    assert fields["msgId"] == ",".join(offset_message_id(host, offset) for offset in offsets)
    assert (fields["queueId"], fields["queueOffset"], fields["transactionId"]) == ("3", "5", "")


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("unique_key", [UNIQUE_KEY, b"short"])
def test_with_trace_on_false_clients_are_asked_not_to_trace(serialize_type: int, unique_key: bytes) -> None:
    encoder = SendReplyEncoder(IPV4, trace_on=False)
    request = RemotingCommand(310, opaque=1, serialize_type=serialize_type)
    reply = decoded(encoder.encode(request, 3, AppendResult(4096, 100, 5, 1), unique_key))
    assert reply.ext_fields["TRACE_ON"] == "false"


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_negative_opaques_come_back(serialize_type: int) -> None:
    request = RemotingCommand(310, opaque=-5, serialize_type=serialize_type)
    assert decoded(SendReplyEncoder(IPV4).encode(request, 0, AppendResult(0, 1, 0, 1), UNIQUE_KEY)).opaque == -5
