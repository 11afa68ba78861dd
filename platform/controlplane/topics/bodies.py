"""Bodies of messages for the eye: as text, indented JSON, hexadecimal or base64, cut where they are long. Pure."""

import base64
import codecs
import json
import re
from dataclasses import dataclass
from enum import StrEnum

from controlplane.common.sentences import say

BODY_SHOWN_MAX_BYTES = 64 * 1024
# Parsed and indented whole, before it is cut.
_JSON_MAX_BYTES = 512 * 1024
_INDENT = "  "
# Of valid JSON: an empty object or array, a sign, a text, or a number or word. The possessive repeats (`*+`) keep no state to
# go back to; without them, a long text takes more than 100 bytes for each of its characters.
_TOKEN = re.compile(r'\{\s*\}|\[\s*\]|[{}\[\],:]|"(?:[^"\\]++|\\.)*+"|[^\s{}\[\],:"]+')


class BodyForm(StrEnum):
    """How a body is shown. AUTO: as text where it is UTF-8 without control characters, else in hexadecimal."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class NotOfThisForm(ValueError):
    """The body can't be shown so: `sentence` says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body for the eye. `encoding` is utf-8, json, hex or base64.

    `truncated` says that `text` holds only the first `shown_bytes` of `size_bytes`.
    """

    encoding: str
    text: str
    size_bytes: int
    shown_bytes: int

    @property
    def truncated(self) -> bool:
        return self.shown_bytes < self.size_bytes


def body_shown(body: bytes, limit_bytes: int, form: BodyForm = BodyForm.AUTO) -> ShownBody:
    """Return the body, cut after `limit_bytes` (at most 64 KiB) and never inside a character. Raises NotOfThisForm.

    Of JSON its indented text has at most about so many bytes; `shown_bytes` says how far in the body it goes.
    """
    limit_bytes = max(0, min(limit_bytes, BODY_SHOWN_MAX_BYTES))
    head = body[:limit_bytes]
    match form:
        case BodyForm.JSON:
            source = _json_text(body)
            text, read = indented(source, limit_bytes)
            return ShownBody("json", text, len(body), len(source[:read].encode("utf-8")))
        case BodyForm.BASE64:
            return ShownBody("base64", base64.b64encode(head).decode("ascii"), len(body), len(head))
        case BodyForm.TEXT:
            shown = head.decode("utf-8", "replace")
            text = "".join(one if one.isprintable() or one in "\t\r\n" else "\ufffd" for one in shown)
            return ShownBody("utf-8", text, len(body), len(head))
        case BodyForm.AUTO:
            found = _as_text(head, complete=len(head) == len(body))
            if found is not None:
                return ShownBody("utf-8", found, len(body), len(found.encode("utf-8")))
    return ShownBody("hex", head.hex(), len(body), len(head))


def _as_text(head: bytes, *, complete: bool) -> str | None:
    """Return the text without the character that the cut may have split; None for what isn't text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=complete)
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else None


def _json_text(body: bytes) -> str:
    if len(body) > _JSON_MAX_BYTES:
        kibibytes = _JSON_MAX_BYTES // 1024
        raise NotOfThisForm(say("A body of more than %(kibibytes)s KiB is not shown as JSON.", kibibytes=kibibytes))
    try:
        text = body.decode("utf-8")
        # Only whether it is JSON: numbers stay texts, however long.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise NotOfThisForm(say("This body is not JSON.")) from error
    return text


def indented(text: str, limit: int) -> tuple[str, int]:
    """Return valid JSON with a line for each member and element, and how many of its characters were read.

    It ends after a number, text or sign with which it reaches `limit` characters. Numbers and texts stay as they were written.
    """
    parts: list[str] = []
    size = depth = 0
    for match in _TOKEN.finditer(text):
        part = match[0]
        if part[0] in "{[" and len(part) == 1:
            depth += 1
            part = f"{part}\n{_INDENT * depth}"
        elif part[0] in "{[":  # with nothing in it
            part = part[0] + part[-1]
        elif part in "}]":
            depth -= 1
            part = f"\n{_INDENT * depth}{part}"
        elif part == ",":
            part = f",\n{_INDENT * depth}"
        elif part == ":":
            part = ": "
        parts.append(part)
        size += len(part)
        if size >= limit:
            return "".join(parts), match.end()
    return "".join(parts), len(text)
