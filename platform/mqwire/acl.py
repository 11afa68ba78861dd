"""Signed requests: RocketMQ's ACL v1, and version 2, which covers what v1 leaves out.

A signed request carries AccessKey and Signature (and SecurityToken, if the account has one) as extension fields:

    Signature = base64(HMAC-SHA1(secretKey, values of all other fields, sorted by name, joined, + body))

This is what every RocketMQ client can do. It covers neither the request's code nor a time, so that a request that was
overheard can be repeated: use it over TLS.

Version 2 is ours. The control plane's and the replicas' account must use it, the SDK does unless set otherwise:

    SignatureVersion = 2, SignatureTime = milliseconds since 1970, SignatureNonce = <session, 16 hex digits>-<number>
    Signature = base64(HMAC-SHA256(secretKey, "highwater-2", code, each other field's name and value by name, body))

where each part carries its length in front, so that nothing can move from one part into the next. A verifier takes each
number of a session once, and no request that is older or newer than `SIGNATURE_LIFETIME_MS`.

Source of v1: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner, DefaultAuthenticationContextBuilder.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import os
import re
import secrets
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mqwire.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  # the name of a field
SIGNATURE_VERSION = "SignatureVersion"
SIGNATURE_TIME = "SignatureTime"
SIGNATURE_NONCE = "SignatureNonce"

# How far the clocks of who signs and who verifies may be apart, in either direction.
SIGNATURE_LIFETIME_MS: Final = 300_000

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
# Only sets of fields that came with a matching signature are kept, and none with more fields or longer names than clients send.
_ORDERS_MAX = 1024
_ORDER_FIELDS_MAX = 64
_ORDER_CHARACTERS_MAX = 1024  # of all names together
_orders: dict[tuple[str, ...], list[str]] = {}


def _utf16_order(name: str) -> bytes:
    """Java's TreeMap compares UTF-16 units; for names beyond the basic plane that is not the order of characters."""
    return name.encode("utf-16-be", "surrogatepass")


def signed_content(ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview = b"") -> bytes:
    """The bytes that a signature of version 1 covers."""
    shape = tuple(ext_fields)
    return _joined(_orders.get(shape) or _order_of(shape), ext_fields, body)


def _order_of(shape: tuple[str, ...]) -> list[str]:
    order = sorted(shape, key=None if all(name.isascii() for name in shape) else _utf16_order)
    return [name for name in order if name != SIGNATURE]


def _joined(order: list[str], ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview) -> bytes:
    return "".join([ext_fields[name] for name in order]).encode() + body


def sign_content(secret_key: str, content: bytes) -> str:
    """The signature of bytes that are already joined."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode("ascii")


def sign(secret_key: str, ext_fields: Mapping[str, str], body: bytes | bytearray | memoryview = b"") -> str:
    """The Signature of a request with these fields (which must hold AccessKey already) and this body."""
    return sign_content(secret_key, signed_content(ext_fields, body))


def sign_request(request: RemotingCommand, credentials: SessionCredentials) -> None:
    """Put the credentials' fields and the signature into a request; sign last, nothing may change after it."""
    fields = request.ext_fields
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    shape = tuple(fields)
    order = _orders.get(shape)
    if order is None:
        order = _order_of(shape)
        _remember_order(shape, order)
    fields[SIGNATURE] = sign_content(credentials.secret_key, _joined(order, fields, request.body))


def signature_matches(request: RemotingCommand, secret_key: str) -> bool:
    """Whether a request is signed with this secret, by version 1; takes the same time wherever the signatures differ."""
    fields = request.ext_fields
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    if request.version <= _LAST_VERSION_WITH_UNSIGNED_QUERY_FLAG and _UNIQUE_MSG_QUERY_FLAG in fields:
        fields = {name: value for name, value in fields.items() if name != _UNIQUE_MSG_QUERY_FLAG}
    shape = tuple(fields)
    known = _orders.get(shape)
    order = known or _order_of(shape)
    expected = sign_content(secret_key, _joined(order, fields, request.body))
    matches = hmac.compare_digest(given.encode(), expected.encode())
    if matches and known is None:
        _remember_order(shape, order)
    return matches


def _remember_order(shape: tuple[str, ...], order: list[str]) -> None:
    if len(shape) > _ORDER_FIELDS_MAX or sum(map(len, shape)) > _ORDER_CHARACTERS_MAX:
        return
    if len(_orders) >= _ORDERS_MAX:
        _orders.clear()
    _orders[shape] = order


def accounts_version(content: bytes) -> int:
    """What a daemon answers as the timestamp of its accounts' version when their file has no dataVersion of its own: it
    changes with the content, so that the one who wrote the file sees whether it counts.
    """
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")


# --- version 2 ---

_CONTENT_2: Final = b"highwater-2"
_NONCE: Final = re.compile(r"([0-9a-f]{16})-([0-9]{1,15})")
_CODE: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">I")


