"""RemotingCommand: one request or response, and its bytes.

A frame on the wire (RemotingCommand, RocketMQSerializable):

    | total length, 4 | type, 1 + header length, 3 | header ... | body ... |
      of all after it    0 = JSON, 1 = ROCKETMQ

    a ROCKETMQ header:
    | code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4, remark | fields length 4 |
    then per field | key length 2, key | value length 4, value |

Extension fields are decoded on first use only: the broker's hot path reads the few that it wants straight from
`raw_ext_fields`.
"""

from __future__ import annotations

import itertools
import json
import struct
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec

from mqwire.codes import LanguageCode, SerializeType
from mqwire.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mqwire.header import CustomHeader

    HeaderT = TypeVar("HeaderT", bound=CustomHeader)

FLAG_RESPONSE = 0x1
FLAG_ONEWAY = 0x2

# What this end says it is: the ordinal of V5_3_3 in RocketMQ's MQVersion. Brokers and clients read it to learn which
# optional fields the other end knows (retry limits on send back, tag filters without class filters).
PROTOCOL_VERSION = 479

MAX_HEADER_LENGTH_BYTES = 0xFFFFFF
# No request of RocketMQ's has more than thirty.
MAX_EXT_FIELDS: Final = 128

BINARY_HEADER_MIN_BYTES: Final = 21
_FIXED_HEADER = struct.Struct(">hBhii")
_FRAME_PREFIX = struct.Struct(">II")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")

_opaque = itertools.count(1)


_Int32 = Annotated[int, msgspec.Meta(ge=-0x80000000, le=0x7FFFFFFF)]


class _JsonHeader(msgspec.Struct, gc=False):
    """The JSON form of a header, as fastjson writes it."""

    code: _Int32
    language: str | None = None
    version: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # the wire's own name


_decode_json: Final = msgspec.json.Decoder(_JsonHeader).decode
_json_encoder = msgspec.json.Encoder()
_LANGUAGE_NUMBERS = {code.name: int(code) for code in LanguageCode}
_OTHER_LANGUAGE: Final = int(LanguageCode.OTHER)
_LANGUAGE_NAMES = {int(code): code.name for code in LanguageCode}


