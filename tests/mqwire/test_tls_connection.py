"""TLS on a connection: what it leaves."""

from __future__ import annotations

import gc
import ssl
import weakref

from mqwire.tls_connection import TlsConnection


class _Nothing:
    """A connection that says nothing."""

    async def send_all(self, data: bytes) -> None:
        raise AssertionError

    async def receive_some(self, max_bytes: int) -> bytes:
        raise AssertionError

    def close(self) -> None:
        raise AssertionError


def test_a_session_goes_without_the_garbage_collector() -> None:
    connection = TlsConnection(_Nothing(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), server_side=True)
    left = weakref.ref(connection)
    gc.disable()
    try:
        del connection
        assert left() is None
    finally:
        gc.enable()
