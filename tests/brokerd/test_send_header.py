"""Send headers mean the same in whichever form they come."""

import json

import pytest

from brokerd.processors.send_header import SendHeader, SendHeaderReader, SendOrigin
from mqwire.codes import RequestCode, SerializeType
from mqwire.command import RemotingCommand, encode_ext_fields
from mqwire.connection import Connection
from mqwire.errors import RemoteProtocolError

V2 = {
    "a": "group",
    "b": "topic",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "1",
    "g": "1700000000000",
    "h": "7",
    "i": "KEYS\x01k日\x02TAGS\x01t\x02",
    "j": "2",
    "k": "false",
    "l": "16",
    "m": "false",
}
V1_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
}
EXPECTED = SendHeader(
    SendOrigin("group", "topic", "TBW102", 4, 1, 7, 2, 16, False),
    3,
    1700000000000,
    "KEYS\x01k日\x02TAGS\x01t\x02".encode(),
)


def received(code: int, fields: dict[str, str], serialize_type: int) -> RemotingCommand:
    connection = Connection()
    connection.receive_data(RemotingCommand.request(code, ext_fields=fields, serialize_type=serialize_type).encode())
    (command,) = connection.commands()
    return command


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
def test_both_forms_in_both_kinds_of_frames_read_the_same(code: int, serialize_type: int) -> None:
    fields = {V1_NAMES[letter]: value for letter, value in V2.items()} if code == RequestCode.SEND_MESSAGE else V2
    reader = SendHeaderReader()
    assert [reader.read(received(code, fields, serialize_type)) for _ in range(3)] == [EXPECTED] * 3


def test_a_known_layout_does_not_mix_up_two_topics_of_equally_long_names() -> None:
    reader = SendHeaderReader()
    topics = ["aaaaa", "bbbbb", "aaaaa", "bbbbb"]
    commands = [received(RequestCode.SEND_MESSAGE_V2, {**V2, "b": topic}, SerializeType.ROCKETMQ) for topic in topics]
    assert [reader.read(command).origin.topic for command in commands] == topics


def test_a_known_layout_does_not_mix_up_constants_after_the_values() -> None:
    reader = SendHeaderReader()
    times = ["1", "2", "1"]
    commands = [received(RequestCode.SEND_MESSAGE_V2, {**V2, "j": value}, SerializeType.ROCKETMQ) for value in times]
    assert [reader.read(command).origin.reconsume_times for command in commands] == [1, 2, 1]


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("letter", ["a", "b", "e"])
def test_a_missing_field_is_named(letter: str, serialize_type: int) -> None:
    fields = {name: value for name, value in V2.items() if name != letter}
    with pytest.raises(RemoteProtocolError, match=V1_NAMES[letter]):
        SendHeaderReader().read(received(RequestCode.SEND_MESSAGE_V2, fields, serialize_type))


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_number_that_is_none_is_refused_even_in_a_known_layout(serialize_type: int) -> None:
    reader = SendHeaderReader()
    reader.read(received(RequestCode.SEND_MESSAGE_V2, V2, serialize_type))
    with pytest.raises(RemoteProtocolError):
        reader.read(received(RequestCode.SEND_MESSAGE_V2, {**V2, "e": "x"}, serialize_type))


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_send_without_properties_is_read(serialize_type: int) -> None:
    fields = {name: value for name, value in V2.items() if name != "i"}
    assert SendHeaderReader().read(received(RequestCode.SEND_MESSAGE_V2, fields, serialize_type)).properties == b""


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_any_field_may_differ_from_the_send_before(code: int, serialize_type: int) -> None:
    usual = {letter: value for letter, value in V2.items() if letter != "l"}
    others = {
        "a": "g2",
        "b": "t2",
        "c": "",
        "d": "8",
        "e": "-1",
        "f": "0",
        "g": "1",
        "h": "0",
        "i": "",
        "j": "0",
        "m": "true",
    }
    sends = [usual]
    for letter, value in others.items():
        without = {other: value for other, value in usual.items() if other != letter}
        sends += [{**usual, letter: value}, usual, {**usual, "l": "3"}] + [without] * (letter not in "abe")
    reader = SendHeaderReader()
    for send in sends * 2:
        fields = (
            {V1_NAMES[letter]: value for letter, value in send.items()} if code == RequestCode.SEND_MESSAGE else send
        )
        assert reader.read(received(code, fields, serialize_type)) == SendHeader(
            SendOrigin(
                send["a"],
                send["b"],
                send.get("c", ""),
                int(send.get("d", 0)),
                int(send.get("f", 0)),
                int(send.get("h", 0)),
                int(send.get("j", 0)),
                int(send["l"]) if "l" in send else None,
                send.get("m") == "true",
            ),
            int(send["e"]),
            int(send.get("g", 0)),
            send.get("i", "").encode(),
        )


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_header_with_a_long_name_is_read_and_not_remembered(serialize_type: int) -> None:
    reader = SendHeaderReader()
    fields = {letter: value for letter, value in V2.items() if letter != "l"} | {"a": "x" * 5_000}
    header = reader.read(received(RequestCode.SEND_MESSAGE_V2, fields, serialize_type))
    assert header.origin.producer_group == "x" * 5_000
    assert (reader._origins, reader._origins_of_fields) == ({}, {})


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("letter", ["e", "g", "i", "b"])
def test_of_a_field_named_twice_a_send_reads_the_one_that_its_signature_covers(
    letter: str, serialize_type: int, code: int
) -> None:
    command = received_with_another_in_front(letter, serialize_type, code)
    reader = SendHeaderReader()
    assert [reader.read(command) for _ in range(2)] == [EXPECTED] * 2
    name = V1_NAMES[letter] if code == RequestCode.SEND_MESSAGE else letter
    assert command.ext_fields[name] == V2[letter]  # what signatures are of


def received_with_another_in_front(letter: str, serialize_type: int, code: int) -> RemotingCommand:
    """A send of V2, with "8" written for this field in front of the others."""
    fields = {V1_NAMES[name]: value for name, value in V2.items()} if code == RequestCode.SEND_MESSAGE else V2
    name = V1_NAMES[letter] if code == RequestCode.SEND_MESSAGE else letter
    if serialize_type == SerializeType.ROCKETMQ:
        raw = encode_ext_fields({name: "8"}) + encode_ext_fields(fields)
        data = RemotingCommand(code, raw_ext_fields=raw, serialize_type=serialize_type).encode()
        assert raw in data
    else:
        header = json.dumps({"code": code, "extFields": {"another": "8", **fields}}).replace("another", name).encode()
        data = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    connection = Connection()
    connection.receive_data(data)
    (command,) = connection.commands()
    return command
