"""How a body is shown: as text, JSON, hexadecimal or base64, and cut where it is long."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES, BodyForm, NotOfThisForm, body_shown, indented
from controlplane.topics.masking import tokens_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


def test_json_has_a_line_for_each_member() -> None:
    found = body_shown(b'{"order":17,"lines":[{"sku":"a, {b}"},[]],"note":{ }}', 1000, BodyForm.JSON)
    assert found.text == (
        '{\n  "order": 17,\n  "lines": [\n    {\n      "sku": "a, {b}"\n    },\n    []\n  ],\n  "note": {}\n}'
    )
    assert (found.encoding, found.truncated) == ("json", False)


@pytest.mark.parametrize("number", ["1.10", "12345678901234567890.123", "1e400", "-0", "9" * 5000])
def test_numbers_in_json_stay_as_they_were_written(number: str) -> None:
    assert number in body_shown(f'{{"amount":{number}}}'.encode(), 10**5, BodyForm.JSON).text


def test_members_of_one_name_stay() -> None:
    assert body_shown(b'{"a":1,"a":2}', 1000, BodyForm.JSON).text == '{\n  "a": 1,\n  "a": 2\n}'


@given(VALUES, st.sampled_from([None, 2]))
def test_indented_json_is_the_same_json(value: object, indent: int | None) -> None:
    source = json.dumps(value, indent=indent, ensure_ascii=False)
    text, read = indented(tokens_of(source), len(source), 10**9)
    assert json.loads(text) == value
    assert read == len(source)


def test_deep_json_with_many_elements_is_cut_and_not_blown_up() -> None:
    body = b"[" * 900 + b",".join([b"1"] * 100_000) + b"]" * 900
    found = body_shown(body, 10**9, BodyForm.JSON)
    assert found.truncated
    assert len(found.text) < 2 * BODY_SHOWN_MAX_BYTES
    assert body[: found.shown_bytes].count(b"1") == found.text.count("1")


@pytest.mark.parametrize("body", [b"", b"hello", b"\xff", b'{"a":1', b"[" * 100_000])
def test_what_is_no_json_is_said(body: bytes) -> None:
    with pytest.raises(NotOfThisForm, match="not JSON"):
        body_shown(body, 1000, BodyForm.JSON)


def test_half_a_mebibyte_of_escapes_is_shown_as_json_and_no_more() -> None:
    body = b'"' + b"\\n" * (256 * 1024 - 1) + b'"'
    assert body_shown(body, 1000, BodyForm.JSON).shown_bytes == len(body) == 512 * 1024
    with pytest.raises(NotOfThisForm, match="more than 512 KiB"):
        body_shown(body + b" ", 1000, BodyForm.JSON)


def test_text_can_be_had_as_bytes_and_bytes_as_text() -> None:
    assert body_shown("é".encode(), 100, BodyForm.HEX).text == "c3a9"
    assert body_shown(b"\x00\xff", 100, BodyForm.BASE64).text == "AP8="
    assert body_shown(b"a\x00b\xff", 100, BodyForm.TEXT).text == "a\ufffdb\ufffd"


def test_what_is_cut_says_how_much_is_shown() -> None:
    found = body_shown(b"x" * 100, 10, BodyForm.BASE64)
    assert (found.shown_bytes, found.size_bytes, found.truncated) == (10, 100, True)
