"""Records of the CommitLog, byte by byte as RocketMQ writes them (MessageDecoder, MessageExtEncoder)."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable

import pytest

from mqwire.codes import MessageSysFlag
from mqwire.errors import LocalProtocolError, RemoteProtocolError
from mqwire.message import (
    CRC32_PROPERTY_BYTES,
    MAX_PROPERTIES_BYTES,
    BatchItem,
    decode_batch_body,
    decode_record,
    decode_records,
    encode_batch_body,
    encode_record,
    offset_message_id,
    pack_host,
    parse_offset_message_id,
    properties_to_string,
    string_to_properties,
    tags_code,
    topic_bytes_of,
    unpack_host,
)

BORN, STORE = pack_host("192.168.1.7", 51234), pack_host("10.0.0.1", 10911)
BORN_V6, STORE_V6 = pack_host("fe80::7", 51234), pack_host("2001:db8::1", 10911)


def record(**changes: object) -> bytes:
    values: dict[str, object] = {
        "topic": "orders",
        "queue_id": 3,
        "queue_offset": 42,
        "physical_offset": 1_000_000,
        "body": b"hello",
        "properties": b"KEYS\x01k1\x02",
        "born_host": BORN,
        "store_host": STORE,
        "born_timestamp_ms": 1_700_000_000_001,
        "store_timestamp_ms": 1_700_000_000_002,
        "flag": 9,
        "reconsume_times": 2,
        "prepared_transaction_offset": 77,
        "with_record_crc": False,
    }
    return encode_record(**{**values, **changes})  # type: ignore[arg-type]  # one dictionary of mixed values


PLAIN_RECORD = (
    struct.pack(">i", 91 + len("orders") + 5 + len(b"KEYS\x01k1\x02"))
    + bytes.fromhex("DAA320A7")
    + struct.pack(">I", zlib.crc32(b"hello") & 0x7FFFFFFF)
    + struct.pack(">iiqqi", 3, 9, 42, 1_000_000, 0)
    + struct.pack(">q", 1_700_000_000_001)
    + bytes([192, 168, 1, 7])
    + struct.pack(">i", 51234)
    + struct.pack(">q", 1_700_000_000_002)
    + bytes([10, 0, 0, 1])
    + struct.pack(">i", 10911)
    + struct.pack(">iq", 2, 77)
    + struct.pack(">i", 5)
    + b"hello"
    + b"\x06orders"
    + struct.pack(">h", 8)
    + b"KEYS\x01k1\x02"
)


def test_a_record_is_written_as_exactly_these_bytes() -> None:
    assert record() == PLAIN_RECORD


def test_these_bytes_are_read_as_the_record() -> None:
    message = decode_record(PLAIN_RECORD)
    assert (message.topic, message.queue_id, message.queue_offset, message.physical_offset) == (
        "orders", 3, 42, 1_000_000,
    )  # fmt: skip
    assert (message.flag, message.reconsume_times, message.prepared_transaction_offset) == (9, 2, 77)
    assert (message.born_host, message.store_host) == (("192.168.1.7", 51234), ("10.0.0.1", 10911))
    assert (message.body, message.properties) == (b"hello", {"KEYS": "k1"})
    assert message.size_bytes == len(PLAIN_RECORD)


def test_a_record_can_stand_anywhere_in_a_buffer() -> None:
    assert decode_record(b"\x00" * 13 + PLAIN_RECORD + b"rest", 13) == decode_record(PLAIN_RECORD)


@pytest.mark.parametrize(
    ("born", "store", "flags"),
    [
        (BORN, STORE, 0),
        (BORN_V6, STORE, MessageSysFlag.BORNHOST_V6),
        (BORN, STORE_V6, MessageSysFlag.STOREHOSTADDRESS_V6),
        (BORN_V6, STORE_V6, MessageSysFlag.BORNHOST_V6 | MessageSysFlag.STOREHOSTADDRESS_V6),
    ],
)
def test_hosts_of_both_kinds_come_back(born: bytes, store: bytes, flags: int) -> None:
    message = decode_record(record(born_host=born, store_host=store))
    assert message.sys_flag == flags
    assert (pack_host(*message.born_host), pack_host(*message.store_host)) == (born, store)


@pytest.mark.parametrize(("length", "magic"), [(127, "DAA320A7"), (128, "DAA320AB"), (255, "DAA320AB")])
def test_topics_above_127_bytes_take_the_second_magic(length: int, magic: str) -> None:
    data = record(topic="t" * length)
    assert data[4:8].hex().upper() == magic
    assert decode_record(data).topic == "t" * length


def test_compression_bits_survive() -> None:
    for flags in (0x301, 0x201, 0x101, 0x1, MessageSysFlag.TRANSACTION_PREPARED_TYPE):
        assert decode_record(record(sys_flag=flags)).sys_flag == flags


def test_the_record_crc_is_the_last_property_with_its_digits_reversed() -> None:
    data = record(with_record_crc=True)
    covered = data[:-CRC32_PROPERTY_BYTES]
    digits = b"%010d" % (zlib.crc32(covered) & 0x7FFFFFFF)
    assert data[-CRC32_PROPERTY_BYTES:] == b"__CRC32#\x01" + digits[::-1] + b"\x02"


@pytest.mark.parametrize("properties", [b"", b"A\x01b\x02", b"A\x01b"])
def test_a_record_with_its_crc_can_be_read(properties: bytes) -> None:
    message = decode_record(record(with_record_crc=True, properties=properties))
    assert message.properties.get("A", "b") == "b"
    assert "__CRC32#" in message.properties


def test_every_changed_byte_of_a_record_with_crc_is_noticed() -> None:
    data = record(with_record_crc=True)
    # Without its name the checksum is just another property: only the store knows that it must be there.
    name_start = len(data) - CRC32_PROPERTY_BYTES
    name_end = name_start + len(b"__CRC32#\x01")
    for position in [*range(name_start), *range(name_end, len(data))]:
        broken = bytearray(data)
        broken[position] ^= 0x20
        with pytest.raises(RemoteProtocolError):
            decode_record(bytes(broken))


@pytest.mark.parametrize("size", range(len(PLAIN_RECORD)))
def test_a_record_cut_anywhere_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_record(PLAIN_RECORD[:size])


BODY_LENGTH_AT = 84
LIES = [
    pytest.param(0, 0, id="size 0"),
    pytest.param(0, 2**31 - 1, id="size 2 GiB"),
    pytest.param(0, -1, id="size -1"),
    pytest.param(0, len(PLAIN_RECORD) - 1, id="size one short"),
    pytest.param(4, 0x0BADBEEF, id="no magic"),
    pytest.param(BODY_LENGTH_AT, -1, id="body of -1"),
    pytest.param(BODY_LENGTH_AT, 2**31 - 1, id="body of 2 GiB"),
    pytest.param(BODY_LENGTH_AT, 4, id="body one short"),
    pytest.param(BODY_LENGTH_AT, 6, id="body one long"),
]


@pytest.mark.parametrize(("position", "number"), LIES)
def test_a_length_that_lies_is_refused(position: int, number: int) -> None:
    data = bytearray(PLAIN_RECORD)
    data[position : position + 4] = struct.pack(">i", number)
    with pytest.raises(RemoteProtocolError):
        decode_record(bytes(data))


def test_a_changed_body_is_noticed_without_the_record_crc_too() -> None:
    data = PLAIN_RECORD.replace(b"hello", b"hellO")
    with pytest.raises(RemoteProtocolError, match="CRC"):
        decode_record(data)


def test_records_after_one_another_are_all_read() -> None:
    messages = decode_records(record(queue_offset=1) + record(queue_offset=2, body=b"") + record(queue_offset=3))
    assert [message.queue_offset for message in messages] == [1, 2, 3]


def test_a_rest_after_records_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        decode_records(record() + b"\x00" * 8)


def test_bytes_in_properties_that_are_no_text_are_read_as_stock_clients_read_them() -> None:
    assert decode_record(record(properties=b"KEYS\x01\xff\x02")).properties == {"KEYS": "\ufffd"}


@pytest.mark.parametrize("topic", ["orders", "o" * 200])
@pytest.mark.parametrize("flags", [0, MessageSysFlag.BORNHOST_V6, MessageSysFlag.STOREHOSTADDRESS_V6])
def test_the_topic_of_a_record_is_found_without_reading_its_properties(topic: str, flags: int) -> None:
    born = BORN_V6 if flags == MessageSysFlag.BORNHOST_V6 else BORN
    store = STORE_V6 if flags == MessageSysFlag.STOREHOSTADDRESS_V6 else STORE
    written = record(topic=topic, sys_flag=flags, born_host=born, store_host=store, properties=b"KEYS\x01\xff\x02")
    assert topic_bytes_of(b"rest" + written, 4) == topic.encode()


@pytest.mark.parametrize("size", [0, 60, 95])
def test_a_record_cut_before_its_topic_has_none(size: int) -> None:
    assert topic_bytes_of(record()[:size]) == b""


def test_properties_that_do_not_fit_are_a_local_error() -> None:
    with pytest.raises(LocalProtocolError, match=str(MAX_PROPERTIES_BYTES)):
        record(properties=b"A\x01" + b"x" * MAX_PROPERTIES_BYTES)


def test_properties_may_fill_their_length_field() -> None:
    properties = b"A\x01" + b"x" * (MAX_PROPERTIES_BYTES - 3) + b"\x02"
    assert len(decode_record(record(properties=properties)).properties["A"]) == MAX_PROPERTIES_BYTES - 3


PROPERTY_CASES = [
    pytest.param({"KEYS": "k1", "TAGS": "标签"}, "KEYS\x01k1\x02TAGS\x01标签\x02", id="two"),
    pytest.param({}, "", id="none"),
    pytest.param({"A": "b=c d"}, "A\x01b=c d\x02", id="blanks and signs"),
]


@pytest.mark.parametrize(("properties", "text"), PROPERTY_CASES)
def test_properties_are_written_and_read_so(properties: dict[str, str], text: str) -> None:
    assert properties_to_string(properties) == text
    assert string_to_properties(text) == properties


@pytest.mark.parametrize("text", ["\x02\x02", "name\x02", "\x01value\x02", "name\x01\x02"])
def test_pairs_without_name_or_value_are_left_out(text: str) -> None:
    assert string_to_properties(text) == {}


def test_the_last_property_needs_no_separator_after_it() -> None:
    assert string_to_properties("A\x01b") == {"A": "b"}


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("标签", 26631 * 31 + 31614),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_tag_hashes_are_javas(tag: str, code: int) -> None:
    assert tags_code(tag) == code


@pytest.mark.parametrize("text", ["t", "ü", "\U0001f600"])
@pytest.mark.parametrize("length", [127, 128, 129, 255, 256, 257, 511, 512, 513, 30_000])
def test_the_hash_of_a_long_tag_is_javas(text: str, length: int) -> None:
    value = 0
    for (unit,) in struct.iter_unpack(">H", (text * length).encode("utf-16-be")):
        value = (31 * value + unit) % 2**32
    assert tags_code(text * length) % 2**32 == value


@pytest.mark.parametrize("character", ["t", "ü"])
def test_a_long_tag_is_not_hashed_character_by_character(character: str) -> None:
    assert lines_run(lambda: tags_code(character * 30_000)) < 3_000


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call takes."""
    lines = 0

    def trace(_frame: object, event: str, _argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type] # a trace function returns the next one: a type without an end
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


