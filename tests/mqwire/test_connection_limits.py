"""Lengths are checked before anything is allocated or kept for them (reliability.md, B26)."""

from __future__ import annotations

import gc
import struct
import tracemalloc

import pytest

from mqwire.codes import SerializeType
from mqwire.command import MAX_EXT_FIELDS, RemotingCommand
from mqwire.connection import NEED_DATA, Connection
from mqwire.errors import RemoteProtocolError

KIBIBYTE = 1024

LYING_STARTS = [
    pytest.param(struct.pack(">i", 0), id="frame of 0"),
    pytest.param(struct.pack(">i", 3), id="frame of 3"),
    pytest.param(struct.pack(">i", -1), id="frame of -1"),
    pytest.param(struct.pack(">i", 2**31 - 1), id="frame of 2 GiB"),
    pytest.param(struct.pack(">i", 16 * KIBIBYTE * KIBIBYTE + 1), id="frame one above the limit"),
    pytest.param(struct.pack(">iI", 4, 1), id="header past the frame's end"),
    pytest.param(struct.pack(">iI", 100, 0xFFFFFF), id="header of 16 MiB in a small frame"),
    pytest.param(struct.pack(">iI", 16 * KIBIBYTE * KIBIBYTE, 2 * KIBIBYTE * KIBIBYTE), id="header above its limit"),
]


@pytest.mark.parametrize("start", LYING_STARTS)
def test_a_lie_is_refused_as_soon_as_it_can_be_seen(start: bytes) -> None:
    connection = Connection()
    with pytest.raises(RemoteProtocolError, match="claims"):  # noqa: PT012 - the last byte is the one that counts
        for position in range(len(start)):
            connection.receive_data(start[position : position + 1])
            connection.commands()


@pytest.mark.parametrize("start", LYING_STARTS)
def test_a_lie_costs_no_memory(start: bytes) -> None:
    connection = Connection()
    tracemalloc.start()
    try:
        connection.receive_data(start)
        with pytest.raises(RemoteProtocolError):
            connection.commands()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * KIBIBYTE


def test_a_frame_that_has_been_announced_costs_only_what_has_arrived() -> None:
    connection = Connection()
    tracemalloc.start()
    try:
        connection.receive_data(struct.pack(">iI", 16 * KIBIBYTE * KIBIBYTE, 100) + b"x" * 1000)
        assert connection.next_event() is NEED_DATA
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * KIBIBYTE


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_frame_of_exactly_the_limit_is_taken(serialize_type: SerializeType) -> None:
    data = RemotingCommand.request(10, body=b"x" * 1000, serialize_type=serialize_type).encode()
    taking = Connection(max_frame_bytes=len(data) - 4)
    taking.receive_data(data)
    assert len(taking.commands()) == 1
    refusing = Connection(max_frame_bytes=len(data) - 5)
    refusing.receive_data(data)
    with pytest.raises(RemoteProtocolError, match="between"):
        refusing.commands()


def test_the_frame_limit_can_be_raised_while_connected() -> None:
    data = RemotingCommand.request(10, body=b"x" * 1000).encode()
    connection = Connection(max_frame_bytes=100)
    connection.max_frame_bytes = 2000
    connection.receive_data(data)
    assert len(connection.commands()) == 1


def test_a_broken_connection_takes_nothing_more() -> None:
    connection = Connection()
    connection.receive_data(b"\x00\x00\x00\x00")
    with pytest.raises(RemoteProtocolError):
        connection.commands()
    connection.receive_data(RemotingCommand.request(34).encode())
    with pytest.raises(RemoteProtocolError):
        connection.commands()


def test_what_a_broken_connection_held_goes_with_it_before_any_garbage_collection() -> None:
    data = RemotingCommand.request(10, body=b"x" * (1024 * KIBIBYTE)).encode()
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(8):
            connection = Connection()
            connection.receive_data(data + b"\xff" * 8)
            assert len(connection.commands()) == 1
            with pytest.raises(RemoteProtocolError):
                connection.commands()
        del connection
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held_bytes < 1024 * KIBIBYTE


