"""RocketMQ's IndexFile as bytes, its hash, and which keys a record has: tables of facts."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerd.store.index_format import (
    ENTRY_BYTES,
    HEADER_BYTES,
    IndexHeader,
    file_bytes,
    key_hash,
    keys_of,
    positive,
    runs,
    unpack_header,
)
from brokerd.store.index_reader import IndexReader
from mqwire.java_hash import java_hash, joined_hash
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import ManualClock, message, open_store


def java_reference(text: str) -> int:
    """String.hashCode by its definition, one UTF-16 unit after the other."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", encoded):
        value = (31 * value + unit) % 2**32
    return value


@pytest.mark.parametrize(
    ("text", "signed"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", -(2**31)),
        ("Bestellung#Größe", None),
        ("topic#😀", None),
        ("k" * 1000, None),
    ],
)
def test_the_hash_is_javas(text: str, signed: int | None) -> None:
    expected = java_reference(text)
    assert java_hash(text.encode()) == expected
    if signed is not None:
        assert expected == signed % 2**32


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_hash_of_two_parts_is_that_of_the_whole(head: str, tail: str) -> None:
    whole = (head + tail).encode("utf-8", "replace")
    known = java_hash(head.encode("utf-8", "replace"))
    assert joined_hash(known, tail.encode("utf-8", "replace")) == java_hash(whole) == java_reference(whole.decode())


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (5, 5), (2**31 - 1, 2**31 - 1), (2**31, 0), (2**32 - 1, 1)])
def test_what_entries_hold_is_never_negative(value: int, expected: int) -> None:
    assert positive(value) == expected


def test_a_key_is_hashed_with_its_topic() -> None:
    assert key_hash("TopicTest", "k") == positive(java_reference("TopicTest#k"))


def test_a_file_of_the_default_size_has_as_many_bytes_as_apaches() -> None:
    assert file_bytes(5_000_000, 20_000_000) == 420_000_040
    assert (HEADER_BYTES, ENTRY_BYTES) == (40, 20)


@pytest.mark.parametrize("data", [b"", bytes(39), bytes(40), bytes(36) + (1).to_bytes(4, "big")])
def test_a_file_without_entries_is_empty(data: bytes) -> None:
    assert unpack_header(data) == IndexHeader()


@pytest.mark.parametrize(
    ("properties", "unique_key", "keys"),
    [
        (b"", b"", []),
        (b"UNIQ_KEY\x01A1\x02", b"A1", []),
        (b"UNIQ_KEY\x01A1", b"A1", []),
        (b"KEYS\x01a b\x02UNIQ_KEY\x01A1\x02", b"A1", [b"a", b"b"]),
        (b"KEYS\x01  a   b \x02", b"", [b"a", b"b"]),
        (b"MY_UNIQ_KEY\x01no\x02MYKEYS\x01no\x02", b"", []),
        (b"UNIQ_KEY\x01A1\x02MY_UNIQ_KEY\x01no\x02", b"A1", []),
        (b"KEYS\x01old\x02KEYS\x01new\x02", b"", [b"new"]),
        ("KEYS\x01Größe ключ\x02".encode(), b"", ["Größe".encode(), "ключ".encode()]),
        (b"TAGS\x01KEYS\x02", b"", []),
    ],
)
def test_a_records_keys_are_those_of_its_properties(properties: bytes, unique_key: bytes, keys: list[bytes]) -> None:
    assert keys_of(properties) == (unique_key, keys)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([], []), ([3], [(3, 4)]), ([1, 2, 3], [(1, 4)]), ([1, 3, 9], [(1, 4), (9, 10)]), ([0, 5], [(0, 1), (5, 6)])],
)
def test_pages_near_each_other_are_written_together(numbers: list[int], expected: list[tuple[int, int]]) -> None:
    assert runs(numbers, 2) == expected


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["orders", "Größen", "t" * 130]),
            st.sampled_from([b"", b"A" * 32, b"B", "Ünique".encode(), b"7F0000010A2B" + b"0" * 20]),
            st.sampled_from([b"", b"k1", b"k1 k2  k3", "ключ".encode(), b"x" * 300]),
            st.sampled_from([0, 0, 4, 8, 12]),
        ),
        max_size=8,
    )
)
def test_the_fast_loop_finds_what_the_plain_functions_find(sent: list[tuple[str, bytes, bytes, int]]) -> None:
    store = open_store(MemoryDisk(), ManualClock(), mapped_file_size_commit_log_bytes=65536)
    expected = []
    for topic, unique_key, keys, transaction in sent:
        properties = (b"UNIQ_KEY\x01" + unique_key + b"\x02" if unique_key else b"") + (
            b"KEYS\x01" + keys + b"\x02" if keys else b""
        )
        (result,) = store.append([message(topic=topic, properties=properties, sys_flag=transaction)])
        if transaction != 12:
            for key in ([unique_key] if unique_key else []) + [key for key in keys.split(b" ") if key]:
                expected.append((key_hash(topic, key.decode()), result.physical_offset, result.store_timestamp_ms))
    found = IndexReader().read(store.read_raw(0, store.end_offset) if sent else b"", 0, 65536, 1000)
    assert list(zip(found.hashes, found.offsets, found.timestamps_ms, strict=True)) == expected
    assert found.records == len(sent)