def signature_2(request: RemotingCommand, secret_key: str) -> str:
    """The signature by version 2 of all that the request holds but its Signature."""
    fields = request.ext_fields
    parts = [_CONTENT_2, _CODE.pack(request.code)]
    for name in sorted(fields):
        if name != SIGNATURE:
            key, value = name.encode(), fields[name].encode()
            parts += (_LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value)
    parts += (_LENGTH.pack(len(request.body)), bytes(request.body))
    return base64.b64encode(hmac.digest(secret_key.encode(), b"".join(parts), "sha256")).decode("ascii")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Signer:
    """Signs one program's requests by version 2. `clock_ms` is the wall clock."""

    def __init__(self, credentials: SessionCredentials, clock_ms: Callable[[], int] = _now_ms) -> None:
        self._credentials = credentials
        self._clock_ms = clock_ms
        self._begin_session()

    def _begin_session(self) -> None:
        self._session = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._process_id = os.getpid()

    def sign(self, request: RemotingCommand) -> None:
        """Put the credentials' fields and the signature into a request; one that is sent again is signed again."""
        if os.getpid() != self._process_id:  # a fork would give its parent's numbers a second time
            self._begin_session()
        credentials = self._credentials
        fields = request.ext_fields
        fields[ACCESS_KEY] = credentials.access_key
        if credentials.security_token is not None:
            fields[SECURITY_TOKEN] = credentials.security_token
        fields[SIGNATURE_VERSION] = "2"
        fields[SIGNATURE_TIME] = str(self._clock_ms())
        fields[SIGNATURE_NONCE] = f"{self._session}-{next(self._numbers)}"
        fields[SIGNATURE] = signature_2(request, credentials.secret_key)


@dataclass(slots=True)
class _Session:
    """The numbers of one signer that were taken: bit n of `taken` is the number `highest` - n."""

    last_ms: int
    highest: int = 0
    taken: int = 0


# Requests over several connections may overtake each other by this many numbers.
_WINDOW_NUMBERS: Final = 1024
_WINDOW_MASK: Final = (1 << _WINDOW_NUMBERS) - 1
_SESSIONS_MAX: Final = 4096
# A verifier that has just started has forgotten what it took: what is older than its start is refused, but for this
# much, by which the clocks of one cluster may differ.
_START_TOLERANCE_MS: Final = 5_000


class SignatureVerifier:
    """Checks signatures of version 2 for one daemon, and takes each request once. `clock_ms` is the wall clock.

    What it remembers belongs to access keys whose signature matched, and is bounded for each: when a key has more
    sessions than are kept, the oldest is forgotten, and with it everything of that key that is not newer.
    """

    def __init__(self, clock_ms: Callable[[], int] = _now_ms) -> None:
        self._clock_ms = clock_ms
        self._started_ms = clock_ms()
        self._sessions: dict[str, dict[str, _Session]] = {}
        self._forgotten_ms: dict[str, int] = {}

    def why_refused(self, request: RemotingCommand, secret_key: str) -> str | None:
        """None when the request is signed with this secret, in time, and for the first time; else why not."""
        fields = request.ext_fields
        given = fields.get(SIGNATURE, "")
        if not hmac.compare_digest(given.encode(), signature_2(request, secret_key).encode()):
            return "the key or its secret is wrong"
        nonce = _NONCE.fullmatch(fields.get(SIGNATURE_NONCE, ""))
        try:
            signed_ms = int(fields.get(SIGNATURE_TIME, ""))
        except ValueError:
            nonce = None
            signed_ms = 0
        if fields[SIGNATURE_VERSION] != "2" or nonce is None:
            return "SignatureVersion, SignatureTime or SignatureNonce is not of version 2"
        now_ms = self._clock_ms()
        if abs(now_ms - signed_ms) > SIGNATURE_LIFETIME_MS or signed_ms < self._started_ms - _START_TOLERANCE_MS:
            return f"it was signed at {signed_ms}, and the time here is {now_ms}: set the clock right, or send it again"
        if not self._take(fields[ACCESS_KEY], nonce[1], int(nonce[2]), signed_ms):
            return "it was used before: sign each request separately"
        return None

    def forget(self, access_keys: set[str]) -> None:
        """Drop what is remembered of accounts that are not among these."""
        for access_key in self._sessions.keys() - access_keys:
            del self._sessions[access_key]
            self._forgotten_ms.pop(access_key, None)

    def _take(self, access_key: str, name: str, number: int, signed_ms: int) -> bool:
        sessions = self._sessions.setdefault(access_key, {})
        session = sessions.pop(name, None)
        if session is None:
            if signed_ms <= self._forgotten_ms.get(access_key, 0):
                return False
            session = _Session(signed_ms)
        sessions[name] = session  # the one that was used last stands last
        session.last_ms = max(session.last_ms, signed_ms)
        if len(sessions) > _SESSIONS_MAX:
            oldest = sessions.pop(next(iter(sessions)))
            self._forgotten_ms[access_key] = max(self._forgotten_ms.get(access_key, 0), oldest.last_ms)
        if number > session.highest:
            session.taken = (session.taken << min(number - session.highest, _WINDOW_NUMBERS) | 1) & _WINDOW_MASK
            session.highest = number
            return True
        bit = session.highest - number
        if bit >= _WINDOW_NUMBERS or session.taken >> bit & 1:
            return False
        session.taken |= 1 << bit
        return True
