"""The text of an API token: `hw_<env>_<public id>_<secret>`. Pure functions; no database."""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

_PUBLIC_ID_BYTES = 6
_SECRET_BYTES = 32
_PATTERN = re.compile(r"hw_(?P<env>[a-z]+)_(?P<public_id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{20,64})")


@dataclass(frozen=True, slots=True)
class TokenText:
    """The parts of a token."""

    environment: str
    public_id: str
    secret: str

    def __str__(self) -> str:
        return f"hw_{self.environment}_{self.public_id}_{self.secret}"

    @property
    def secret_hash(self) -> str:
        """SHA-256 in hexadecimal. Enough for 256 random bits: there is nothing to guess, so nothing to slow down."""
        return hashlib.sha256(self.secret.encode("ascii")).hexdigest()


def token_text_generate(environment: str) -> TokenText:
    """Return a fresh token."""
    return TokenText(environment, secrets.token_hex(_PUBLIC_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES))


def token_text_parse(text: str) -> TokenText | None:
    """Return the parts of `text`, or None when it isn't a token."""
    match = _PATTERN.fullmatch(text)
    return TokenText(match["env"], match["public_id"], match["secret"]) if match else None


def secret_matches(text: TokenText, secret_hash: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(text.secret_hash, secret_hash)
