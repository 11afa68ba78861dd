"""RocketMQ's properties files (broker.conf, namesrv.conf, a broker's configuration on the wire), with line numbers.

What java.util.Properties reads: `key=value`, `key:value` or `key value`; comments after # or ! at a line's start; a
backslash at a line's end joins the next line; \\t \\n \\r \\f \\uXXXX, and a backslash before any other character.
The text is UTF-8 here, where Java's is Latin-1 with escapes: pure ASCII reads the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_SEPARATOR = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)|\\\Z", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """The text cannot be read; `line` says where (counted from 1)."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class Property(NamedTuple):
    """One entry, with the line on which it starts."""

    line: int
    key: str
    value: str


def parse_properties(content: bytes) -> list[Property]:
    """All entries in the file's order; a key that stands there twice is there twice. Raises PropertiesError."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise PropertiesError(content.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from error
    if "\0" in text:
        raise PropertiesError(text.count("\n", 0, text.index("\0")) + 1, "a NUL character; this is no text file")
    entries: list[Property] = []
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    number = 0
    while number < len(lines):
        first_line = number + 1
        logical = lines[number].lstrip(" \t\f")
        number += 1
        if not logical or logical[0] in "#!":
            continue
        parts = []
        while _continues(logical) and number < len(lines):
            parts.append(logical[:-1])
            logical = lines[number].lstrip(" \t\f")
            number += 1
        parts.append(logical)
        entries.append(_entry(first_line, "".join(parts)))
    return entries


def _continues(line: str) -> bool:
    """Whether the line ends with a backslash that isn't itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _entry(line: int, logical: str) -> Property:
    matched = _SEPARATOR.fullmatch(logical)
    if matched is None:
        raise PropertiesError(line, f"{logical[:80]!r} is not key=value")
    key = _unescape(line, matched["key"])
    if not key:
        raise PropertiesError(line, f"{logical[:80]!r} has no key")
    # Java keeps blanks after a value; no one means them.
    return Property(line, key, _unescape(line, matched["value"].rstrip(" \t\f")))


def _unescape(line: int, text: str) -> str:
    if "\\" not in text:
        return text

    def replace(matched: re.Match[str]) -> str:
        escaped = matched.group(1)
        if escaped is None:
            return ""
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise PropertiesError(line, "\\u must be followed by four hexadecimal digits")
        return _ESCAPED.get(escaped, escaped)

    # A pair of escaped surrogates is one character, half a pair is none at all.
    return _ESCAPE.sub(replace, text).encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def format_properties(values: dict[str, str]) -> str:
    """Text that `parse_properties`, Java and shell-like readers all read back, one `key=value` per line."""
    return "".join(f"{_escape(key, key=True)}={_escape(value, key=False)}\n" for key, value in values.items())


def _escape(text: str, *, key: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    escaped = escaped.replace("\f", "\\f")
    if key:
        escaped = re.sub(r"([=: #!])", r"\\\1", escaped)
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    return escaped
