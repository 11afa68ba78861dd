"""The machine's certificate authorities for a Java runtime that brings its own list: a company's proxy is on the machine's only."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

# No secret: it protects nothing but the file's form, and is the one that Java's own list has.
PASSWORD = "changeit"  # noqa: S105  # of every Java trust store
USUAL_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def find_bundle() -> Path | None:
    """The file of authorities that programs on this machine trust: $SSL_CERT_FILE, OpenSSL's, or a distribution's usual one."""
    named = (os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *USUAL_BUNDLES)
    return next((Path(path) for path in named if path and Path(path).is_file()), None)


def write_truststore(bundle: Path, target: Path) -> int:
    """Writes the bundle's certificates as a PKCS #12 file that Java reads; returns how many. Unreadable ones are left out."""
    certificates = []
    for number, match in enumerate(_CERTIFICATE.finditer(bundle.read_bytes())):
        try:
            certificate = x509.load_pem_x509_certificate(match.group())
        except ValueError:
            continue  # of a kind that this library refuses; the others still count
        certificates.append(PKCS12Certificate(certificate, f"authority {number}".encode()))
    if certificates:
        target.write_bytes(serialize_java_truststore(certificates, BestAvailableEncryption(PASSWORD.encode())))
    return len(certificates)
