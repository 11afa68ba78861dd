"""A small real OpenID Connect provider on the loopback: discovery, log-in page, codes with PKCE, signed ID tokens, keys, log-out.

What it answers can be bent by its fields, as a careless or hostile provider would.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT_ID, CLIENT_SECRET = "highwater", "a-secret-of-the-client"
_KEY_ID = "key-1"


@dataclass
class Provider:
    """What the provider says of the person who agrees on its page; tests change it between log-ins."""

    issuer: str
    subject: str = "u-1001"
    claims: dict[str, Any] = field(default_factory=dict)  # over those of an honest ID token
    document: dict[str, Any] = field(default_factory=dict)  # over those of an honest description
    user_info: dict[str, Any] | None = None  # None: the e-mail address is in the ID token
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    algorithm: str = "RS256"
    requests: list[dict[str, str]] = field(default_factory=list)  # of log-ins, as they came by the browser
    ended: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.published = self.key.public_key()

    def setting(self, **more: Any) -> dict[str, Any]:
        """Its entry in HIGHWATER_IDENTITY_PROVIDERS."""
        base = {"id": "corp", "name": "Example Corp", "issuer": self.issuer}
        return {**base, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, **more}

    def description(self) -> dict[str, Any]:
        names = {"authorization": "authorize", "token": "token", "userinfo": "userinfo", "end_session": "end"}
        endpoints = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in names.items()}
        return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **endpoints, **self.document}

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        honest: dict[str, Any] = {
            "iss": self.issuer,
            "sub": self.subject,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "email": "dora@example.com",
            "email_verified": True,
        }
        if self.user_info is not None:
            del honest["email"]
        claims = {name: value for name, value in {**honest, **self.claims}.items() if value is not None}
        key: Any = CLIENT_SECRET * 2 if self.algorithm == "HS256" else None if self.algorithm == "none" else self.key
        return jwt.encode(claims, key, algorithm=self.algorithm, headers={"kid": _KEY_ID})

    def keys(self) -> dict[str, Any]:
        numbers = jwt.algorithms.RSAAlgorithm.to_jwk(self.published, as_dict=True)
        return {"keys": [{**numbers, "kid": _KEY_ID, "use": "sig"}]}


class _Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        provider = self.provider
        if url.path == "/.well-known/openid-configuration":
            self.answer_json(provider.description())
        elif url.path == "/keys":
            self.answer_json(provider.keys())
        elif url.path == "/userinfo":
            has_token = self.headers["Authorization"] == "Bearer an-access-token"
            self.answer_json(provider.user_info if has_token else None, 200 if has_token else 401)
        elif url.path == "/authorize":
            provider.requests.append(asked)
            fields = "".join(f'<input type="hidden" name="{n}" value="{html.escape(v)}">' for n, v in asked.items())
            buttons = '<button name="act" value="agree">Agree</button><button name="act" value="cancel">Cancel</button>'
            self.answer(f'<!doctype html><title>Corp</title><form action="/agree">{fields}{buttons}</form>')
        elif url.path == "/agree":
            if asked["act"] == "agree":
                code = secrets.token_urlsafe()
                provider.codes[code] = asked
                query = {"code": code, "state": asked["state"]}
            else:
                query = {"error": "access_denied", "state": asked["state"]}
            self.redirect(f"{asked['redirect_uri']}?{urlencode(query)}")
        elif url.path == "/end":
            provider.ended.append(asked)
            self.redirect(asked["post_logout_redirect_uri"])
        else:
            self.answer("", 204)

    def do_POST(self) -> None:
        form = {n: v[0] for n, v in parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()).items()}
        login = self.provider.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        client = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if (
            login is None
            or self.headers["Authorization"] != f"Basic {client}"
            or login["code_challenge"] != challenge.decode().rstrip("=")
            or login["redirect_uri"] != form["redirect_uri"]
        ):
            self.answer_json({"error": "invalid_grant"}, 400)
            return
        token = self.provider.id_token(login["nonce"])
        self.answer_json({"access_token": "an-access-token", "token_type": "Bearer", "id_token": token})

    def redirect(self, address: str) -> None:
        self.send_response(302)
        self.send_header("Location", address)
        self.end_headers()

    def answer_json(self, value: object, status: int = 200) -> None:
        self.answer(json.dumps(value), status, "application/json")

    def answer(self, text: str, status: int = 200, kind: str = "text/html") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # upstream's name
        """Say nothing."""


@contextmanager
def identity_provider() -> Iterator[Provider]:
    """A provider that answers until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    provider = Provider(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"provider": provider})
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