MESSAGE_IDS = [
    pytest.param(("10.0.0.1", 10911), 1_000_000, "0A00000100002A9F00000000000F4240", id="ipv4"),
    pytest.param(("2001:db8::1", 10911), 5, "20010DB800000000000000000000000100002A9F0000000000000005", id="ipv6"),
]


@pytest.mark.parametrize(("host", "offset", "message_id"), MESSAGE_IDS)
def test_offset_message_ids_are_written_and_read_so(host: tuple[str, int], offset: int, message_id: str) -> None:
    assert offset_message_id(pack_host(*host), offset) == message_id
    assert parse_offset_message_id(message_id) == (host, offset)


@pytest.mark.parametrize("text", ["", "zz", "0A00000100002A9F00000000000F424", "0A" * 20, "0A" * 100])
def test_what_is_no_message_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="not a message id"):
        parse_offset_message_id(text)


@pytest.mark.parametrize("address", [("0.0.0.0", 0), ("255.255.255.255", 65535), ("::1", 1), ("fe80::1", 65535)])
def test_packed_hosts_come_back(address: tuple[str, int]) -> None:
    assert unpack_host(pack_host(*address)) == address


BATCH = [BatchItem(1, b"first", b"KEYS\x01a\x02"), BatchItem(0, b"", b""), BatchItem(-1, b"\xff" * 3, b"TAGS\x01t\x02")]
BATCH_BYTES = b"".join(
    struct.pack(">iiiii", 22 + len(item.body) + len(item.properties), 0, 0, item.flag, len(item.body))
    + item.body
    + struct.pack(">h", len(item.properties))
    + item.properties
    for item in BATCH
)


