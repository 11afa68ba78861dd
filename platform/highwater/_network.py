"""The seam to the network: all that the SDK does with sockets is in these two interfaces.

Tests put scripted streams in their place; the default is anyio's TCP, so asyncio and trio both run it.
"""

from __future__ import annotations

import errno
import os
import ssl
from typing import Protocol

import anyio
from anyio.abc import ByteStream
from anyio.streams.tls import TLSStream

from highwater.errors import ConfigurationError, ConnectError, ConnectionLostError
from highwater.sentences import say

# What a network says every day. Another error says itself what it is, in the words of the operating system.
_REASONS = {
    errno.ECONNREFUSED: say("connection refused"),
    errno.ECONNRESET: say("connection reset"),
    errno.EPIPE: say("connection reset"),
    errno.ETIMEDOUT: say("timed out"),
    errno.EHOSTUNREACH: say("unreachable"),
    errno.ENETUNREACH: say("unreachable"),
}


def trust_ca(path: str | os.PathLike[str]) -> ssl.SSLContext:
    """TLS with a cluster whose CA certificate is this PEM file; pass it as `use_tls`. Raises ConfigurationError.

    A cluster's CA signs for its own daemons and no one else, so that whatever it signed is the cluster, at any address.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    try:
        context.load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(
            f"the CA certificate {os.fspath(path)} cannot be read: {error}. Save the cluster's CA there, as PEM."
        ) from error
    return context


class NetworkStream(Protocol):
    """One connection. Errors are already of the SDK's own kind."""

    async def receive(self, max_bytes: int) -> bytes:
        """The next bytes; raises ConnectionLostError at the end of the stream."""
        ...

    async def send(self, data: bytes) -> None:
        """Write all of `data`; raises ConnectionLostError when the other end is gone."""
        ...

    async def aclose(self) -> None:
        """Close; harmless when done twice."""
        ...


class NetworkBackend(Protocol):
    """Makes connections."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> NetworkStream:
        """Connect, with TLS if a context is given; raises ConnectError. The caller sets the time limit."""
        ...


def parse_address(address: str) -> tuple[str, int]:
    """The host and port of `host:port` or `[IPv6]:port`; raises ConfigurationError that quotes what is wrong."""
    host, separator, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not separator or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"{address!r} is not an address: it should read host:port")
    return host, int(port)


class AnyioStream:
    """A NetworkStream over anyio's."""

    def __init__(self, stream: ByteStream, address: str) -> None:
        self._stream = stream
        self._address = address

    async def receive(self, max_bytes: int) -> bytes:
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            raise ConnectionLostError(say("%(address)s closed the connection", address=self._address)) from None
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise ConnectionLostError(self._broke(error)) from error

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            raise ConnectionLostError(self._broke(error)) from error

    def _broke(self, error: BaseException) -> str:
        return say("the connection to %(address)s broke: %(reason)s", address=self._address, reason=_reason(error))

    async def aclose(self) -> None:
        # Forcefully: there is nothing left to say, and a peer that hangs must not hang us in a TLS goodbye.
        await anyio.aclose_forcefully(self._stream)


class AnyioBackend:
    """TCP and TLS by anyio."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> NetworkStream:
        address = f"{host}:{port}"
        try:
            stream: ByteStream = await anyio.connect_tcp(host, port)
        except OSError as error:
            raise ConnectError(
                say("cannot connect to %(address)s: %(reason)s", address=address, reason=_reason(error))
            ) from error
        if tls is not None:
            try:
                stream = await TLSStream.wrap(
                    stream, hostname=host, ssl_context=tls, server_side=False, standard_compatible=False
                )
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError) as error:
                await anyio.aclose_forcefully(stream)
                raise ConnectError(
                    say("no TLS with %(address)s: %(reason)s", address=address, reason=_reason(error))
                ) from error
            except BaseException:
                await anyio.aclose_forcefully(stream)
                raise
        return AnyioStream(stream, address)


def _reason(error: BaseException) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None and not str(cause):
        cause = cause.__cause__
    # connect_tcp tries each of a host's addresses and reports a group when all failed.
    if isinstance(error.__cause__, BaseExceptionGroup):
        cause = error.__cause__.exceptions[0]
    elif isinstance(error.__cause__, OSError):
        cause = error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    return _REASONS.get(number or 0) or str(cause) or type(cause).__name__
