"""TLS of the daemons: RocketMQ's `tls.*` keys as contexts of the standard library, read again when the files change.

Plain text and TLS share a port: a TLS connection's first byte is 22 (a handshake record), which begins no frame of the
remoting protocol that any limit lets through.

Source of the keys: TlsSystemConfig, TlsHelper, NettyRemotingServer.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

logger = logging.getLogger("mqwire.tls")

FIRST_BYTE: Final = b"\x16"
_LOOK_AGAIN_S: Final = 1.0


class TlsMode(Enum):
    """tls.server.mode: whether TLS is refused, offered or demanded."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """tls.server.need.client.auth: whether clients show a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


def asks_for_certificates(mode: str, cert_path: str, client_auth: str) -> bool:
    """Whether a server with these values of `tls.server.*` asks clients for a certificate."""
    return bool(cert_path) and mode != TlsMode.DISABLED.value and client_auth != ClientAuth.NONE.value


class TlsConfigError(Exception):
    """The certificate, key or trusted certificates cannot be used. The text names the key and the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files; empty ones are not used. With `trust_cert_path` the other end's certificate is checked."""

    cert_path: str = ""
    key_path: str = ""
    trust_cert_path: str = ""
    key_password: str = field(default="", repr=False)


def server_context(files: TlsFiles, client_auth: ClientAuth = ClientAuth.NONE) -> ssl.SSLContext:
    """A server's context, TLS 1.2 and newer; raises TlsConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load_own(context, files, "tls.server")
    if client_auth is not ClientAuth.NONE:
        if not files.trust_cert_path:
            raise TlsConfigError("tls.server.trustCertPath is empty: name the CA that signs clients' certificates")
        _load_trusted(context, files, "tls.server")
        context.verify_mode = ssl.CERT_REQUIRED if client_auth is ClientAuth.REQUIRE else ssl.CERT_OPTIONAL
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A client's context; raises TlsConfigError.

    The server's certificate must come from `trust_cert_path`, whose CA signs for one cluster's daemons only: which of
    them it is does not matter, so that names are not compared. Without that file any certificate will do, as in RocketMQ.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if files.trust_cert_path:
        _load_trusted(context, files, "tls.client")
    else:
        context.verify_mode = ssl.CERT_NONE
    if files.cert_path:
        _load_own(context, files, "tls.client")
    return context


def _load_own(context: ssl.SSLContext, files: TlsFiles, prefix: str) -> None:
    try:
        context.load_cert_chain(files.cert_path, files.key_path or None, files.key_password or "")
    except (OSError, ssl.SSLError) as error:
        raise TlsConfigError(
            f"{prefix}.certPath={files.cert_path} and {prefix}.keyPath={files.key_path} cannot be used: {error}"
        ) from error


def _load_trusted(context: ssl.SSLContext, files: TlsFiles, prefix: str) -> None:
    try:
        context.load_verify_locations(files.trust_cert_path)
    except (OSError, ssl.SSLError) as error:
        raise TlsConfigError(f"{prefix}.trustCertPath={files.trust_cert_path} cannot be used: {error}") from error


class ReloadedContext:
    """A context that follows its files: certificates are renewed without a restart.

    Files that cannot be used leave the last good context in force, with one error in the log for each change.
    """

    def __init__(
        self,
        files: TlsFiles,
        make: Callable[[TlsFiles], ssl.SSLContext],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make the first context. Raises TlsConfigError."""
        self._files = files
        self._make = make
        self._monotonic = monotonic
        self._seen = self._fingerprint()
        self._context = make(files)
        self._looked_s = monotonic()

    def get(self) -> ssl.SSLContext:
        """The context for the next connection."""
        now_s = self._monotonic()
        if now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._looked_s = now_s
            seen = self._fingerprint()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._context = self._make(self._files)
                    logger.info("the certificate was read again: %s", self._files.cert_path)
                except TlsConfigError as error:
                    logger.error("the former certificate stays in force: %s", error)
        return self._context

    def _fingerprint(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_state_of, (self._files.cert_path, self._files.key_path, self._files.trust_cert_path)))


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
