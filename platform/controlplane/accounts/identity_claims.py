"""What an identity provider says of itself and of a person, and whether it may be believed. Pure functions; no network."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from controlplane.accounts.identity_settings import IdentityProvider

# Signatures by the provider's private key only: with a shared secret (HS256) or `none`, others could make tokens.
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
_CLOCKS_APART_S = 60
_RSA_BITS_MIN = 2048  # RFC 7518, section 3.3
_SUBJECT_CHARACTERS_MAX = 255


class IdentityRefused(Exception):
    """What came from the provider can't be trusted; the text says why, for the log."""


def document_check(document: Any, provider: IdentityProvider) -> dict[str, Any]:
    """Return the provider's description of itself, if it is of the issuer that is set and leads nowhere else."""
    if not isinstance(document, dict):
        raise IdentityRefused("its description is no JSON object")
    if document.get("issuer") != provider.issuer:
        raise IdentityRefused(f"it calls itself {document.get('issuer')!r}, which is not the issuer that is set")
    for name in ("token_endpoint", "jwks_uri"):
        if not provider.may_call(document.get(name)):
            raise IdentityRefused(f"its {name} is on a host that endpoint_hosts does not name: {document.get(name)!r}")
    if not provider.may_show(document.get("authorization_endpoint")):
        raise IdentityRefused(
            f"its authorization_endpoint is no https address: {document.get('authorization_endpoint')!r}"
        )
    return document


def nonce_of(code_verifier: str) -> str:
    """Return the nonce of the log-in that was begun with this PKCE verifier: known to its session alone, used once."""
    return hashlib.sha256(b"nonce:" + code_verifier.encode()).hexdigest()


def identity_of(issuer: str, subject: str) -> str:
    """Return the key of an identity: issuer and subject together (OpenID Connect Core 1.0, section 5.7), never the e-mail."""
    return hashlib.sha256(f"{issuer}\n{subject}".encode()).hexdigest()


def id_token_claims(token: Any, key_set: Any, provider: IdentityProvider, nonce: str) -> dict[str, Any]:
    """Return the claims of an ID token: signed by the issuer, for this client, for the log-in with this nonce, not expired.

    OpenID Connect Core 1.0, section 3.1.3.7; the signature is checked always. IdentityRefused: it is none of that.
    """
    if not isinstance(token, str) or not isinstance(key_set, dict):
        raise IdentityRefused("there is no ID token, or no key set")
    try:
        claims: dict[str, Any] = jwt.decode(
            token,
            _key_of(token, key_set),
            algorithms=ALGORITHMS,
            audience=provider.client_id,
            issuer=provider.issuer,
            leeway=_CLOCKS_APART_S,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )
    except (jwt.PyJWTError, TypeError, ValueError) as error:
        raise IdentityRefused(f"its ID token: {error}") from error
    party = claims.get("azp")
    if (party is not None and party != provider.client_id) or (
        party is None and isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    ):
        raise IdentityRefused("its ID token was made for another client")
    if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise IdentityRefused("its ID token is of another log-in (nonce)")
    if not claims["sub"] or len(claims["sub"]) > _SUBJECT_CHARACTERS_MAX:
        raise IdentityRefused("its ID token names no one (sub)")
    return claims


def with_user_info(claims: Mapping[str, Any], info: Any) -> dict[str, Any]:
    """Return the claims with the e-mail address of the UserInfo answer, which must be of the same person.

    With the address comes its own `email_verified`: what the ID token says of another address counts for nothing.
    """
    if not isinstance(info, dict) or info.get("sub") != claims["sub"]:
        raise IdentityRefused("its UserInfo answer is of another person than its ID token")
    if "email" not in info:
        return dict(claims)
    kept = {name: value for name, value in claims.items() if name != "email_verified"}
    return {**kept, **{name: info[name] for name in ("email", "email_verified") if name in info}}


def _key_of(token: str, key_set: dict[str, Any]) -> jwt.PyJWK:
    wanted = jwt.get_unverified_header(token).get("kid")
    keys = [key for key in jwt.PyJWKSet.from_dict(key_set).keys if key.public_key_use in (None, "sig")]
    found = [key for key in keys if wanted is None or key.key_id == wanted]
    if len(found) != 1:
        raise IdentityRefused(f"its key set has {len(found)} keys for the ID token’s kid {wanted!r}")
    if isinstance(found[0].key, RSAPublicKey) and found[0].key.key_size < _RSA_BITS_MIN:
        raise IdentityRefused(f"its key has {found[0].key.key_size} bits, of {_RSA_BITS_MIN} at least")
    return found[0]
