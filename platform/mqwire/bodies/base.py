"""Body: the typed form of a command's JSON body, and MessageQueue, which some bodies have as member names."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from mqwire import fastjson
from mqwire.errors import RemoteProtocolError
from mqwire.first_decode import convert, json_decoder
from mqwire.header import Int32

BodyT = TypeVar("BodyT", bound="Body")

# What a daemon takes of a client at once, for others wait meanwhile. A heartbeat has some 600 bytes for each group.
CLIENT_BYTES_MAX: Final = 1024 * 1024
# Of what is not standard JSON: some 30 ms for a broker. Go's client, which writes null, has 35 for each of its groups.
CLIENT_PARTS_MAX: Final = 8192


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all bodies: immutable, compared by value (change one with `msgspec.structs.replace`).

    Attributes are snake_case, the wire's names camelCase; members that a class doesn't know are ignored.
    """

    def to_json(self) -> bytes:
        """JSON that Java's fastjson and Go's client read; members that are None are left out."""
        return fastjson.dumps(self)

    @classmethod
    def from_json(cls: type[BodyT], data: bytes | bytearray | memoryview) -> BodyT:
        """A body from what arrived, fastjson's dialect included.

        Raises RemoteProtocolError that names the type and, where there is one, the member that can't be read.
        """
        try:
            body: BodyT = json_decoder(cls).decode(data)
            return body
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # Not standard JSON, or null where Java leaves a member out: the slow way takes it or says what is wrong.
            return cls._from_loose_json(data, fastjson.MAX_LENGTH_BYTES)

    @classmethod
    def from_client(
        cls: type[BodyT], data: bytes | bytearray | memoryview, *, max_parts: int = CLIENT_PARTS_MAX
    ) -> BodyT:
        """As `from_json`, for a daemon that others wait for: at most CLIENT_BYTES_MAX, and of what is not standard JSON so many
        values, names and escapes.
        """
        if len(data) > CLIENT_BYTES_MAX:
            raise RemoteProtocolError(
                f"{cls.__name__}: a body of {len(data)} bytes; at most {CLIENT_BYTES_MAX} are read: ask for less at once"
            )
        try:
            body: BodyT = json_decoder(cls).decode(data)
            return body
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return cls._from_loose_json(data, max_parts)

    @classmethod
    def _from_loose_json(cls: type[BodyT], data: bytes | bytearray | memoryview, max_parts: int) -> BodyT:
        try:
            body: BodyT = convert(fastjson.loads(data, object_key=_message_queue, max_parts=max_parts), cls)
            return body
        except msgspec.ValidationError as error:
            raise RemoteProtocolError(f"{cls.__name__}: {error}") from error
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{cls.__name__}: {error}") from error


class MessageQueue(Body, frozen=True, kw_only=True, order=True):
    """One queue of a topic on one broker group; ordered by topic, broker, queue."""

    topic: str
    broker_name: str
    queue_id: Int32


def _message_queue(members: dict[Any, Any]) -> MessageQueue:
    queue: MessageQueue = convert(members, MessageQueue)
    return queue
