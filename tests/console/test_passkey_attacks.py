"""Passkeys against someone who sends what no browser would: answers of other log-ins, other sites, other people and other keys."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import pytest
from allauth.account.app_settings import LOGIN_TIMEOUT
from allauth.account.internal import stagekit
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.cache import cache
from django.test import Client
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData
from pytest_django.fixtures import Settings

from controlplane.accounts.models import User
from tests.console.world import PASSWORD, World

HOST = "console.example"
ORIGIN = f"https://{HOST}"
UP, UV, AT = AuthenticatorData.FLAG.UP, AuthenticatorData.FLAG.UV, AuthenticatorData.FLAG.AT


@pytest.fixture(autouse=True)
def public_address(settings: Settings) -> None:
    settings.HIGHWATER_PUBLIC_URL = ORIGIN
    cache.clear()  # of the tries that others have counted: none here is to be refused for its number


@dataclass
class SoftKey:
    """What a phone or security key does, by our own hands."""

    user: User
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def register(self, *, alone: bool) -> SoftKey:
        """It is the user's, as if it had been added in the console; `alone`: to log in with without a password."""
        public = ES256.from_cryptography_key(self.key.public_key())  # type: ignore[no-untyped-call]  # untyped upstream
        data = AttestedCredentialData.create(bytes(16), self.credential_id, public)
        flags = UP | AT | (UV if alone else 0)
        seen = AuthenticatorData.create(hashlib.sha256(HOST.encode()).digest(), flags, 0, data)
        response = {
            "clientDataJSON": websafe_encode(client_data("webauthn.create", websafe_encode(b"x"), ORIGIN)),
            "attestationObject": websafe_encode(AttestationObject.create("none", seen, {})),
        }
        credential = {
            "id": websafe_encode(self.credential_id),
            "rawId": websafe_encode(self.credential_id),
            "type": "public-key",
            "response": response,
            "clientExtensionResults": {"credProps": {"rk": alone}},
        }
        Authenticator.objects.create(
            user=self.user, type=Authenticator.Type.WEBAUTHN, data={"name": "Key", "credential": credential}
        )
        return self

    def answer(
        self,
        challenge: str,
        *,
        verified: bool = True,
        origin: str = ORIGIN,
        host: str = HOST,
        owner: User | None = None,
        kind: str = "webauthn.get",
    ) -> str:
        """Its answer to a challenge. `verified`: a PIN, finger or face was shown."""
        seen = AuthenticatorData.create(hashlib.sha256(host.encode()).digest(), UP | (UV if verified else 0), 1)
        said = client_data(kind, challenge, origin)
        signature = self.key.sign(seen + hashlib.sha256(said).digest(), ec.ECDSA(hashes.SHA256()))
        response = {
            "clientDataJSON": websafe_encode(said),
            "authenticatorData": websafe_encode(seen),
            "signature": websafe_encode(signature),
            "userHandle": websafe_encode(user_pk_to_url_str(owner or self.user).encode()),
        }
        return json.dumps(
            {
                "id": websafe_encode(self.credential_id),
                "rawId": websafe_encode(self.credential_id),
                "type": "public-key",
                "response": response,
                "clientExtensionResults": {},
            }
        )


def client_data(kind: str, challenge: str, origin: str) -> bytes:
    return json.dumps({"type": kind, "challenge": challenge, "origin": origin, "crossOrigin": False}).encode()


def challenge_of(client: Client) -> str:
    answer = client.get("/2fa/webauthn/login/", headers={"X-Requested-With": "XMLHttpRequest"})
    challenge: str = answer.json()["request_options"]["publicKey"]["challenge"]
    return challenge


def log_in_alone(client: Client, credential: str) -> bool:
    assert client.post("/2fa/webauthn/login/", {"credential": credential}).status_code == 302
    return is_logged_in(client)


def is_logged_in(client: Client) -> bool:
    return client.get("/sessions/").status_code == 200


@pytest.mark.django_db
def test_a_passkey_opens_its_account_by_a_fresh_challenge_and_once(world: World) -> None:
    key, client = SoftKey(world.alice).register(alone=True), Client()
    answer = key.answer(challenge_of(client))
    assert log_in_alone(client, answer)
    for overhearer in (Client(), client):
        overhearer.post("/logout/")
        overhearer.cookies.clear()
        assert not log_in_alone(overhearer, answer)
        challenge_of(overhearer)
        assert not log_in_alone(overhearer, answer)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "bent",
    [
        {"verified": False},
        {"origin": "https://console.example.evil.test"},
        {"origin": "http://console.example"},
        {"host": "evil.test"},
        {"kind": "webauthn.create"},
    ],
    ids=repr,
)
def test_an_answer_that_was_given_elsewhere_or_without_a_pin_opens_nothing(world: World, bent: dict[str, Any]) -> None:
    key, client = SoftKey(world.alice).register(alone=True), Client()
    assert not log_in_alone(client, key.answer(challenge_of(client), **bent))


@pytest.mark.django_db
def test_a_passkey_opens_no_other_account(world: World) -> None:
    alices = SoftKey(world.alice).register(alone=True)
    SoftKey(world.bob).register(alone=True)
    client = Client()
    assert not log_in_alone(client, alices.answer(challenge_of(client), owner=world.bob))
    stranger = SoftKey(world.alice)  # never registered
    assert not log_in_alone(client, stranger.answer(challenge_of(client)))


def challenge_after_password(client: Client, user: User) -> str:
    """That of the step after a right password, which needs no PIN of the key."""
    client.post("/login/", {"login": user.email, "password": PASSWORD})
    page = client.get("/2fa/authenticate/")
    assert page.status_code == 200
    challenge: str = page.context["js_data"]["request_options"]["publicKey"]["challenge"]
    return challenge


@pytest.mark.django_db
def test_a_key_of_another_person_is_no_second_factor(world: World) -> None:
    SoftKey(world.alice).register(alone=False)
    bobs, client = SoftKey(world.bob).register(alone=False), Client()
    challenge = challenge_after_password(client, world.alice)
    for owner in (world.alice, world.bob):
        answer = client.post("/2fa/authenticate/", {"credential": bobs.answer(challenge, owner=owner)})
        assert answer.status_code != 429
        assert not is_logged_in(client)


@pytest.mark.django_db
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_stolen_key_without_its_pin_opens_nothing_by_the_challenge_of_the_thiefs_own_log_in(
    world: World, monkeypatch: pytest.MonkeyPatch, alone: bool, waits: bool
) -> None:
    """After a password a key may be used without its PIN, by that account alone. The thief's log-in ends, not its challenge."""
    SoftKey(world.bob).register(alone=False)
    stolen, client = SoftKey(world.alice).register(alone=alone), Client()
    challenge = challenge_after_password(client, world.bob)
    if waits:
        monkeypatch.setattr(stagekit, "time", Mock(time=lambda: time.time() + LOGIN_TIMEOUT + 1))
    assert not log_in_alone(client, stolen.answer(challenge, verified=False))


@pytest.mark.django_db
def test_a_security_key_that_comes_after_the_password_opens_nothing_alone(world: World) -> None:
    key, client = SoftKey(world.alice).register(alone=False), Client()
    assert not log_in_alone(client, key.answer(challenge_of(client), verified=False))