def test_a_large_frame_in_tiny_pieces_is_not_copied_each_time() -> None:
    # Were the buffer copied for each piece, these would be 32 GiB.
    data = RemotingCommand.request(10, body=b"x" * (1024 * KIBIBYTE)).encode()
    connection = Connection()
    for position in range(0, len(data), 16):
        connection.receive_data(data[position : position + 16])
        found = connection.commands()
    assert len(found) == 1


def read_fields(connection: Connection) -> list[dict[str, str]]:
    """Those of a binary header are decoded when they are first asked for."""
    return [command.ext_fields for command in connection.commands()]


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_a_header_has_no_more_extension_fields_than_its_limit(serialize_type: SerializeType) -> None:
    fields = {f"k{number}": "" for number in range(MAX_EXT_FIELDS)}
    connection = Connection()
    connection.receive_data(RemotingCommand.request(34, ext_fields=fields, serialize_type=serialize_type).encode())
    assert read_fields(connection) == [fields]
    one_more = {**fields, "one more": ""}
    connection.receive_data(RemotingCommand.request(34, ext_fields=one_more, serialize_type=serialize_type).encode())
    with pytest.raises(RemoteProtocolError, match=f"at most {MAX_EXT_FIELDS} extension fields"):
        read_fields(connection)


def test_a_header_full_of_fields_is_refused_at_the_first_beyond_the_limit() -> None:
    fields = b"".join(struct.pack(">h", 7) + b"k%06d" % number + struct.pack(">i", 0) for number in range(70_000))
    header = struct.pack(">hBhii", 1, 0, 0, 1, 0) + struct.pack(">ii", 0, len(fields)) + fields
    connection = Connection()
    connection.receive_data(struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header)
    (command,) = connection.commands()
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="extension fields"):
            _ = command.ext_fields
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * KIBIBYTE, "what follows is not decoded"


def requests(count: int) -> bytes:
    return b"".join(RemotingCommand.request(code).encode() for code in range(count))


def codes(commands: list[RemotingCommand]) -> list[int]:
    return [command.code for command in commands]


def test_a_look_finds_so_many_commands_and_what_was_not_taken_again() -> None:
    connection = Connection()
    data = requests(8)
    connection.receive_data(data[:-3])
    assert codes(connection.look(4)) == [0, 1, 2, 3]
    connection.take(3)
    assert connection.has_more
    assert codes(connection.look(5)) == [3, 4, 5, 6]
    connection.take(4)
    assert not connection.has_more
    connection.receive_data(data[-3:])
    assert codes(connection.look(4)) == [7]


def test_what_a_look_left_to_arrive_joins_what_arrives() -> None:
    connection = Connection()
    data = requests(5)
    connection.receive_data(data[:-3])
    assert len(connection.look(2)) == 2
    connection.take(2)
    connection.receive_data(data[-3:])
    assert codes(connection.commands() + connection.commands()) == [2, 3, 4]
    assert connection.buffered_bytes == 0


def test_a_malformed_frame_is_found_by_the_look_after_those_before_it() -> None:
    connection = Connection()
    connection.receive_data(requests(2) + bytes(8))
    assert len(connection.look(4)) == 2
    connection.take(1)
    assert codes(connection.look(4)) == [1]
    connection.take(1)
    assert connection.has_more
    with pytest.raises(RemoteProtocolError, match="claims"):
        connection.look(4)


def test_commands_that_wait_for_a_later_look_take_no_more_than_their_bytes() -> None:
    fields = {f"k{number}": "" for number in range(100)}
    data = RemotingCommand.request(34, ext_fields=fields).encode() * 200
    connection = Connection()
    tracemalloc.start()
    try:
        connection.receive_data(data)
        connection.take(len(connection.look(2)))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * len(data)
