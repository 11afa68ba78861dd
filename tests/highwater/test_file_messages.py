"""Messages of a file: which lines are whole messages, and what is wrong with the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from highwater._file_messages import FileLine, read_lines

WHOLE = {"topic": "invoices", "body": "grün", "body_encoding": "utf-8"}


def read(*rows: object, topic: str | None = None, most: int = 1000) -> list[FileLine]:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return list(read_lines(lines, topic=topic, max_message_size=most))


def test_a_line_is_a_message_with_tag_keys_and_properties() -> None:
    (line,) = read({**WHOLE, "tags": "paid", "keys": ["o-1", "o-2"], "properties": {"color": "red"}, "tries": 16})
    assert line.message is not None
    message = line.message
    assert (message.topic, message.body, message.tags) == ("invoices", "grün".encode(), "paid")
    assert (tuple(message.keys), dict(message.properties)) == (("o-1", "o-2"), {"color": "red"})


@pytest.mark.parametrize(
    ("encoding", "text", "body"),
    [
        ("json", '{"a": 1}', b'{"a": 1}'),
        ("hex", "00ff", b"\x00\xff"),
        ("base64", "AP8=", b"\x00\xff"),
    ],
)
def test_bodies_that_are_no_text_are_read_by_their_encoding(encoding: str, text: str, body: bytes) -> None:
    (line,) = read({"topic": "t", "body": text, "body_encoding": encoding})
    assert line.message is not None
    assert line.message.body == body


def test_blank_lines_are_passed_over_and_numbers_stay_those_of_the_file() -> None:
    assert [line.number for line in read(WHOLE, "", "  ", WHOLE)] == [1, 4]


def test_one_topic_goes_before_what_the_lines_say() -> None:
    (line,) = read({"body": "x"}, topic="repair")
    assert line.message is not None
    assert line.message.topic == "repair"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ({**WHOLE, "body_truncated": True}, "its body was cut in the export"),
        ({**WHOLE, "masked": ["body", "KEYS"]}, "it was exported with body, KEYS masked"),
        ({**WHOLE, "body_encoding": "protobuf"}, "is written as 'protobuf', which is not read"),
        ({**WHOLE, "body_encoding": "hex"}, "its body is not hex"),
        ({**WHOLE, "body_encoding": "base64"}, "its body is not base64"),
        ({**WHOLE, "body": 7}, "its body is not a text"),
        ({**WHOLE, "body": ""}, "body is empty"),
        ({**WHOLE, "topic": None}, "is not a topic name"),
        ({**WHOLE, "tags": ["a"]}, "its tags is not a text"),
        ({**WHOLE, "keys": "o-1"}, "its keys are not a list of texts"),
        ({**WHOLE, "properties": {"n": 1}}, "its properties are not an object of texts"),
        ({**WHOLE, "body": "x" * 1001}, "more than max_message_size"),
    ],
)
def test_a_line_that_is_no_whole_message_says_why(row: Any, problem: str) -> None:
    first, second = read(row, WHOLE)
    assert (first.number, first.message, second.problem) == (1, None, "")
    assert problem in first.problem
