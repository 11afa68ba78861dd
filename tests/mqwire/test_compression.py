"""Compressed bodies: what other programs write is unfolded, and never further than allowed (reliability.md, B29)."""

from __future__ import annotations

import tracemalloc
import zlib

import lz4.frame  # type: ignore[import-untyped]  # has no stubs
import pytest
import zstandard

from mqwire.codes import MessageSysFlag
from mqwire.compression import CompressionType, compress, compression_of, decompress
from mqwire.errors import LocalProtocolError, RemoteProtocolError

MEBIBYTE = 1024 * 1024
BODY = b"the same words again and again, " * 1000
UNKNOWN_KIND = 0x401


@pytest.mark.parametrize("kind", list(CompressionType))
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(range(256)) * 5000])
def test_a_body_comes_back(kind: CompressionType, body: bytes) -> None:
    packed, flags = compress(body, kind)
    assert decompress(packed, flags) == body


@pytest.mark.parametrize(
    ("kind", "flags"), [(CompressionType.ZLIB, 0x301), (CompressionType.LZ4, 0x101), (CompressionType.ZSTD, 0x201)]
)
def test_the_flags_are_rocketmqs(kind: CompressionType, flags: int) -> None:
    assert compress(BODY, kind)[1] == flags


def java_zstandard(body: bytes) -> bytes:
    """A stream without its size in front, as Java's ZstdOutputStream writes it."""
    writer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return writer.compress(body) + writer.flush()


def java_lz4(body: bytes) -> bytes:
    """Blocks of 4 MiB without a checksum, as Java's LZ4FrameOutputStream writes them."""
    packed: bytes = lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False)
    return packed


FOREIGN = [
    pytest.param(zlib.compress(BODY), MessageSysFlag.COMPRESSED, id="zlib of an old client"),
    pytest.param(zlib.compress(BODY, 9), 0x301, id="zlib"),
    pytest.param(java_lz4(BODY), 0x101, id="lz4"),
    pytest.param(java_zstandard(BODY), 0x201, id="zstd"),
]


@pytest.mark.parametrize(("packed", "flags"), FOREIGN)
def test_other_programs_bodies_are_unfolded(packed: bytes, flags: int) -> None:
    assert decompress(packed, flags) == BODY


@pytest.mark.parametrize(("packed", "flags"), FOREIGN)
def test_a_body_cut_short_is_refused(packed: bytes, flags: int) -> None:
    for size in (0, 1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(RemoteProtocolError, match=r"ends too early|damaged"):
            decompress(packed[:size], flags)


@pytest.mark.parametrize("flags", [0x1, 0x301, 0x101, 0x201])
def test_garbage_is_refused(flags: int) -> None:
    with pytest.raises(RemoteProtocolError, match="damaged"):
        decompress(b"this was never compressed", flags)


def test_a_body_that_is_not_compressed_is_handed_back() -> None:
    assert decompress(BODY, 0) is BODY
    assert decompress(BODY, 0x300) is BODY


def test_an_unknown_way_of_compressing_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="0x400"):
        decompress(BODY, UNKNOWN_KIND)


@pytest.mark.parametrize(("packed", "flags"), FOREIGN)
def test_the_limit_is_exact(packed: bytes, flags: int) -> None:
    assert decompress(packed, flags, max_body_bytes=len(BODY)) == BODY
    with pytest.raises(RemoteProtocolError, match="more than"):
        decompress(packed, flags, max_body_bytes=len(BODY) - 1)


ZEROS = b"\x00" * (64 * MEBIBYTE)
BOMBS = [
    pytest.param(zlib.compress(ZEROS, 9), 0x301, id="zlib"),
    pytest.param(java_lz4(ZEROS), 0x101, id="lz4"),
    pytest.param(java_zstandard(ZEROS), 0x201, id="zstd"),
    pytest.param(zstandard.ZstdCompressor().compress(ZEROS), 0x201, id="zstd with its size"),
]


@pytest.mark.parametrize(("packed", "flags"), BOMBS)
def test_a_bomb_costs_no_more_than_its_limit(packed: bytes, flags: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="more than"):
            decompress(packed, flags, max_body_bytes=MEBIBYTE)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * MEBIBYTE


def test_a_zstandard_frame_may_not_ask_for_a_window_of_gigabytes() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = writer.compress(BODY) + writer.flush()
    with pytest.raises(RemoteProtocolError, match="damaged"):
        decompress(packed, 0x201)


def test_compressions_have_rocketmqs_names() -> None:
    assert compression_of("lz4") is CompressionType.LZ4
    with pytest.raises(LocalProtocolError, match="LZ4, ZSTD, ZLIB"):
        compression_of("snappy")
