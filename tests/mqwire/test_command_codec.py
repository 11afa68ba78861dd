"""Every case drives the writer and the reader: the command gives exactly these bytes, and these bytes the command."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from mqwire.codes import LanguageCode, SerializeType
from mqwire.command import MAX_EXT_FIELDS, RemotingCommand
from mqwire.connection import NEED_DATA, Connection
from mqwire.errors import LocalProtocolError, RemoteProtocolError
from mqwire.field_layout import FieldLayouts

JAVA_VERSION = 475  # V5_3_1


def frame(serialize_type: int, header: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body


def binary_header(
    code: int,
    opaque: int,
    *,
    flag: int = 0,
    language: int = 0,
    version: int = JAVA_VERSION,
    remark: bytes = b"",
    fields: bytes = b"",
) -> bytes:
    return (
        struct.pack(">hBhii", code, language, version, opaque, flag)
        + struct.pack(">i", len(remark))
        + remark
        + struct.pack(">i", len(fields))
        + fields
    )


def field(name: str, value: str) -> bytes:
    return (
        struct.pack(">h", len(name.encode())) + name.encode() + struct.pack(">i", len(value.encode())) + value.encode()
    )


def command(code: int, opaque: int, serialize_type: int, **rest: Any) -> RemotingCommand:
    return RemotingCommand(
        code, opaque=opaque, version=JAVA_VERSION, language=LanguageCode.JAVA, serialize_type=serialize_type, **rest
    )


JSON, BINARY = SerializeType.JSON, SerializeType.ROCKETMQ

SIMPLE_CASES = [
    pytest.param(
        command(105, 7, JSON, ext_fields={"topic": "orders"}),
        frame(
            0,
            b'{"code":105,"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":475,'
            b'"extFields":{"topic":"orders"}}',
        ),
        id="json request",
    ),
    pytest.param(
        command(0, 7, JSON, flag=1, remark="ok", body=b"{}"),
        frame(
            0,
            b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":475,'
            b'"remark":"ok"}',
            b"{}",
        ),
        id="json response with a body",
    ),
    pytest.param(
        command(105, -1, JSON, ext_fields={"topic": '标签"\\'}),
        frame(
            0,
            '{"code":105,"flag":0,"language":"JAVA","opaque":-1,"serializeTypeCurrentRPC":"JSON","version":475,'
            '"extFields":{"topic":"标签\\"\\\\"}}'.encode(),
        ),
        id="json text beyond ASCII",
    ),
    pytest.param(
        command(34, 2, BINARY, body=b"\x00\xff"),
        frame(1, binary_header(34, 2), b"\x00\xff"),
        id="binary request without fields",
    ),
    pytest.param(
        command(11, 2**31 - 1, BINARY, ext_fields={"topic": "orders", "queueId": "3", "subscription": ""}),
        frame(
            1,
            binary_header(
                11, 2**31 - 1, fields=field("topic", "orders") + field("queueId", "3") + field("subscription", "")
            ),
        ),
        id="binary request with fields",
    ),
    pytest.param(
        command(17, 9, BINARY, flag=1, remark="主题", ext_fields={"标": "签"}),
        frame(1, binary_header(17, 9, flag=1, remark="主题".encode(), fields=field("标", "签"))),
        id="binary response with a remark",
    ),
    pytest.param(
        command(-1, -(2**31), BINARY, flag=2),
        frame(1, binary_header(-1, -(2**31), flag=2)),
        id="binary numbers below zero",
    ),
]


def same(found: RemotingCommand, wanted: RemotingCommand) -> bool:
    names = ("code", "language", "version", "opaque", "flag", "remark", "ext_fields", "serialize_type")
    return all(getattr(found, name) == getattr(wanted, name) for name in names) and bytes(found.body) == wanted.body


@pytest.mark.parametrize(("wanted", "data"), SIMPLE_CASES)
def test_a_command_is_written_as_exactly_these_bytes(wanted: RemotingCommand, data: bytes) -> None:
    assert wanted.encode() == data


@pytest.mark.parametrize(("wanted", "data"), SIMPLE_CASES)
def test_these_bytes_are_read_as_the_command_whole(wanted: RemotingCommand, data: bytes) -> None:
    connection = Connection()
    connection.receive_data(data)
    (found,) = connection.commands()
    assert same(found, wanted)
    assert connection.next_event() is NEED_DATA


@pytest.mark.parametrize(("wanted", "data"), SIMPLE_CASES)
def test_these_bytes_are_read_as_the_command_byte_by_byte(wanted: RemotingCommand, data: bytes) -> None:
    connection = Connection()
    for position in range(len(data) - 1):
        connection.receive_data(data[position : position + 1])
        assert connection.next_event() is NEED_DATA
    connection.receive_data(data[-1:])
    found = connection.next_event()
    assert isinstance(found, RemotingCommand)
    assert same(found, wanted)


@pytest.mark.parametrize(("wanted", "data"), SIMPLE_CASES)
def test_garbage_after_the_command_is_reported_after_it(wanted: RemotingCommand, data: bytes) -> None:
    connection = Connection()
    connection.receive_data(data + b"GET / HTTP/1.1\r\n\r\n")
    (found,) = connection.commands()
    assert same(found, wanted)
    with pytest.raises(RemoteProtocolError, match="frame claims"):
        connection.commands()
    with pytest.raises(RemoteProtocolError, match="frame claims"):
        connection.commands()


@pytest.mark.parametrize(("wanted", "data"), SIMPLE_CASES)
def test_many_commands_in_one_piece_come_out_in_order(wanted: RemotingCommand, data: bytes) -> None:
    connection = Connection()
    connection.receive_data(data * 5 + data[:6])
    found = connection.commands()
    assert [same(one, wanted) for one in found] == [True] * 5
    connection.receive_data(data[6:])
    assert len(connection.commands()) == 1


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":105,"extFields":{"queueId":3,"ratio":1.5,"order":true,"off":false,"none":null,"topic":"t"}}',
        b'{"code":"105","language":0,"extFields":{"queueId":3,"ratio":1.5,"order":true,"off":false,"topic":"t"}}',
    ],
)
def test_field_values_of_other_kinds_become_text(header: bytes) -> None:
    connection = Connection()
    connection.receive_data(frame(0, header))
    (found,) = connection.commands()
    assert found.code == 105
    assert found.ext_fields == {"queueId": "3", "ratio": "1.5", "order": "true", "off": "false", "topic": "t"}


MALFORMED_HEADERS = [
    pytest.param(0, b"", "cannot be read", id="empty json"),
    pytest.param(0, b"[]", "not an object", id="json array"),
    pytest.param(0, b'"x"', "not an object", id="json text"),
    pytest.param(0, b"{}", "code", id="json without a code"),
    pytest.param(0, b'{"code":105', "cannot be read", id="unfinished json"),
    pytest.param(0, b'{"code":2147483648}', "2147483647", id="json code of 33 bits"),
    pytest.param(0, b'{"code":1,"opaque":-2147483649}', "2147483648", id="json opaque of 33 bits"),
    pytest.param(0, b'{"code":1,"extFields":[1]}', "extFields is not an object", id="json fields as array"),
    pytest.param(0, b'{"code":1,"extFields":{"a":{}}}', "'a' is neither", id="json object as field"),
    pytest.param(0, b'{"code":1,"extFields":{"a":"\\ud800"}}', "cannot be read", id="json half a surrogate pair"),
    pytest.param(0, b'{"code":1,"remark":"\xff"}', "cannot be read", id="json not utf-8"),
    pytest.param(0, b'{"code":1,"remark":"\xed\xa0\x80"}', "cannot be read", id="json half a surrogate pair in bytes"),
    pytest.param(0, '{"code":1,"remark":"\\ud800"}'.encode("utf-16-le"), "cannot be read", id="json in utf-16"),
    pytest.param(0, b'{"code":' + b"9" * 5000 + b"}", "cannot be read", id="json number of 5000 digits"),
    pytest.param(0, b"[" * 50_000, "cannot be read", id="json 50,000 levels deep"),
    pytest.param(0, b'{"code":1,"extFields":{"a":' + b'{"a":' * 50_000, "cannot be read", id="json fields too deep"),
    pytest.param(1, b"", "21 bytes", id="empty binary"),
    pytest.param(1, b"\x00" * 20, "21 bytes", id="binary one byte short"),
    pytest.param(1, binary_header(1, 1)[:-4] + struct.pack(">i", 1), "length does not match", id="binary fields short"),
    pytest.param(1, binary_header(1, 1) + b"x", "length does not match", id="binary rest after the fields"),
    pytest.param(
        1,
        binary_header(1, 1)[:13] + struct.pack(">i", 2**31 - 1) + b"\x00" * 4,
        "remark is longer",
        id="binary remark lies",
    ),
    pytest.param(
        1, binary_header(1, 1)[:13] + struct.pack(">i", -1) + b"\x00" * 4, "remark is longer", id="binary remark of -1"
    ),
    pytest.param(1, binary_header(1, 1, remark=b"\xff"), "remark is not UTF-8", id="binary remark not utf-8"),
    pytest.param(2, b"{}", "neither JSON", id="unknown serialize type"),
    pytest.param(255, b"{}", "neither JSON", id="serialize type 255"),
]


@pytest.mark.parametrize(("serialize_type", "header", "message"), MALFORMED_HEADERS)
def test_a_malformed_header_is_refused_with_its_reason(serialize_type: int, header: bytes, message: str) -> None:
    connection = Connection()
    connection.receive_data(frame(serialize_type, header))
    with pytest.raises(RemoteProtocolError, match=message):
        connection.commands()


MALFORMED_FIELDS = [
    pytest.param(b"\x00", id="half a name's length"),
    pytest.param(b"\x00\x05a", id="name longer than the header"),
    pytest.param(b"\x00\x01a", id="no value length"),
    pytest.param(b"\x00\x01a\x00\x00\x00", id="half a value length"),
    pytest.param(b"\x00\x01a\x7f\xff\xff\xff", id="value of 2 GiB"),
    pytest.param(b"\x00\x01a\xff\xff\xff\xff", id="value of -1"),
    pytest.param(b"\xff\xff", id="name of -1"),
    pytest.param(b"\x00\x01\xff\x00\x00\x00\x00", id="name not utf-8"),
    pytest.param(b"\x00\x01a\x00\x00\x00\x01\xff", id="value not utf-8"),
]


@pytest.mark.parametrize("fields", MALFORMED_FIELDS)
def test_malformed_binary_fields_are_reported_when_they_are_asked_for(fields: bytes) -> None:
    connection = Connection()
    connection.receive_data(frame(1, binary_header(105, 1, fields=fields)))
    (found,) = connection.commands()
    with pytest.raises(RemoteProtocolError, match="extension field"):
        _ = found.ext_fields


def test_fields_are_counted_also_where_they_have_one_name() -> None:
    most = RemotingCommand(1, raw_ext_fields=field("a", "1") * MAX_EXT_FIELDS, serialize_type=SerializeType.ROCKETMQ)
    assert most.ext_fields == {"a": "1"}
    more = RemotingCommand(
        1, raw_ext_fields=field("a", "1") * (MAX_EXT_FIELDS + 1), serialize_type=SerializeType.ROCKETMQ
    )
    with pytest.raises(RemoteProtocolError, match="at most"):
        _ = more.ext_fields
    with pytest.raises(RemoteProtocolError, match="too many"):
        FieldLayouts().match(field("a", "1") * (MAX_EXT_FIELDS + 1))


def test_of_fields_with_one_name_the_last_counts() -> None:
    connection = Connection()
    connection.receive_data(frame(1, binary_header(1, 1, fields=field("a", "1") + field("a", "2"))))
    connection.receive_data(frame(0, b'{"code":1,"extFields":{"a":"1","a":"2"}}'))
    assert [found.ext_fields for found in connection.commands()] == [{"a": "2"}, {"a": "2"}]


@pytest.mark.parametrize("serialize_type", [JSON, BINARY])
def test_a_reply_has_its_requests_opaque_and_kind_of_header(serialize_type: SerializeType) -> None:
    request = RemotingCommand.request(105, serialize_type=serialize_type)
    reply = request.reply(17, "no such topic")
    assert (reply.opaque, reply.serialize_type, reply.is_response) == (request.opaque, serialize_type, True)


def test_requests_have_opaques_of_their_own() -> None:
    opaques = {RemotingCommand.request(34).opaque for _ in range(100)}
    assert len(opaques) == 100


def test_a_oneway_request_says_so() -> None:
    assert RemotingCommand.request(15, oneway=True).is_oneway
    assert not RemotingCommand.request(15).is_oneway


def test_a_header_that_24_bits_cannot_measure_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError, match="16777215"):
        RemotingCommand.request(105, ext_fields={"a": "x" * 0x1000000}).encode()
