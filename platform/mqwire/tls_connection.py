"""TLS on a connection of any kind: what is below sends and receives, and may take turns with others.

Sans-io but for the waiting, which is that of the connection below.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
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

    def __init__(
        self,
        below: Connected,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        note_record: Callable[[bool], None] | None = None,
    ) -> None:
        """`note_record` is told when a part of a record has arrived, for which memory is held, and when the rest has; what it
        raises ends the call.
        """
        self._below = below
        self._note_record = note_record
        self._is_open = False  # a part of a record is here
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)

    async def handshake(self) -> None:
        """Come to terms; raises OSError (ssl.SSLError) when the other end is not whom we trust."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._fill(_RECORD_BYTES):
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

    @property
    def has_more(self) -> bool:
        """Whether something is here already, which may be received without waiting."""
        return bool(self._tls.pending() or self._incoming.pending)

    async def receive_some(self, max_bytes: int) -> bytes | bytearray:
        while True:
            were_here = self._incoming.pending
            try:
                data = self._tls.read(max_bytes)
            except ssl.SSLWantReadError:
                if were_here:
                    self._record_is_open(True)
                if not await self._fill(max_bytes):
                    return b""
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            else:
                self._record_is_open(False)
                return data

    def _record_is_open(self, is_open: bool) -> None:
        if is_open is not self._is_open:
            self._is_open = is_open
            if self._note_record is not None:
                self._note_record(is_open)

    def close(self) -> None:
        self._below.close()

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._below.send_all(data)

    async def _fill(self, max_bytes: int) -> bool:
        data = await self._below.receive_some(max_bytes)
        if not data:
            self._incoming.write_eof()
            return False
        self._incoming.write(data)
        return True
