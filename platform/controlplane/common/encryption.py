"""Keys for one purpose each, derived from a configured secret."""

import base64

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def derive_key(secret_key: str, purpose: bytes) -> bytes:
    """Return a Fernet key (32 bytes, URL-safe base64) for one purpose, by HKDF-SHA256 (RFC 5869)."""
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(secret_key.encode("utf-8"))
    return base64.urlsafe_b64encode(derived)
