"""The fast way through binary extension fields says exactly what the plain way says, whatever it has seen before."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqwire.command import decode_ext_fields, encode_ext_fields
from mqwire.errors import RemoteProtocolError
from mqwire.field_layout import FieldLayouts

unhurried = settings(deadline=None, derandomize=True)
names = st.sampled_from(["a", "b", "topic", "标"])
values = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
areas = st.lists(st.tuples(names, values), max_size=5).map(
    lambda pairs: b"".join(encode_ext_fields({name: value}) for name, value in pairs)
)
varieties = st.sampled_from([None, frozenset[str](), frozenset({"a"}), frozenset({"topic", "标"})])


def outcome(read: object, raw: bytes) -> object:
    try:
        return read(raw)  # type: ignore[operator]  # either of two readers
    except RemoteProtocolError:
        return "refused"


@unhurried
@given(varieties, st.lists(areas, max_size=8))
def test_fields_are_the_same_either_way(varying: frozenset[str] | None, raws: list[bytes]) -> None:
    layouts = FieldLayouts(varying)
    for raw in raws * 2:
        assert layouts.fields(raw) == decode_ext_fields(raw)


@pytest.mark.parametrize("varying", [None, frozenset({"a"})])
def test_damaged_fields_are_refused_either_way(varying: frozenset[str] | None) -> None:
    random_source = random.Random(17)
    layouts = FieldLayouts(varying)
    whole = encode_ext_fields({"a": "12345", "topic": "orders", "标": "签"})
    assert layouts.fields(whole) == decode_ext_fields(whole)
    for _ in range(20_000):
        raw = bytearray(whole)
        for _ in range(random_source.randint(1, 3)):
            raw[random_source.randrange(len(raw))] = random_source.choice([0, 1, 5, 255, random_source.randrange(256)])
        damaged = bytes(raw[: random_source.choice([len(raw), len(raw), random_source.randrange(len(raw))])])
        assert outcome(layouts.fields, damaged) == outcome(decode_ext_fields, damaged)
