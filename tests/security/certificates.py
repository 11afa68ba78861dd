"""Certificates for tests of TLS: one authority as the control plane makes it, and what it signs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from controlplane.clusters.certificates import authority_make, certificate_issue


@dataclass(frozen=True)
class Identity:
    """PEM files of one certificate."""

    cert_path: Path
    key_path: Path


class Authority:
    """A certificate authority whose files are in `folder`; `pair` is its certificate and key."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.pair = authority_make("tests", datetime.now(UTC))
        self.cert_path = folder / "ca.pem"
        self.cert_path.write_text(self.pair.cert_pem)

    def issue(self, name: str) -> Identity:
        """A certificate of that name for 127.0.0.1; issued again, it replaces the former one's files."""
        issued = certificate_issue(self.pair, name, ["127.0.0.1"], datetime.now(UTC))
        identity = Identity(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        identity.cert_path.write_text(issued.cert_pem)
        identity.key_path.write_text(issued.key_pem)
        return identity

    def client_context(self, identity: Identity | None = None) -> ssl.SSLContext:
        """A client that trusts this authority, and shows a certificate if it is given one."""
        context = ssl.create_default_context(cafile=self.cert_path)
        context.check_hostname = False
        if identity is not None:
            context.load_cert_chain(identity.cert_path, identity.key_path)
        return context
