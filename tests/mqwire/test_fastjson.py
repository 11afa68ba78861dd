"""The dialect that fastjson writes and reads, and what it may cost."""

from __future__ import annotations

from typing import Any

import pytest

from mqwire import fastjson
from mqwire.errors import RemoteProtocolError

DIALECT = [
    pytest.param(b'{0:"a",1:"b",-1:"c"}', {"0": "a", "1": "b", "-1": "c"}, id="numbers as names"),
    pytest.param(b"{12345678901L:1}", {"12345678901": 1}, id="long numbers as names"),
    pytest.param(b"{name:1,$ref_2:2,a.b-c:3}", {"name": 1, "$ref_2": 2, "a.b-c": 3}, id="bare names"),
    pytest.param(b"{'a':'it\"s'}", {"a": 'it"s'}, id="single quotes"),
    pytest.param(b'{"a":1,}', {"a": 1}, id="comma after the last member"),
    pytest.param(b"[1,2,]", [1, 2], id="comma after the last item"),
    pytest.param(b"[1L,2S,3B,1.5F,2.5D,4D]", [1, 2, 3, 1.5, 2.5, 4.0], id="number suffixes"),
    pytest.param(b"[-0,+7,1e3,1.5E-2]", [0, 7, 1000.0, 0.015], id="signs and exponents"),
    pytest.param(b'{"a":null,"b":undefined,"c":0}', {"c": 0}, id="null members are absent"),
    pytest.param(b"[null,true,false]", [None, True, False], id="null items stay"),
    pytest.param(b'"\\x41\\v\\F\\/\\\'\\0"', "A\v\f/'\0", id="escapes of Java"),
    pytest.param(b'"\\ud83d\\ude00\\u6807"', "\U0001f600标", id="escaped surrogates"),
    pytest.param(b'"\\ud83d \\ude00x\\ud83d\\u0041"', "? ?x?A", id="half surrogates become question marks"),
    pytest.param('"标签\U0001f600"'.encode(), "标签\U0001f600", id="text beyond ASCII"),
    pytest.param(b'"a\nb\tc"', "a\nb\tc", id="raw control characters"),
    pytest.param(b'\xef\xbb\xbf {"a" : [ ] , "b":{ } }\n', {"a": [], "b": {}}, id="blanks and a byte order mark"),
    pytest.param(b'{"a":1,"a":2}', {"a": 2}, id="the last of two counts"),
    pytest.param(b'{"a":1,"a":null}', {}, id="the last of two counts, null too"),
    pytest.param(b"{}", {}, id="empty"),
]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'{{"q":"a}b"}:1}', {"a}b": 1}),
        (b'{{"q":"a","r":{}}:1}', {"a": 1}),
        (b'{{"q":"a","r":null,"q":"b"} :1,}', {"b": 1}),
        (b'{{"q":"x","r":"' + b"y" * 2000 + b'"}:1}', {"x": 1}),
        (b'{{"q":"\\ud800"}:1}', {"?": 1}),
    ],
)
def test_objects_as_names_are_read_whatever_is_in_them(data: bytes, value: Any) -> None:
    assert fastjson.loads(data, object_key=lambda members: members["q"]) == value


@pytest.mark.parametrize(("data", "value"), DIALECT)
def test_the_dialect_is_read(data: bytes, value: Any) -> None:
    assert fastjson.loads(data) == value


MALFORMED = [
    b"",
    b" ",
    b"{",
    b"}",
    b"[",
    b'{"a"',
    b'{"a":',
    b'{"a":1',
    b'{"a" 1}',
    b"{1 2}",
    b'{"a":1 "b":2}',
    b"[1 2]",
    b"[,1]",
    b"{,}",
    b'"abc',
    b'"\\',
    b'"\\q"',
    b'"\\u12"',
    b'"\\u12xy"',
    b'"\\xg1"',
    b"'a\"",
    b"nul",
    b"True",
    b"-",
    b"1.",
    b"1e999",
    b"1" * 41,
    b"12abc",
    b"{}x",
    b"\xff",
    b'{{"a":1}:2}',
    b"{[1]:2}",
    b"{true false}",
    b"/* comment */ 1",
]


@pytest.mark.parametrize("data", MALFORMED)
def test_what_is_not_the_dialect_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON"):
        fastjson.loads(data)


def test_objects_become_names_where_someone_knows_how() -> None:
    value = fastjson.loads(b'{{"q":1}:"one",{q:2}:"two"}', object_key=lambda members: members["q"])
    assert value == {1: "one", 2: "two"}


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b"{{", b"}")])
def test_nesting_is_bounded(opening: bytes, closing: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"nested deeper|no value|name"):
        fastjson.loads(opening * 100_000 + closing * 100_000, object_key=lambda members: str(members))


def test_nesting_up_to_the_bound_is_read() -> None:
    fastjson.loads(b"[" * fastjson.MAX_DEPTH + b"]" * fastjson.MAX_DEPTH)
    with pytest.raises(RemoteProtocolError, match="nested deeper"):
        fastjson.loads(b"[" * (fastjson.MAX_DEPTH + 1) + b"]" * (fastjson.MAX_DEPTH + 1))


def test_length_is_bounded() -> None:
    with pytest.raises(RemoteProtocolError, match="at most 10 are read"):
        fastjson.loads(b'"' + b"x" * 10 + b'"', max_length_bytes=10)


@pytest.mark.parametrize("text", [b"[1,2,3]", b"{a:1,b:2}", b'"\\n\\n\\n"', b"[[[]]]"])
def test_a_text_has_a_bounded_number_of_values_names_and_escapes(text: bytes) -> None:
    assert fastjson.loads(text, max_parts=5)
    with pytest.raises(RemoteProtocolError, match="too many"):
        fastjson.loads(text, max_parts=2)


# Were any of these quadratic, the test would not end before its timeout.
EXPENSIVE = [
    pytest.param(b"[" + b"0," * 150_000 + b"]", id="items"),
    pytest.param(b'"' + b"\\n" * 200_000 + b'"', id="escapes"),
    pytest.param(b'"' + b"x" * 4_000_000 + b'"', id="one long text"),
    pytest.param(b"{" + b"".join(b"%d:0," % number for number in range(80_000)) + b"}", id="members"),
    pytest.param(b" " * 4_000_000 + b"1", id="blanks"),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("data", EXPENSIVE)
def test_large_texts_are_read_in_one_pass(data: bytes) -> None:
    fastjson.loads(data)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "data", [b"-" * 4_000_000, b"1" * 4_000_000, b"a" * 4_000_000, b'"\\u' * 1_000_000, b"{1" * 1_000_000]
)
def test_large_garbage_is_refused_at_once(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="JSON"):
        fastjson.loads(data)
