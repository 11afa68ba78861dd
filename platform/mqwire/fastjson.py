"""The JSON that RocketMQ's Java programs write and read through fastjson, which is wider than JSON.

Strategy: standard JSON goes through msgspec at C speed (bodies/base.py). Only what that refuses comes here, to a
scanner that also takes what fastjson writes and accepts:

    {0:"10.0.0.1:10911"}                           numbers as member names (brokerAddrs)
    {{"brokerName":"a","queueId":0,...}:{...}}     objects as member names (offsetTable, mqTable)
    {name:1, 'name':'x'}                           bare and single-quoted names and texts
    [1,2,], {"a":1,}                               a trailing comma
    12L, 1.5F, 3S                                  Java's number suffixes
    "\\x41 \\v \\'", raw control characters          Java's escapes

It is linear in its input: each character is looked at by one regular expression once. Depth and size are bounded, so
that no input can cost more than its own length. Where that is too much, as it is for a daemon that serves others meanwhile
(a mebibyte of small values takes seconds), the number of values, names and escapes has a bound of its own.

Writing: names of maps are written as standard JSON wherever that is possible (`{"0":"..."}`: Java and Go's client both
take it, Go's splits the text at the first colon), and as objects where Java's type asks for an object.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from mqwire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

# RocketMQ's deepest body (TopicConfigAndMappingSerializeWrapper) has eight levels.
MAX_DEPTH = 32
# What a Java broker with some 20,000 topics registers; a standard JSON body is not bounded by this but by its frame.
MAX_LENGTH_BYTES = 4 * 1024 * 1024

_WHITESPACE = re.compile(r"[ \t\r\n\f\v\ufeff]*")
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?([LSBFD])?(?![\w.])", re.ASCII)
_BARE_NAME = re.compile(r"[A-Za-z_$][\w$.\-]{0,255}", re.ASCII)
_PLAIN_TEXT = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_SMALL_OBJECT_CHARACTERS = 1024
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "F": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "0": "\0",
}
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "undefined": None}


def loads(
    data: bytes | bytearray | memoryview,
    *,
    object_key: Callable[[dict[Any, Any]], Hashable] | None = None,
    max_depth: int = MAX_DEPTH,
    max_length_bytes: int = MAX_LENGTH_BYTES,
    max_parts: int = MAX_LENGTH_BYTES,
) -> Any:
    """Read one value: dict, list, str, int, float, bool or None.

    Numbers as member names become their text. Objects as member names become what `object_key` makes of them; without
    it they are refused. Members that are null are left out, as Java doesn't distinguish them from absent ones; of members with
    one name the last counts. Raises RemoteProtocolError for anything else, and for what is too deep, too long, or has more values,
    names and escapes than `max_parts`.
    """
    length_bytes = len(data)
    if length_bytes > max_length_bytes:
        raise RemoteProtocolError(f"a JSON text of {length_bytes} bytes; at most {max_length_bytes} are read")
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"a JSON text is not UTF-8 at byte {error.start}") from error
    scanner = _Scanner(text, object_key, max_depth, max_parts)
    value, position = scanner.value(0, 0)
    position = scanner.skip(position)
    if position != len(text):
        raise scanner.error(position, "text after the value")
    return value


class _Scanner:
    """One text; every method takes a position and gives what it read with the position after it."""

    __slots__ = ("_max_depth", "_object_key", "_parts_left", "_text")

    def __init__(
        self, text: str, object_key: Callable[[dict[Any, Any]], Hashable] | None, max_depth: int, max_parts: int
    ) -> None:
        self._text = text
        self._object_key = object_key
        self._max_depth = max_depth
        self._parts_left = max_parts

    def error(self, position: int, what: str) -> RemoteProtocolError:
        seen = self._text[position : position + 20]
        return RemoteProtocolError(f"JSON: {what} at character {position}, near {seen!r}")

    def skip(self, position: int) -> int:
        matched = _WHITESPACE.match(self._text, position)
        return matched.end() if matched else position

    def _peek(self, position: int) -> str:
        if position >= len(self._text):
            raise self.error(position, "the text ends too early")
        return self._text[position]

    def _count_part(self, position: int) -> None:
        self._parts_left -= 1
        if self._parts_left < 0:
            raise self.error(position, "too many values, names and escapes")

    def value(self, position: int, depth: int) -> tuple[Any, int]:
        self._count_part(position)
        position = self.skip(position)
        first = self._peek(position)
        if first == "{":
            return self._object(position, depth + 1)
        if first == "[":
            return self._array(position, depth + 1)
        if first in "\"'":
            return self._quoted(position, first)
        if first in "+-0123456789":
            return self._number(position)
        matched = _BARE_NAME.match(self._text, position)
        if matched and matched.group() in _LITERALS:
            return _LITERALS[matched.group()], matched.end()
        raise self.error(position, "no value")

    def _enter(self, position: int, depth: int) -> None:
        if depth > self._max_depth:
            raise self.error(position, f"nested deeper than {self._max_depth}")

    def _object(self, position: int, depth: int) -> tuple[dict[Any, Any], int]:
        self._enter(position, depth)
        members: dict[Any, Any] = {}
        position = self.skip(position + 1)
        while self._peek(position) != "}":
            name, position = self._member_name(position, depth)
            position = self.skip(position)
            if self._peek(position) != ":":
                raise self.error(position, "a member's name without a colon")
            value, position = self.value(position + 1, depth)
            if value is None:
                members.pop(name, None)
            else:
                members[name] = value
            position = self._separator(position, "}")
        return members, position + 1

    def _member_name(self, position: int, depth: int) -> tuple[Hashable, int]:
        self._count_part(position)
        first = self._peek(position)
        if first in "\"'":
            return self._quoted(position, first)
        if first == "{":
            return self._object_name(position, depth)
        matched = _BARE_NAME.match(self._text, position)
        if matched:
            return matched.group(), matched.end()
        number, end = self._number(position)
        return str(number), end

    def _object_name(self, position: int, depth: int) -> tuple[Hashable, int]:
        if self._object_key is None:
            raise self.error(position, "an object as a member's name")
        members, end = self._small_object(position) or self._object(position, depth + 1)
        try:
            return self._object_key(members), end
        except msgspec.ValidationError as error:
            raise self.error(position, f"an object as a member's name ({error})") from error

    def _small_object(self, position: int) -> tuple[dict[Any, Any], int] | None:
        """An object that is standard JSON and holds no other, as those that stand as names are: a tenth of the work."""
        end = self._text.find("}", position, position + _SMALL_OBJECT_CHARACTERS) + 1
        try:
            members = _decode(self._text[position:end]) if end else None
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
        if not isinstance(members, dict):
            return None
        return {name: value for name, value in members.items() if value is not None}, end

    def _array(self, position: int, depth: int) -> tuple[list[Any], int]:
        self._enter(position, depth)
        items: list[Any] = []
        position = self.skip(position + 1)
        while self._peek(position) != "]":
            value, position = self.value(position, depth)
            items.append(value)
            position = self._separator(position, "]")
        return items, position + 1

    def _separator(self, position: int, closing: str) -> int:
        """After a comma, or at the closing bracket."""
        position = self.skip(position)
        found = self._peek(position)
        if found == ",":
            return self.skip(position + 1)
        if found != closing:
            raise self.error(position, f"neither a comma nor {closing}")
        return position

    def _number(self, position: int) -> tuple[int | float, int]:
        matched = _NUMBER.match(self._text, position)
        if not matched:
            raise self.error(position, "no number")
        token, suffix = matched.group(), matched.group(3)
        if suffix:
            token = token[:-1]
        if matched.group(1) is None and matched.group(2) is None and suffix not in ("F", "D"):
            return int(token), matched.end()
        number = float(token)
        if not math.isfinite(number):
            raise self.error(position, "a number out of range")
        return number, matched.end()

    def _quoted(self, position: int, quote: str) -> tuple[str, int]:
        text = self._text
        plain = _PLAIN_TEXT[quote]
        parts: list[str] = []
        position += 1
        while True:
            matched = plain.match(text, position)
            end = matched.end() if matched else position
            parts.append(text[position:end])
            if self._peek(end) == quote:
                return "".join(parts), end + 1
            character, position = self._escape(end)
            parts.append(character)

    def _escape(self, position: int) -> tuple[str, int]:
        self._count_part(position)
        letter = self._peek(position + 1)
        if letter == "u":
            unit = self._hexadecimal(position + 2, 4)
            position += 6
            if 0xD800 <= unit <= 0xDBFF and self._text.startswith("\\u", position):
                low = self._hexadecimal(position + 2, 4)
                if 0xDC00 <= low <= 0xDFFF:
                    return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)), position + 6
            # Half of a pair can't be written as UTF-8: Java's encoder puts a question mark there.
            return ("?" if 0xD800 <= unit <= 0xDFFF else chr(unit)), position
        if letter == "x":
            return chr(self._hexadecimal(position + 2, 2)), position + 4
        character = _ESCAPES.get(letter)
        if character is None:
            raise self.error(position, "an unknown escape")
        return character, position + 2

    def _hexadecimal(self, position: int, digits: int) -> int:
        token = self._text[position : position + digits]
        if len(token) != digits or not _HEX_DIGITS.issuperset(token):
            raise self.error(position, f"not {digits} hexadecimal digits")
        return int(token, 16)


def dumps(value: Any) -> bytes:
    """Write builtins, Structs and maps with Structs as names; members that are None are left out, as fastjson does."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_plain_types: dict[type[msgspec.Struct], bool] = {}


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, msgspec.Struct):
        struct_type = type(value)
        plain = _plain_types.get(struct_type)
        if plain is None:
            plain = _plain_types[struct_type] = _is_plain(msgspec.inspect.type_info(struct_type))
        if plain:
            parts.append(_encode(value))
            return
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        _write_members([(wire_name, getattr(value, attribute)) for attribute, wire_name in names], parts)
    elif isinstance(value, dict):
        _write_members(list(value.items()), parts)
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts.append(b"[")
        for index, item in enumerate(value):
            if index:
                parts.append(b",")
            _write(item, parts)
        parts.append(b"]")
    else:
        parts.append(_encode(value))


def _write_members(members: list[tuple[Any, Any]], parts: list[bytes]) -> None:
    parts.append(b"{")
    separator = b""
    for name, value in members:
        if value is None:
            continue
        parts.append(separator)
        separator = b","
        if isinstance(name, msgspec.Struct):
            _write(name, parts)
        else:
            parts.append(_encode(str(name)))
        parts.append(b":")
        _write(value, parts)
    parts.append(b"}")


def _is_plain(node: msgspec.inspect.Type) -> bool:
    """Whether msgspec's own encoder writes this type just as fastjson would: no None, no objects as names."""
    if isinstance(node, msgspec.inspect.StructType):
        return all(_is_plain(field.type) for field in node.fields)
    if isinstance(node, msgspec.inspect.DictType):
        return isinstance(node.key_type, (msgspec.inspect.StrType, msgspec.inspect.IntType)) and _is_plain(
            node.value_type
        )
    if isinstance(node, msgspec.inspect.CollectionType):
        return _is_plain(node.item_type)
    return isinstance(
        node,
        (
            msgspec.inspect.StrType,
            msgspec.inspect.IntType,
            msgspec.inspect.FloatType,
            msgspec.inspect.BoolType,
        ),
    )