class RemotingCommand:
    """One request or response.

    `body` is bytes-like and empty when there is none. `ext_fields` maps names to strings, as on the wire.
    """

    __slots__ = (
        "_ext_fields",
        "body",
        "code",
        "flag",
        "language",
        "opaque",
        "raw_ext_fields",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(
        self,
        code: int,
        *,
        language: int = LanguageCode.PYTHON,
        version: int = PROTOCOL_VERSION,
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        raw_ext_fields: bytes | None = None,
        body: bytes | bytearray | memoryview = b"",
        serialize_type: int = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.language = language
        self.version = version
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self._ext_fields = ext_fields
        self.raw_ext_fields = raw_ext_fields
        self.body = body
        self.serialize_type = serialize_type

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "request"
        return f"<RemotingCommand {kind} code={self.code} opaque={self.opaque} body={len(self.body)} bytes>"

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    @property
    def ext_fields(self) -> dict[str, str]:
        """The extension fields; raises RemoteProtocolError when a binary header's field area is malformed."""
        fields = self._ext_fields
        if fields is None:
            raw = self.raw_ext_fields
            fields = decode_ext_fields(raw) if raw else {}
            self._ext_fields = fields
        return fields

    def header(self, header_type: type[HeaderT]) -> HeaderT:
        """The extension fields as `header_type`; raises RemoteProtocolError that names a missing or bad field."""
        return header_type.from_ext_fields(self.ext_fields)

    @classmethod
    def request(
        cls,
        code: int,
        header: CustomHeader | None = None,
        *,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
        oneway: bool = False,
        serialize_type: int = SerializeType.JSON,
    ) -> RemotingCommand:
        """A new request with an opaque of its own; `header` and `ext_fields` are merged."""
        return cls(
            code,
            opaque=next(_opaque) & 0x7FFFFFFF,
            flag=FLAG_ONEWAY if oneway else 0,
            ext_fields=_merge(header, ext_fields),
            body=body,
            serialize_type=serialize_type,
        )

    def reply(
        self,
        code: int = 0,
        remark: str | None = None,
        *,
        header: CustomHeader | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes | bytearray | memoryview = b"",
    ) -> RemotingCommand:
        """The response to this request: the same opaque, written in the same kind of header."""
        return RemotingCommand(
            code,
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields=_merge(header, ext_fields),
            body=body,
            serialize_type=self.serialize_type,
        )

    def encode(self) -> bytes:
        """The whole frame; raises LocalProtocolError when the header is longer than 24 bits can say."""
        return encode_frame_prefix(self) + bytes(self.body)


_new_command: Final = RemotingCommand.__new__


def _merge(header: CustomHeader | None, ext_fields: Mapping[str, str] | None) -> dict[str, str]:
    fields = {} if header is None else header.to_ext_fields()
    if ext_fields:
        fields.update(ext_fields)
    return fields


def encode_frame_prefix(command: RemotingCommand) -> bytes:
    """All of the frame but its body, for callers that write the body from elsewhere (a slice of the CommitLog)."""
    header = (
        _encode_binary_header(command)
        if command.serialize_type == SerializeType.ROCKETMQ
        else _encode_json_header(command)
    )
    length = len(header)
    if length > MAX_HEADER_LENGTH_BYTES:
        raise LocalProtocolError(f"the header is {length} bytes long, at most {MAX_HEADER_LENGTH_BYTES} can be written")
    return _FRAME_PREFIX.pack(4 + length + len(command.body), command.serialize_type << 24 | length) + header


def _encode_json_header(command: RemotingCommand) -> bytes:
    fields: dict[str, Any] = {
        "code": int(command.code),
        "flag": command.flag,
        "language": _LANGUAGE_NAMES.get(command.language, "OTHER"),
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.ext_fields:
        fields["extFields"] = command.ext_fields
    if command.remark is not None:
        fields["remark"] = command.remark
    return _json_encoder.encode(fields)


def encode_ext_fields(fields: Mapping[str, str]) -> bytes:
    """The binary form of extension fields."""
    parts: list[bytes] = []
    for key, value in fields.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        parts += (_INT16.pack(len(key_bytes)), key_bytes, _INT32.pack(len(value_bytes)), value_bytes)
    return b"".join(parts)


def _encode_binary_header(command: RemotingCommand) -> bytes:
    remark = command.remark.encode() if command.remark else b""
    fields = command.raw_ext_fields if command._ext_fields is None else encode_ext_fields(command._ext_fields)
    fields = fields or b""
    return b"".join(
        (
            _FIXED_HEADER.pack(command.code, command.language, command.version, command.opaque, command.flag),
            _INT32.pack(len(remark)),
            remark,
            _INT32.pack(len(fields)),
            fields,
        )
    )


def decode_ext_fields(raw: bytes) -> dict[str, str]:
    """Extension fields from their binary form, of each name the last; raises RemoteProtocolError for lengths that do not fit."""
    fields: dict[str, str] = {}
    position = 0
    end = len(raw)
    from_bytes = int.from_bytes
    try:
        # Each is counted, also of names that were there before.
        for _ in range(MAX_EXT_FIELDS):
            if position >= end:
                return fields
            key_end = position + 2 + from_bytes(raw[position : position + 2], "big")
            value_start = key_end + 4
            # An empty tail would read as length 0: the comparison with `end` catches every short read.
            value_end = value_start + from_bytes(raw[key_end:value_start], "big")
            if value_end > end or value_start > end:
                raise RemoteProtocolError("an extension field is longer than the header that holds it")
            fields[raw[position + 2 : key_end].decode()] = raw[value_start:value_end].decode()
            position = value_end
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("an extension field is not UTF-8") from error
    if position < end:
        raise RemoteProtocolError(f"a header has at most {MAX_EXT_FIELDS} extension fields")
    return fields


def decode_header(header: bytes, serialize_type: int, body: bytes | memoryview) -> RemotingCommand:
    """One command from its header's bytes; raises RemoteProtocolError for anything malformed."""
    if serialize_type == SerializeType.ROCKETMQ:
        return _decode_binary_header(header, body)
    if serialize_type == SerializeType.JSON:
        return _decode_json_header(header, body)
    raise RemoteProtocolError(f"serialize type {serialize_type} is neither JSON (0) nor ROCKETMQ (1)")


def _decode_binary_header(header: bytes, body: bytes | memoryview) -> RemotingCommand:
    end = len(header)
    if end < BINARY_HEADER_MIN_BYTES:
        raise RemoteProtocolError(f"a binary header has at least {BINARY_HEADER_MIN_BYTES} bytes, this one has {end}")
    code, language, version, opaque, flag = _FIXED_HEADER.unpack_from(header)
    remark_end = 17 + int.from_bytes(header[13:17], "big")
    fields_start = remark_end + 4
    if fields_start > end:
        raise RemoteProtocolError("the remark is longer than the header that holds it")
    if fields_start + int.from_bytes(header[remark_end:fields_start], "big") != end:
        raise RemoteProtocolError("the extension fields' length does not match the header's")
    remark = None
    if remark_end > 17:
        try:
            remark = header[17:remark_end].decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("the remark is not UTF-8") from error
    return binary_command(code, language, version, opaque, flag, remark, header[fields_start:], body)


def binary_command(
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    raw_ext_fields: bytes,
    body: bytes | memoryview,
) -> RemotingCommand:
    """A command whose header came in binary form and is already in pieces; the cheapest way to make one."""
    command = _new_command(RemotingCommand)
    command.code = code
    command.language = language
    command.version = version
    command.opaque = opaque
    command.flag = flag
    command.remark = remark
    command._ext_fields = None
    command.raw_ext_fields = raw_ext_fields
    command.body = body
    command.serialize_type = 1
    return command


def _decode_json_header(header: bytes, body: bytes | memoryview) -> RemotingCommand:
    try:
        decoded = _decode_json(header)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        decoded = _decode_loose_json_header(header)
    command = _new_command(RemotingCommand)
    command.code = decoded.code
    command.language = _LANGUAGE_NUMBERS.get(decoded.language, _OTHER_LANGUAGE)  # type: ignore[arg-type] # None too
    command.version = decoded.version
    command.opaque = decoded.opaque
    command.flag = decoded.flag
    command.remark = decoded.remark
    fields = decoded.extFields
    if fields is not None and len(fields) > MAX_EXT_FIELDS:
        raise RemoteProtocolError(f"a header has at most {MAX_EXT_FIELDS} extension fields, this one {len(fields)}")
    command._ext_fields = {} if fields is None else fields
    command.raw_ext_fields = None
    command.body = body
    command.serialize_type = 0
    return command


def _decode_loose_json_header(header: bytes) -> _JsonHeader:
    """Headers of clients that write field values as numbers or booleans rather than strings."""
    try:
        # Half a surrogate pair would make a text that no answer could repeat. From bytes, `json` takes one that is written as if it
        # were a character, and UTF-16 with it.
        raw = json.loads(header.decode())
        if b"\\u" in header:
            json.dumps(raw, ensure_ascii=False).encode()
        if not isinstance(raw, dict):
            raise RemoteProtocolError("the JSON header is not an object")
        fields = raw.pop("extFields", None) or {}
        if not isinstance(fields, dict):
            raise RemoteProtocolError("extFields is not an object")
        language = raw.get("language")
        if isinstance(language, int):
            raw["language"] = _LANGUAGE_NAMES.get(language)
        decoded = msgspec.convert(raw, _JsonHeader, strict=False)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise RemoteProtocolError(f"the JSON header cannot be read: {str(error)[:200]}") from error
    ext_fields: dict[str, str] = {}
    for key, value in fields.items():
        if isinstance(value, bool):
            ext_fields[key] = "true" if value else "false"
        elif isinstance(value, (str, int, float)):
            ext_fields[key] = str(value)
        elif value is not None:
            raise RemoteProtocolError(f"extension field {key[:100]!r} is neither text nor a number")
    decoded.extFields = ext_fields
    return decoded
