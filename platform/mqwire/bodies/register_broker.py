"""RegisterBrokerBody: everything a broker reports to a name server about its topics.

Uncompressed it is JSON. Compressed it is one zlib stream of pieces with their lengths in front:

    | length 4 | DataVersion's JSON |
    | number of topics 4 | per topic: length 4 | TopicConfig.encode's line |
    | length 4 | filter servers' JSON |
    | number of static topics 4 | per topic: length 4 | TopicQueueMappingInfo's JSON |     5.x brokers only
"""

from __future__ import annotations

import zlib

import msgspec

from mqwire.bodies.base import Body
from mqwire.bodies.data_version import DataVersion
from mqwire.bodies.route import TopicQueueMappingInfo
from mqwire.bodies.topic import TopicConfig, TopicConfigAndMappingSerializeWrapper
from mqwire.errors import RemoteProtocolError

# What a compressed registration may unfold to: as much as an uncompressed one may have, some 200,000 topics.
MAX_INFLATED_BYTES = 16 * 1024 * 1024
# Topic lines of real brokers shrink to a fifteenth or so; deflate itself can reach 1,032 to 1.
MAX_INFLATION = 200
_INFLATE_STEP_BYTES = 64 * 1024
_ZLIB_FIRST_BYTE = b"\x78"  # deflate with a window of 32 KiB, which is what every writer uses


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    """REGISTER_BROKER's body. Source: RegisterBrokerBody."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = TopicConfigAndMappingSerializeWrapper()
    filter_server_list: list[str] = []

    def encode(self, *, compress: bool = False) -> bytes:
        """The body's bytes; `compress` is what the header's `compressed` says."""
        if not compress:
            return self.to_json()
        wrapper = self.topic_config_serialize_wrapper
        pieces = [_piece(wrapper.data_version.to_json()), _number(len(wrapper.topic_config_table))]
        pieces += (_piece(config.encode().encode()) for config in wrapper.topic_config_table.values())
        pieces.append(_piece(msgspec.json.encode(self.filter_server_list)))
        pieces.append(_number(len(wrapper.topic_queue_mapping_info_map)))
        pieces += (_piece(info.to_json()) for info in wrapper.topic_queue_mapping_info_map.values())
        return zlib.compress(b"".join(pieces), 9)

    @classmethod
    def decode(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        compressed: bool = False,
        max_inflated_bytes: int = MAX_INFLATED_BYTES,
    ) -> RegisterBrokerBody:
        """Read what `encode` wrote. A compressed body may end before the static topics, as 4.x brokers' do.

        Apache's 5.x brokers with compressedRegister=true compress the body but say in the header that they don't
        (BrokerOuterAPI), so a zlib stream is known by its first byte too: no JSON begins with it.

        Raises RemoteProtocolError for anything malformed, and as soon as the stream unfolds to more than
        `max_inflated_bytes` or more than MAX_INFLATION times its own length.
        """
        if not compressed and bytes(data[:1]) != _ZLIB_FIRST_BYTE:
            return cls.from_json(data)
        pieces = _Pieces(_inflate(bytes(data), max_inflated_bytes))
        data_version = DataVersion.from_json(pieces.take())
        topics: dict[str, TopicConfig] = {}
        for _ in range(pieces.number()):
            config = TopicConfig.decode(pieces.text())
            topics[config.topic_name] = config
        filter_servers = _filter_servers(pieces.take())
        mappings: dict[str, TopicQueueMappingInfo] = {}
        if not pieces.exhausted:
            for _ in range(pieces.number()):
                info = TopicQueueMappingInfo.from_json(pieces.take())
                if info.topic is not None:
                    mappings[info.topic] = info
        wrapper = TopicConfigAndMappingSerializeWrapper(
            topic_config_table=topics, data_version=data_version, topic_queue_mapping_info_map=mappings
        )
        return cls(topic_config_serialize_wrapper=wrapper, filter_server_list=filter_servers)


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _piece(data: bytes) -> bytes:
    return _number(len(data)) + data


def _filter_servers(data: bytes) -> list[str]:
    try:
        return msgspec.json.decode(data, type=list[str] | None) or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"RegisterBrokerBody: the filter servers: {error}") from error


def _inflate(data: bytes, max_inflated_bytes: int) -> bytes:
    """The stream's content, taken in steps so that no more than the limit is ever held."""
    limit_bytes = min(max_inflated_bytes, max(len(data) * MAX_INFLATION, _INFLATE_STEP_BYTES))
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    total_bytes = 0
    pending = data
    try:
        while not inflater.eof:
            part = inflater.decompress(pending, _INFLATE_STEP_BYTES)
            pending = inflater.unconsumed_tail
            if not part and not pending and not inflater.eof:
                raise RemoteProtocolError("RegisterBrokerBody: the compressed stream ends too early")
            total_bytes += len(part)
            if total_bytes > limit_bytes:
                raise RemoteProtocolError(
                    f"RegisterBrokerBody: {len(data)} compressed bytes unfold to more than {limit_bytes}"
                )
            parts.append(part)
    except zlib.error as error:
        raise RemoteProtocolError(f"RegisterBrokerBody: {error}") from error
    return b"".join(parts)


class _Pieces:
    """Reads the pieces in order; a length is compared with what is left before it is used."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def exhausted(self) -> bool:
        return self._position == len(self._data)

    def number(self) -> int:
        end = self._position + 4
        if end > len(self._data):
            raise RemoteProtocolError("RegisterBrokerBody: the content ends inside a number")
        value = int.from_bytes(self._data[self._position : end], "big")
        # Every piece needs four bytes of its own, so a larger number is a lie whatever it counts.
        if value > len(self._data) - end:
            raise RemoteProtocolError(f"RegisterBrokerBody: {value} claimed where {len(self._data) - end} bytes follow")
        self._position = end
        return value

    def take(self) -> bytes:
        length_bytes = self.number()
        start = self._position
        self._position = start + length_bytes
        return self._data[start : self._position]

    def text(self) -> str:
        try:
            return self.take().decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("RegisterBrokerBody: a topic is not UTF-8") from error
