"""Taking binary extension fields apart in one call.

A program's requests of one kind look alike: the same field names in the same order, most values of the same length,
many even the same. A layout seen once is compiled into one `struct`, which takes the next such header apart with one
call; names, lengths and the values that seldom change are compared as constants between the others. A header that
differs anywhere gets a layout of its own.
"""

from __future__ import annotations

import struct
from typing import Final

from mqwire.errors import RemoteProtocolError

_MAX_FIELDS: Final = 64
_MAX_LAYOUTS: Final = 1024
# Larger areas are taken apart each time: what a stranger may fill this memory with stays at a few MiB.
MAX_KEPT_BYTES: Final = 4096

# Requests of one length whose constants differ (two topics of equally long names) mostly differ in here already.
_KEY_BYTES: Final = 64


class FieldLayout:
    """One shape of a field area, seen in `raw`.

    Values of fields named in `varying` are taken apart, all else is constant. `unpack(raw)` gives constants at even
    places and varying values at odd ones, in the order of `varying_names`; `fields` are all fields as `raw` had them.
    Of a name that stands there twice, as Java's signing client writes each, the last counts, as in Java's map.
    """

    __slots__ = ("constants", "fields", "has_constant_fields", "unpack", "varying_names")

    def __init__(self, raw: bytes, varying: frozenset[str] | None) -> None:
        self.fields: dict[str, bytes] = {}
        names: list[str] = []
        shape: list[str] = []
        position = constant_start = count = 0
        end = len(raw)
        while position < end:
            name_end = position + 2 + int.from_bytes(raw[position : position + 2], "big")
            value_start = name_end + 4
            value_end = value_start + int.from_bytes(raw[name_end:value_start], "big")
            if value_end > end or value_start > end or count >= _MAX_FIELDS:
                raise RemoteProtocolError("an extension field is longer than the header, or there are too many fields")
            try:
                name = raw[position + 2 : name_end].decode()
            except UnicodeDecodeError as error:
                raise RemoteProtocolError("an extension field's name is not UTF-8") from error
            self.fields[name] = raw[value_start:value_end]
            if varying is None or name in varying:
                names.append(name)
                shape.append(f"{value_start - constant_start}s{value_end - value_start}s")
                constant_start = value_end
            position = value_end
            count += 1
        shape.append(f"{end - constant_start}s")
        layout = struct.Struct("".join(shape))
        self.varying_names = tuple(names)
        # A name may stand there twice: the names are counted, not the places.
        self.has_constant_fields = len(set(names)) < len(self.fields)
        self.unpack = layout.unpack
        self.constants = layout.unpack(raw)[0::2]


class FieldLayouts:
    """The layouts that were met for one kind of requests.

    `varying` names the fields whose values differ from request to request; None means all of them.
    """

    __slots__ = ("_layouts", "_varying")

    def __init__(self, varying: frozenset[str] | None = None) -> None:
        self._varying = varying
        self._layouts: dict[tuple[int, bytes], FieldLayout] = {}

    def match(self, raw: bytes) -> tuple[FieldLayout, tuple[bytes, ...]]:
        """The layout of `raw` and its parts; raises RemoteProtocolError for lengths that do not fit."""
        key = (len(raw), raw[:_KEY_BYTES])
        layout = self._layouts.get(key)
        if layout is not None:
            parts = layout.unpack(raw)
            if parts[0::2] == layout.constants:
                return layout, parts
        layout = FieldLayout(raw, self._varying)
        if len(raw) > MAX_KEPT_BYTES:
            return layout, layout.unpack(raw)
        if len(self._layouts) >= _MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[key] = layout
        return layout, layout.unpack(raw)

    def fields(self, raw: bytes) -> dict[str, str]:
        """All fields as text; what `decode_ext_fields` gives, faster for requests of a known shape."""
        layout, parts = self.match(raw)
        try:
            if layout.has_constant_fields:
                values = dict(layout.fields)
                values.update(zip(layout.varying_names, parts[1::2], strict=True))
                return {name: value.decode() for name, value in values.items()}
            return dict(zip(layout.varying_names, map(_decode_utf8, parts[1::2]), strict=True))
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("an extension field is not UTF-8") from error


def _decode_utf8(value: bytes) -> str:
    return value.decode()
