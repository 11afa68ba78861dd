"""The answer to a send (SendMessageResponseHeader), written straight as bytes: it is most of what a broker answers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from mqwire.codes import LanguageCode, SerializeType
from mqwire.command import BINARY_HEADER_MIN_BYTES, FLAG_RESPONSE, PROTOCOL_VERSION
from mqwire.names import DEFAULT_TRACE_REGION_ID, PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH

if TYPE_CHECKING:
    from brokerd.store import AppendResult, BatchResult
    from mqwire.command import RemotingCommand

_HEAD_BEFORE_OPAQUE: Final = struct.Struct(">IIhBh")
_HEAD_FROM_OPAQUE: Final = struct.Struct(">iiiI")
_FRAME_PREFIX: Final = struct.Struct(">II")
_json_text: Final = msgspec.json.Encoder().encode
_UNIQUE_KEY_BYTES: Final = 32
_TEMPLATES_MAX: Final = 8192


def _field(name: str, value: bytes) -> bytes:
    return _field_head(name, len(value)) + value


def _field_head(name: str, value_bytes: int) -> bytes:
    return len(name).to_bytes(2, "big") + name.encode() + value_bytes.to_bytes(4, "big")


def _binary_head(opaque: int, fields_bytes: int) -> bytes:
    """All of a binary answer in front of its fields."""
    header_bytes = BINARY_HEADER_MIN_BYTES + fields_bytes
    return _HEAD_BEFORE_OPAQUE.pack(
        4 + header_bytes, SerializeType.ROCKETMQ << 24 | header_bytes, 0, LanguageCode.PYTHON, PROTOCOL_VERSION
    ) + _HEAD_FROM_OPAQUE.pack(opaque, FLAG_RESPONSE, 0, fields_bytes)


class SendReplyEncoder:
    """Encodes SUCCESS answers for one broker, whose packed store host is in every message id."""

    def __init__(self, store_host: bytes, region_id: str = DEFAULT_TRACE_REGION_ID, *, trace_on: bool = True) -> None:
        self._host_hex = store_host.hex().upper().encode()
        self._region_id = region_id
        self._trace_on = "true" if trace_on else "false"
        self._tail = _field(PROPERTY_MSG_REGION, region_id.encode()) + _field(
            PROPERTY_TRACE_SWITCH, self._trace_on.encode()
        )
        self._json = (
            b'{"code":0,"extFields":{"msgId":"%%b","queueId":"%%d","queueOffset":"%%d","transactionId":"%%b",'
            b'"%b":"%b","%b":"%b"},"flag":%d,"language":"PYTHON","opaque":%%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}'
            % (
                PROPERTY_MSG_REGION.encode(),
                _json_text(region_id)[1:-1].replace(b"%", b"%%"),
                PROPERTY_TRACE_SWITCH.encode(),
                self._trace_on.encode(),
                FLAG_RESPONSE,
                PROTOCOL_VERSION,
            )
        )
        # By queue id and number of the queue offset's digits: all that is the same in such answers.
        self._templates: dict[tuple[int, int], tuple[bytes, bytes, bytes, bytes]] = {}

    def encode(self, request: RemotingCommand, queue_id: int, result: AppendResult, unique_key: bytes) -> bytes:
        """The frame that says where a message was stored."""
        physical_offset, _size_bytes, queue_offset, _time_ms = result
        if request.serialize_type == 1 and len(unique_key) == _UNIQUE_KEY_BYTES:
            offset = b"%d" % queue_offset
            template = self._templates.get((queue_id, len(offset)))
            if template is None:
                template = self._template(queue_id, len(offset))
            before_opaque, before_id, before_offset, before_key = template
            return b"%b%b%b%016X%b%b%b%b%b" % (
                before_opaque,
                request.opaque.to_bytes(4, "big", signed=True),
                before_id,
                physical_offset,
                before_offset,
                offset,
                before_key,
                unique_key,
                self._tail,
            )
        message_id = b"%b%016X" % (self._host_hex, physical_offset)
        return self._encode(request, message_id, queue_id, queue_offset, unique_key)

    def encode_batch(self, request: RemotingCommand, queue_id: int, result: BatchResult) -> bytes:
        """The frame that says where the messages of a batch were stored: all their ids in one."""
        offsets = result.physical_offsets
        host = self._host_hex
        ids = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper().encode()
        return self._encode(request, host + ids.replace(b",", b"," + host), queue_id, result.queue_offset, b"")

    def _encode(
        self, request: RemotingCommand, message_id: bytes, queue_id: int, queue_offset: int, unique_key: bytes
    ) -> bytes:
        if request.serialize_type == 0 and (not unique_key or unique_key.isalnum()):
            # Nothing in it needs escaping: message ids are hexadecimal, a UNIQ_KEY is letters and digits.
            header = self._json % (message_id, queue_id, queue_offset, unique_key, request.opaque)
            length = len(header)
            return _FRAME_PREFIX.pack(4 + length, length) + header
        if request.serialize_type == 1:
            fields = b"".join(
                (
                    _field("msgId", message_id),
                    _field("queueId", b"%d" % queue_id),
                    _field("queueOffset", b"%d" % queue_offset),
                    _field("transactionId", unique_key),
                    self._tail,
                )
            )
            return b"".join((_binary_head(request.opaque, len(fields)), fields))
        reply = request.reply(
            ext_fields={
                "msgId": message_id.decode(),
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
                "transactionId": unique_key.decode("utf-8", "replace"),
                PROPERTY_MSG_REGION: self._region_id,
                PROPERTY_TRACE_SWITCH: self._trace_on,
            }
        )
        return reply.encode()

    def _template(self, queue_id: int, offset_digits: int) -> tuple[bytes, bytes, bytes, bytes]:
        before_id = _field_head("msgId", len(self._host_hex) + 16) + self._host_hex
        before_offset = _field("queueId", b"%d" % queue_id) + _field_head("queueOffset", offset_digits)
        before_key = _field_head("transactionId", _UNIQUE_KEY_BYTES)
        fields_bytes = (
            len(before_id)
            + 16
            + len(before_offset)
            + offset_digits
            + len(before_key)
            + _UNIQUE_KEY_BYTES
            + len(self._tail)
        )
        head = _binary_head(0, fields_bytes)
        before_opaque, behind_opaque = head[: _HEAD_BEFORE_OPAQUE.size], head[_HEAD_BEFORE_OPAQUE.size + 4 :]
        before_id = behind_opaque + before_id
        template = (before_opaque, before_id, before_offset, before_key)
        if len(self._templates) < _TEMPLATES_MAX:
            self._templates[queue_id, offset_digits] = template
        return template
