"""What a send's property string says to the broker, read once per shape.

A producer's messages mostly differ in UNIQ_KEY only. So the string without that value is looked up among those that were
read before; only a new one is searched.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokerd.processors.special_sends import has_special_properties
from brokerd.store import keys_of
from mqwire.errors import RemoteProtocolError
from mqwire.message import tags_code
from mqwire.names import (
    PROPERTY_CLUSTER,
    PROPERTY_MSG_REGION,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
)
from mqwire.unique_key import UniqueKeyGenerator

TAGS: Final = f"{PROPERTY_TAGS}\x01".encode()
_UNIQ_KEY: Final = b"UNIQ_KEY\x01"
_SHAPES_MAX: Final = 4096
# A shape with long values is not likely to come again.
_SHAPE_BYTES_MAX: Final = 512
# Nor is a long tag, and what is remembered is every sender's to fill.
_TAG_BYTES_MAX: Final = 128
# Each key takes 24 bytes of the index. Stock clients put the ids of all messages of which they send trace records into the keys:
# of 32 characters, properties hold fewer than these.
KEYS_MAX: Final = 1024


class StoredProperties(NamedTuple):
    """The property string to store, and what of it the broker acts on."""

    properties: bytes
    unique_key: bytes
    tags_code: int
    special: bool  # delays, transactions and their kin: see special_sends


class PropertyReader:
    """Reads property strings for one cluster, whose name every stored message carries, and its region where one is given.

    Java's consumers write no trace records of a message without a region, nor of one that says that tracing is off.
    """

    __slots__ = ("_own", "_shapes", "_unique_keys")

    def __init__(
        self, cluster_name: str, ip: str = "127.0.0.1", region: str | None = None, *, trace_on: bool = True
    ) -> None:
        own = {PROPERTY_CLUSTER: cluster_name}
        if region is not None:
            own[PROPERTY_MSG_REGION] = region
        if not trace_on:
            own[PROPERTY_TRACE_SWITCH] = "false"
        self._own = "".join(f"{name}\x01{value}\x02" for name, value in own.items()).encode()
        self._unique_keys = UniqueKeyGenerator(ip)
        # (before UNIQ_KEY's value, after it) -> (after it, as stored; tags code; special)
        self._shapes: dict[tuple[bytes, bytes], tuple[bytes, int, bool]] = {}

    def read(self, properties: bytes) -> StoredProperties:
        """Of a single message; a missing UNIQ_KEY is added. Raises RemoteProtocolError for a tag that is not UTF-8, and for too
        many keys.
        """
        start = properties.find(_UNIQ_KEY)
        if start < 0 or (start > 0 and properties[start - 1] != 2):
            start, properties = self._with_unique_key(properties)
        start += 9
        end = properties.find(b"\x02", start)
        if end < 0:
            end = len(properties)
        front = properties[:start]
        back = properties[end:]
        shape = self._shapes.get((front, back))
        if shape is None:
            shape = self._remember(front, back)
        unique_key = properties[start:end]
        return _new_tuple(StoredProperties, (front + unique_key + shape[0], unique_key, shape[1], shape[2]))

    def _with_unique_key(self, properties: bytes) -> tuple[int, bytes]:
        start = _find(properties, _UNIQ_KEY)
        if start >= 0:
            return start, properties
        if properties and properties[-1] != 2:
            properties += b"\x02"
        return len(properties), b"%b%b%b\x02" % (properties, _UNIQ_KEY, self._unique_keys.next_key().encode())

    def _remember(self, front: bytes, back: bytes) -> tuple[bytes, int, bool]:
        rest = front + back
        check_keys(rest)
        stored_back = back if back.endswith(b"\x02") else back + b"\x02"
        shape = (stored_back + self._own, tags_code_of(rest), has_special_properties(rest))
        if len(rest) <= _SHAPE_BYTES_MAX:
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            self._shapes[front, back] = shape
        return shape

    def shared_by_batch(self) -> bytes:
        """What each message of a batch stores besides its own properties.

        Not the batch's own: its UNIQ_KEY would hide those of the messages (MessageExtEncoder drops them, too).
        """
        return self._own


_new_tuple: Final = tuple.__new__
_tag_codes: dict[bytes, int] = {}


def tags_code_of(properties: bytes) -> int:
    """The tags code of a property string, 0 without TAGS; raises RemoteProtocolError for a tag that is not UTF-8."""
    start = _find(properties, TAGS)
    if start < 0:
        return 0
    start += len(TAGS)
    end = properties.find(b"\x02", start)
    tag = properties[start:end] if end >= 0 else properties[start:]
    if not tag:
        return 0
    code = _tag_codes.get(tag)
    if code is None:
        try:
            code = tags_code(tag.decode())
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("the message's tag is not UTF-8") from error
        if len(tag) <= _TAG_BYTES_MAX:
            if len(_tag_codes) >= _SHAPES_MAX:
                _tag_codes.clear()
            _tag_codes[tag] = code
    return code


def check_keys(properties: bytes) -> None:
    """Raise RemoteProtocolError when a message has more keys than are taken."""
    if properties.count(b" ") < KEYS_MAX:
        return
    count = len(keys_of(properties)[1])
    if count > KEYS_MAX:
        raise RemoteProtocolError(
            f"the message has {count} keys, at most {KEYS_MAX} are taken: leave in its keys (KEYS) what it is to be found by, and"
            " put the rest into another property or the body"
        )


def _find(properties: bytes, name: bytes) -> int:
    """Where the property `name` (ending in 0x01) begins; -1 when it is not there."""
    start = properties.find(name)
    while start > 0 and properties[start - 1] != 2:  # inside another property's name or value
        start = properties.find(name, start + 1)
    return start
