"""Compressed message bodies, as MessageSysFlag's bits say.

    bit 0x1            the body is compressed
    bits 0x700         how: 0 (older clients) or 0x300 zlib, 0x100 LZ4 in frames, 0x200 Zstandard

A broker stores such a body as it came. Unfolding is for those who show or consume it, and always bounded: some bytes
can claim to be gigabytes.

Source: MessageSysFlag, CompressionType, ZlibCompressor, Lz4Compressor, ZstdCompressor.
"""

from __future__ import annotations

import zlib
from enum import Enum
from typing import Protocol

import lz4.frame  # type: ignore[import-untyped]  # has no stubs
import zstandard

from mqwire.codes import MessageSysFlag
from mqwire.errors import LocalProtocolError, RemoteProtocolError

# RocketMQ's producers send at most 4 MiB unless set otherwise, brokers take at most what maxMessageSize says.
DEFAULT_MAX_BODY_BYTES = 16 * 1024 * 1024
_STEP_BYTES = 256 * 1024
# The window is what a reader must keep: a frame can ask for gigabytes. 8 MiB is what every reader promises to take.
_MAX_ZSTANDARD_WINDOW_BYTES = 8 * 1024 * 1024


class CompressionType(Enum):
    """A way of compressing; the value is its bits in sysFlag."""

    LZ4 = MessageSysFlag.COMPRESSION_LZ4
    ZSTD = MessageSysFlag.COMPRESSION_ZSTD
    ZLIB = MessageSysFlag.COMPRESSION_ZLIB


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = 5) -> tuple[bytes, int]:
    """The compressed body and the sysFlag bits to set for it. `level` is 0 to 9; Java's client has 5."""
    flags = MessageSysFlag.COMPRESSED | kind.value
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level), flags
    if kind is CompressionType.LZ4:
        # 64 KiB blocks: Java's LZ4 reader takes every size, but allocates as much as the frame announces.
        packed: bytes = lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX64KB, store_size=False)
        return packed, flags
    return zstandard.ZstdCompressor(level=level).compress(body), flags


def decompress(body: bytes, sys_flag: int, *, max_body_bytes: int = DEFAULT_MAX_BODY_BYTES) -> bytes:
    """The original body; one that sysFlag doesn't call compressed is handed back.

    Raises RemoteProtocolError when the body is damaged, or as soon as it unfolds to more than `max_body_bytes`: no more
    than that and one step is ever held.
    """
    if not sys_flag & MessageSysFlag.COMPRESSED:
        return body
    kind = sys_flag & MessageSysFlag.COMPRESSION_MASK
    try:
        if kind in (0, MessageSysFlag.COMPRESSION_ZLIB):
            return _inflate(body, max_body_bytes)
        if kind == MessageSysFlag.COMPRESSION_LZ4:
            return _read_in_steps(lz4.frame.LZ4FrameDecompressor(), body, max_body_bytes, "LZ4")
        if kind == MessageSysFlag.COMPRESSION_ZSTD:
            return _unpack_zstandard(body, max_body_bytes)
    except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
        raise RemoteProtocolError(f"a compressed body is damaged: {error}") from error
    raise RemoteProtocolError(f"a body is compressed in an unknown way: {kind:#x} in sysFlag")


def _too_large(max_body_bytes: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"a compressed body unfolds to more than {max_body_bytes} bytes")


def _inflate(body: bytes, max_body_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    # One byte more than allowed distinguishes "too much" from "just enough".
    content = inflater.decompress(body, max_body_bytes + 1)
    if len(content) > max_body_bytes:
        raise _too_large(max_body_bytes)
    if not inflater.eof:
        raise RemoteProtocolError("a zlib body ends too early")
    return content


class _StepDecompressor(Protocol):
    eof: bool

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def _read_in_steps(decompressor: _StepDecompressor, body: bytes, max_body_bytes: int, name: str) -> bytes:
    parts: list[bytes] = []
    total_bytes = 0
    pending = body
    while not decompressor.eof:
        part = decompressor.decompress(pending, _STEP_BYTES)
        if not part and not pending:
            raise RemoteProtocolError(f"a {name} body ends too early")
        pending = b""
        total_bytes += len(part)
        if total_bytes > max_body_bytes:
            raise _too_large(max_body_bytes)
        parts.append(part)
    return b"".join(parts)


def _unpack_zstandard(body: bytes, max_body_bytes: int) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTANDARD_WINDOW_BYTES).stream_reader(body)
    parts: list[bytes] = []
    total_bytes = 0
    while part := reader.read(_STEP_BYTES):
        total_bytes += len(part)
        if total_bytes > max_body_bytes:
            raise _too_large(max_body_bytes)
        parts.append(part)
    announced_bytes = zstandard.frame_content_size(body)
    if announced_bytes != total_bytes and (announced_bytes >= 0 or not _is_whole_zstandard(body)):
        raise RemoteProtocolError("a Zstandard body ends too early")
    return b"".join(parts)


def _is_whole_zstandard(body: bytes) -> bool:
    """Whether the frame ends in the body: Java's writer announces no size, and the reader above stops silently.

    Called only for a body whose size is known to be within the limit.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTANDARD_WINDOW_BYTES).decompressobj()
    decompressor.decompress(body)
    return decompressor.eof


def compression_of(name: str) -> CompressionType:
    """The type by RocketMQ's name for it (`rocketmq.message.compressType`); raises LocalProtocolError."""
    try:
        return CompressionType[name.upper()]
    except KeyError:
        known = ", ".join(kind.name for kind in CompressionType)
        raise LocalProtocolError(f"compression {name!r} is not one of {known}") from None
