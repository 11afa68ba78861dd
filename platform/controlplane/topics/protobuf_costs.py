"""What decoding a protobuf body takes, counted on its bytes before anything is spent. Pure.

A body and its schema may both be hostile. Two bytes of a body make an empty message, whose size in memory is its schema's affair,
and one byte an enumeration's value, whose name is. So the bytes are walked first as protobuf's parser would, and the walk ends
where the sum is more than what is allowed.
"""

from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

# As deep as protobuf's parser goes.
DEPTH_MAX = 100
_ANY = "google.protobuf.Any"
# Upper bounds in bytes of memory, of protobuf's and of Python's objects. A field has at most 16 bytes in its message.
_MESSAGE_BYTES, _FIELD_BYTES, _VALUE_BYTES = 512, 17, 128
# A number with its sign, or a truth value.
_NUMBER_CHARACTERS = 26
# JSON writes a control character as six.
_ESCAPED_CHARACTERS = 6
# A line is indented by two blanks for each bracket that is open, and a message in a list opens two.
_INDENT_CHARACTERS = 4

_FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = 1, 2, 3, 4, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


class TooCostly(Exception):
    """Decoding the body takes more than is allowed, or more than one pass can tell."""


class Malformed(Exception):
    """The bytes are no message, or nest too deep."""


@dataclass(slots=True)
class _Field:
    # Of one value without what a text holds: memory, and characters of JSON.
    value_bytes: int
    is_text: bool
    is_repeated: bool
    message: Descriptor | None
    # A message between marks of its begin and end, instead of after its length. In the other form it is of no field.
    is_group: bool


@dataclass(slots=True)
class _Shape:
    """A message type: what an empty one takes, and its fields by number."""

    empty_bytes: int
    is_any: bool
    fields: dict[int, _Field]


_UNKNOWN = _Field(_VALUE_BYTES, False, True, None, False)
_NO_FIELDS = _Shape(0, False, {})


class Costs:
    """Counts what bodies of a pool's messages take. `has_any`: some may hold a message of a type that their bytes name."""

    def __init__(self, pool: DescriptorPool, *, has_any: bool) -> None:
        self._pool = pool
        self._has_any = has_any
        self._shapes: dict[str, _Shape] = {}
        self._enumerations: dict[str, int] = {}

    def count(self, kind: Descriptor, body: bytes, most_bytes: int) -> int:
        """Return an upper bound of what the body takes as a message and as JSON. Raises TooCostly, Malformed."""
        walk = _Walk(self, body, most_bytes)
        walk.message(kind, 0, len(body), 0)
        if walk.holds_malformed:
            raise Malformed
        return most_bytes - walk.left_bytes

    def merges(self) -> bool:
        """Whether parts of a message may be in several places, and the whole be more than they are."""
        return self._has_any

    def named(self, type_url: bytes) -> Descriptor | None:
        """Return the type of what an Any holds, as protobuf finds it; None for what the pool has not."""
        try:
            found: Descriptor = self._pool.FindMessageTypeByName(type_url.decode("utf-8").rpartition("/")[2])
        except (KeyError, UnicodeDecodeError):
            return None
        return found

    def shape_of(self, kind: Descriptor) -> _Shape:
        """Return the type's shape, made once."""
        found = self._shapes.get(kind.full_name)
        if found is None:
            found = self._shapes[kind.full_name] = self._shape(kind)
        return found

    def _shape(self, kind: Descriptor) -> _Shape:
        extensions = self._pool.FindAllExtensions(kind) if kind.is_extendable else []
        fields = {one.number: self._field(one) for one in (*kind.fields, *extensions)}
        empty_bytes = _MESSAGE_BYTES + _FIELD_BYTES * len(fields)
        if kind.GetOptions().map_entry and (value := kind.fields_by_name["value"].message_type) is not None:
            # An entry without a value has an empty one.
            empty_bytes += _MESSAGE_BYTES + _FIELD_BYTES * len(value.fields)
        return _Shape(empty_bytes, kind.full_name == _ANY, fields)

    def _field(self, one: FieldDescriptor) -> _Field:
        name = one.full_name if one.is_extension else one.name
        characters = len(name) + _NUMBER_CHARACTERS
        if one.enum_type is not None:
            characters += self._longest_name(one.enum_type)
        is_text = one.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
        is_group = one.type == FieldDescriptor.TYPE_GROUP
        return _Field(_VALUE_BYTES + characters, is_text, one.is_repeated, one.message_type, is_group)

    def _longest_name(self, enumeration: EnumDescriptor) -> int:
        found = self._enumerations.get(enumeration.full_name)
        if found is None:
            found = max(len(value.name) for value in enumeration.values)
            self._enumerations[enumeration.full_name] = found
        return found


