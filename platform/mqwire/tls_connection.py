"""TLS on a connection of any kind: what is below sends and receives, and may take turns with others.

Sans-io but for the waiting, which is that of the connection below.
"""

from __future__ import annotations

import ssl
from typing import Final, Protocol

_RECORD_BYTES: Final = 64 * 1024


class Connected(Protocol):
    """A connection, plain or with TLS; raises OSError, trio.BrokenResourceError or ClosedResourceError when it is gone."""

    async def send_all(self, data: bytes) -> None: ...
    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        """Nothing at its end."""

    def close(self) -> None:
        """At once, also while a task waits on it."""


class TlsConnection:
    """A connection with TLS on it, at either end; it closes the one below.

    No part of it knows another one that knows it: a session of 100 KiB goes with the last reference, and does not wait for
    the garbage collector, as that of trio.SSLStream would.
    """

    def __init__(self, below: Connected, context: ssl.SSLContext, *, server_side: bool = False) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    async def handshake(self) -> None:
        """Come to terms; raises OSError (ssl.SSLError) when the other end is not whom we trust."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill():
                    raise ConnectionError("the other end closed the connection during the TLS handshake") from None
            else:
                await self._flush()
                return

    @property
    def has_certificate(self) -> bool:
        """Whether the other end showed a certificate in its handshake; one that is not trusted ended that."""
        return self._tls.getpeercert(binary_form=True) is not None

    async def send_all(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        while True:
            try:
                return self._tls.read(max_bytes)
            except ssl.SSLWantReadError:
                if not await self._fill():
                    return b""
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def close(self) -> None:
        self._below.close()

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._below.send_all(data)

    async def _fill(self) -> bool:
        data = await self._below.receive_some(_RECORD_BYTES)
        if not data:
            self._incoming.write_eof()
            return False
        self._incoming.write(data)
        return True
