"""TLS of the broker's ports, and the context of the connections that it opens."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

import trio

from brokerd.config import BrokerConfig
from mqwire.errors import RemoteProtocolError
from mqwire.tls import FIRST_BYTE, ClientAuth, ReloadedContext, TlsFiles, TlsMode, client_context, server_context
from mqwire.turns import AnyShare

if TYPE_CHECKING:
    from collections.abc import Callable

_HANDSHAKE_TIMEOUT_S: Final = 10.0


class TlsSocket:
    """An accepted socket that speaks TLS; stands where a plain non-blocking socket does."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self.pending = sock.pending
        self.fileno = sock.fileno
        self.getpeername = sock.getpeername
        self.close = sock.close

    @property
    def has_certificate(self) -> bool:
        """Whether the client showed a certificate in its handshake; one that is not of our CA ended that."""
        return self._socket.getpeercert(binary_form=True) is not None

    async def handshake(self, share: AnyShare) -> None:
        """Come to terms with the client, in turns with others; raises OSError where that fails or takes too long."""
        try:
            with trio.fail_after(_HANDSHAKE_TIMEOUT_S):
                await _handshake(self._socket, share)
        except trio.TooSlowError:
            raise ConnectionError("the TLS handshake took too long") from None

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        try:
            return self._socket.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._socket.setsockopt(level, option, value)

    def send(self, data: bytes) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None


class ServerTls:
    """What the broker's ports do with a new connection. Raises mqwire.tls.TlsConfigError for files that cannot be used."""

    def __init__(self, config: BrokerConfig) -> None:
        files = TlsFiles(
            config.tls_server_cert_path,
            config.tls_server_key_path,
            config.tls_server_trust_cert_path,
            config.tls_server_key_password,
        )
        auth = ClientAuth(config.tls_server_need_client_auth)
        self._mode = TlsMode(config.tls_server_mode)
        self._context = (
            ReloadedContext(files, lambda files: server_context(files, auth))
            if files.cert_path and self._mode is not TlsMode.DISABLED
            else None
        )

    @property
    def is_offered(self) -> bool:
        """Whether a connection's first byte is to be looked at."""
        return self._context is not None

    async def accept(self, sock: socket.socket | TlsSocket) -> socket.socket | TlsSocket:
        """The socket to go on with, once its first byte is here. A TlsSocket has its handshake still before it, and owns the
        descriptor from now on: closing `sock` would leave it open.

        Raises RemoteProtocolError for plain text where TLS is demanded.
        """
        assert self._context is not None, "TLS is not offered"
        assert not isinstance(sock, TlsSocket), "it speaks TLS already"
        await trio.lowlevel.wait_readable(sock)
        if sock.recv(1, socket.MSG_PEEK) != FIRST_BYTE:
            if self._mode is TlsMode.ENFORCING:
                raise RemoteProtocolError("plain text, but tls.server.mode is enforcing: connect with TLS")
            return sock
        return TlsSocket(
            self._context.get().wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
            )
        )


async def _handshake(secured: ssl.SSLSocket, share: AnyShare) -> None:
    while True:
        await share.turn()
        began_s = trio.current_time()
        try:
            secured.do_handshake()
            return
        except ssl.SSLWantReadError:
            wait = trio.lowlevel.wait_readable
        except ssl.SSLWantWriteError:
            wait = trio.lowlevel.wait_writable
        finally:
            share.spend(trio.current_time() - began_s)
        await wait(secured)


def client_tls(config: BrokerConfig) -> Callable[[], ssl.SSLContext] | None:
    """The context of the broker's own connections; None where they are plain. Raises mqwire.tls.TlsConfigError."""
    if not config.tls_enable:
        return None
    files = TlsFiles(config.tls_client_cert_path, config.tls_client_key_path, config.tls_client_trust_cert_path)
    return ReloadedContext(files, client_context).get