def test_a_batch_is_written_as_exactly_these_bytes() -> None:
    assert encode_batch_body(BATCH) == BATCH_BYTES


def test_these_bytes_are_read_as_the_batch() -> None:
    assert decode_batch_body(BATCH_BYTES) == BATCH


def test_an_empty_batch_is_empty() -> None:
    assert list(decode_batch_body(b"")) == []


@pytest.mark.parametrize("size", [size for size in range(1, len(BATCH_BYTES)) if size not in (34, 56)])
def test_a_batch_cut_inside_a_message_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="batch"):
        decode_batch_body(BATCH_BYTES[:size])


@pytest.mark.parametrize("position", [0, 16])
@pytest.mark.parametrize("number", [-1, 0, 2**31 - 1, 33, 35, 4])
def test_a_batch_whose_lengths_lie_is_refused(position: int, number: int) -> None:
    data = bytearray(BATCH_BYTES)
    data[position : position + 4] = struct.pack(">i", number)
    with pytest.raises(RemoteProtocolError, match="batch"):
        decode_batch_body(bytes(data))


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("position", [0, 16, 23])
@pytest.mark.parametrize("number", [-1, 0, 2**31 - 1, 31, 33])
def test_one_length_that_lies_among_messages_alike_is_refused(place: int, position: int, number: int) -> None:
    data = bytearray(encode_batch_body([BatchItem(0, b"abc", b"K\x01v\x02xyz")] * 4))
    assert len(data) == 4 * 32
    at = place * 32 + position
    data[at : at + (2 if position == 23 else 4)] = struct.pack(">I", number & 0xFFFFFFFF)[2 if position == 23 else 0 :]
    with pytest.raises(RemoteProtocolError, match="batch"):
        decode_batch_body(bytes(data))
