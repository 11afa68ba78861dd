"""Credential secrets: made at random, encrypted at rest with a key that is derived from SECRET_KEY.

SECRET_KEY_FALLBACKS are tried for reading, so that the key can be rotated without losing anything.
"""

import secrets
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from controlplane.common.encryption import derive_key
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say

_PURPOSE = b"highwater credential secret"


class SecretUnreadable(ApplicationError):
    """The secret was encrypted under a SECRET_KEY that is no longer configured."""

    status = 500
    code = "secret_unreadable"
    title = "The secret can't be read"


def access_key_generate() -> str:
    """Return a fresh AccessKey: `HW` and 18 letters and digits without look-alikes."""
    return "HW" + "".join(secrets.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(18))


def secret_generate() -> str:
    """Return a fresh SecretKey of 40 letters and digits (238 bits); safe in YAML, JSON and shells without quoting."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return "".join(secrets.choice(alphabet) for _ in range(40))


def secret_encrypt(secret: str) -> bytes:
    """Return the ciphertext to store."""
    return _cipher(_configured_keys()).encrypt(secret.encode("utf-8"))


def secret_decrypt(ciphertext: bytes | memoryview) -> str:
    """Return the secret; raises SecretUnreadable when no configured key fits."""
    try:
        return _cipher(_configured_keys()).decrypt(bytes(ciphertext)).decode("utf-8")
    except InvalidToken:
        raise SecretUnreadable(
            say("This secret was encrypted under another SECRET_KEY."),
            hint=say("Add the former key to SECRET_KEY_FALLBACKS, or delete the credential and create a new one."),
        ) from None


def _configured_keys() -> tuple[str, ...]:
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


@lru_cache(maxsize=4)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(derive_key(key, _PURPOSE)) for key in keys])
