"""ACL v1: signed requests.

A signed request carries AccessKey and Signature (and SecurityToken, if the account has one) as extension fields:

    Signature = base64(HMAC-SHA1(secretKey, values of all other fields, sorted by name, joined, + body))

This is what every RocketMQ client can do. It covers neither the request's code nor a time, so that a request that was
overheard can be repeated: use it over TLS.

Source: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner, DefaultAuthenticationContextBuilder.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mqwire.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"

# MQVersion's ordinal of V4_9_3: clients up to it add this field only after they have signed.
_LAST_VERSION_WITH_UNSIGNED_QUERY_FLAG = 399
_UNIQUE_MSG_QUERY_FLAG = "_UNIQUE_KEY_QUERY"


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """Who signs. The secret never shows in a representation."""

    access_key: str
    secret_key: str
    security_token: str | None = None

    def __repr__(self) -> str:
        return f"SessionCredentials(access_key={self.access_key!r}, secret_key='***')"


# A program's requests of one kind have the same fields: their order is computed once, for brokers check each request.
_ORDERS_MAX = 1024
_orders: dict[tuple[str, ...], list[str]] = {}


def _utf16_order(name: str) -> bytes:
    """Java's TreeMap compares UTF-16 units; for names beyond the basic plane that is not the order of characters."""
    return name.encode("utf-16-be", "surrogatepass")


def signed_content(ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview = b"") -> bytes:
    """The bytes that a signature covers."""
    shape = tuple(ext_fields)
    order = _orders.get(shape)
    if order is None:
        order = sorted(shape, key=None if all(name.isascii() for name in shape) else _utf16_order)
        order = [name for name in order if name != SIGNATURE]
        if len(_orders) >= _ORDERS_MAX:
            _orders.clear()
        _orders[shape] = order
    return "".join([ext_fields[name] for name in order]).encode() + body


def sign_content(secret_key: str, content: bytes) -> str:
    """The signature of bytes that are already joined."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode("ascii")


def sign(secret_key: str, ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview = b"") -> str:
    """The Signature of a request with these fields (which must hold AccessKey already) and this body."""
    return sign_content(secret_key, signed_content(ext_fields, body))


def sign_request(request: RemotingCommand, credentials: SessionCredentials) -> None:
    """Put the credentials' fields and the signature into a request; sign last, nothing may change behind it."""
    fields = request.ext_fields
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    fields[SIGNATURE] = sign(credentials.secret_key, fields, request.body)


def signature_matches(request: RemotingCommand, secret_key: str) -> bool:
    """Whether a request is signed with this secret; takes the same time wherever the signatures differ."""
    fields = request.ext_fields
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    if request.version <= _LAST_VERSION_WITH_UNSIGNED_QUERY_FLAG and _UNIQUE_MSG_QUERY_FLAG in fields:
        fields = {name: value for name, value in fields.items() if name != _UNIQUE_MSG_QUERY_FLAG}
    return hmac.compare_digest(given.encode(), sign(secret_key, fields, request.body).encode())
