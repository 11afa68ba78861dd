"""Messages written in a file, one JSON object a line, as the console and the API export dead letters. Pure.

Members that are read: `topic`, `body`, `body_encoding` (utf-8, json, hex or base64; utf-8 when left out), `tags`, `keys`,
`properties`. What else an export has is passed over, but for what says that a line is not the whole message.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from highwater._models import Message
from highwater._validation import check_message
from highwater.errors import MessageIllegalError

# An export of 64 KiB bodies has lines far below; a line that never ends is no reason to take all memory.
LINE_MAX_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileLine:
    """One line: its message, or why there is none."""

    number: int
    message: Message | None
    problem: str = ""


def read_lines(lines: Iterable[str], *, topic: str | None, max_message_size: int) -> Iterator[FileLine]:
    """The messages of a file's lines, blank ones passed over; `topic` goes before what the lines say."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            message = _message(line, topic)
            check_message(message, max_message_size)
        except (_Unreadable, MessageIllegalError) as error:
            yield FileLine(number, None, str(error))
        else:
            yield FileLine(number, message)


class _Unreadable(Exception):
    """A line is no whole message."""


def _message(line: str, topic: str | None) -> Message:
    if len(line) > LINE_MAX_CHARACTERS:
        raise _Unreadable(f"the line has {len(line)} characters, more than {LINE_MAX_CHARACTERS}")
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _Unreadable(f"it is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise _Unreadable("it is not a JSON object")
    if row.get("body_truncated"):
        raise _Unreadable("its body was cut in the export")
    masked = row.get("masked")
    if masked:
        names = masked if isinstance(masked, list) else [masked]
        raise _Unreadable(f"it was exported with {', '.join(map(str, names))} masked")
    properties = row.get("properties") or {}
    if not isinstance(properties, dict) or not all(isinstance(value, str) for value in properties.values()):
        raise _Unreadable("its properties are not an object of texts")
    keys = row.get("keys") or []
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise _Unreadable("its keys are not a list of texts")
    return Message(
        topic or _text(row, "topic"), _body(row), tags=_text(row, "tags") or None, keys=keys, properties=properties
    )


def _text(row: dict[str, Any], name: str) -> str:
    value = row.get(name) or ""
    if not isinstance(value, str):
        raise _Unreadable(f"its {name} is not a text")
    return value


def _body(row: dict[str, Any]) -> bytes:
    text, encoding = _text(row, "body"), row.get("body_encoding", "utf-8")
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
        if encoding in ("utf-8", "json"):
            return text.encode()
    except (ValueError, binascii.Error) as error:
        raise _Unreadable(f"its body is not {encoding}: {error}") from None
    raise _Unreadable(f"its body is written as {encoding!r:.80}, which is not read: use utf-8, hex or base64")