class _Walk:
    """One pass over a body. `left_bytes` is what may still be spent."""

    def __init__(self, costs: Costs, body: bytes, most_bytes: int) -> None:
        self._costs = costs
        self._body = body
        self.left_bytes = most_bytes
        self.holds_malformed = False  # in an Any: a later one of the same field may take its place

    def message(self, kind: Descriptor, at: int, end: int, depth: int) -> None:
        """Count a message that lies in `at` to `end`."""
        self._fields(self._costs.shape_of(kind), at, end, depth, None)

    def _fields(self, shape: _Shape, at: int, end: int, depth: int, group: int | None) -> int:
        """Count the fields up to `end`, or to where the group of this number ends; return where that is."""
        if depth > DEPTH_MAX:
            raise Malformed
        # Of the value, and of the brackets around it.
        indents = 3 * _INDENT_CHARACTERS * (depth + 1)
        self._spend(shape.empty_bytes + indents)
        seen: set[int] = set()
        texts: dict[int, tuple[int, int]] = {}
        while at < end:
            tag, at = self._varint(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == _GROUP_END and number == group:
                return at
            # protobuf passes over a group that is of no field, and looks at no number in it.
            if (not number and shape is not _NO_FIELDS) or tag >= 2**32:
                raise Malformed
            one = shape.fields.get(number, _UNKNOWN)
            self._spend(one.value_bytes + indents)
            if one.message is not None and not one.is_repeated:
                if number in seen and self._costs.merges():
                    raise TooCostly
                seen.add(number)
            if wire == _GROUP:
                own = one.message if one.is_group else None
                inner = _NO_FIELDS if own is None else self._costs.shape_of(own)
                at = self._fields(inner, at, end, depth + 1, number)
                continue
            begin, at = self._value(wire, at, end)
            if wire != _LENGTH or one.is_group:
                continue
            if one.message is not None:
                self.message(one.message, begin, at, depth + 1)
            elif one.is_text:
                self._spend((at - begin) * _ESCAPED_CHARACTERS)
                texts[number] = (begin, at)
            elif one is not _UNKNOWN:  # packed, each of a byte at least
                self._spend((at - begin) * (one.value_bytes + indents))
        if group is not None:
            raise Malformed
        if shape.is_any:
            self._held(texts, depth)
        return at

    def _held(self, texts: dict[int, tuple[int, int]], depth: int) -> None:
        """Count the message that an Any holds. Of what has no type that is known JSON is not made."""
        named, value = texts.get(1), texts.get(2, (0, 0))
        kind = None if named is None else self._costs.named(self._body[slice(*named)])
        if kind is not None:
            try:
                self.message(kind, *value, depth + 1)
            except Malformed:
                self.holds_malformed = True

    def _value(self, wire: int, at: int, end: int) -> tuple[int, int]:
        """Return where a value that is no group begins, without its length, and ends."""
        if wire == 0:
            return at, self._varint(at, end)[1]
        if wire == _LENGTH:
            length, at = self._varint(at, end)
        elif wire in _FIXED_BYTES:
            length = _FIXED_BYTES[wire]
        else:
            raise Malformed
        if at + length > end:
            raise Malformed
        return at, at + length

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            if at >= end:
                break
            byte = self._body[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, at
        raise Malformed

    def _spend(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise TooCostly
