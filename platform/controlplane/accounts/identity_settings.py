"""The identity providers that people may log in with: HIGHWATER_IDENTITY_PROVIDERS, read and checked when a process starts."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from django.core.exceptions import ImproperlyConfigured

from mqwire.first_decode import json_decoder

NAME = "HIGHWATER_IDENTITY_PROVIDERS"
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


class IdentityProvider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One OpenID Connect provider, as the platform's operator describes it.

    `id` stands in addresses and rows: https://console/oidc/ID/callback/ is what the provider has to know. `endpoint_hosts` are
    the hosts that the platform may call beside the issuer's own. Of an address below `email_domains` the provider's word is
    taken that it is confirmed; others get the usual mail. `second_factor_acr` and `second_factor_amr` are the values of those
    claims that say that the provider has asked for a second factor. With `log_out`, a log-out here goes on to the provider.
    """

    id: Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9-]{0,29}$")]
    name: _Text
    issuer: _Text
    client_id: _Text
    client_secret: str = ""
    endpoint_hosts: tuple[_Text, ...] = ()
    email_domains: tuple[_Text, ...] = ()
    second_factor_acr: tuple[_Text, ...] = ()
    second_factor_amr: tuple[_Text, ...] = ()
    log_out: bool = False

    @property
    def document_url(self) -> str:
        """Where the provider describes itself (OpenID Connect Discovery 1.0, section 4)."""
        return f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"

    def may_call(self, url: object) -> bool:
        """Whether the platform itself may send a request there: to the issuer's host, or one that the setting names."""
        if not isinstance(url, str) or not self.may_show(url):
            return False
        hosts = {urlsplit(self.issuer).netloc.lower(), *(host.lower() for host in self.endpoint_hosts)}
        return urlsplit(url).netloc.lower() in hosts

    def may_show(self, url: object) -> bool:
        """Whether a browser may be led there: by https, or as plainly as the issuer's own address is."""
        if not isinstance(url, str):
            return False
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        return bool(parts.hostname) and parts.scheme in ("https", urlsplit(self.issuer).scheme)

    def confirms(self, email: str) -> bool:
        """Whether its word is taken that an address is its user's own."""
        domain = email.rpartition("@")[2].lower()
        return any(domain == one.lower() for one in self.email_domains)

    def gave_factor(self, claims: Mapping[str, Any]) -> bool:
        """Whether these claims say that the provider asked for a second factor, in the words that the setting trusts."""
        methods = claims.get("amr")
        given = {one for one in methods if isinstance(one, str)} if isinstance(methods, list) else set()
        return claims.get("acr") in self.second_factor_acr or not given.isdisjoint(self.second_factor_amr)


def identity_providers_read(text: str) -> tuple[IdentityProvider, ...]:
    """Return the providers of the setting: a JSON list, or the path of a file that holds one; empty: none.

    ImproperlyConfigured says in one sentence what is wrong with it.
    """
    text = text.strip()
    if not text:
        return ()
    if not text.startswith("["):
        try:
            text = Path(text).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise _wrong(f"is neither a JSON list nor a file that can be read: {error}.") from error
    try:
        providers: list[IdentityProvider] = json_decoder(list[IdentityProvider]).decode(text)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise _wrong(f"can’t be read: {error}.") from error
    for provider in providers:
        if problem := _issuer_problem(provider.issuer):
            raise _wrong(f"names an issuer of {provider.id} that {problem}: {provider.issuer}")
    for member in ("id", "issuer", "name"):
        values = [getattr(provider, member) for provider in providers]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise _wrong(f"has two providers with the {member} {twice[0]}.")
    return tuple(providers)


def _issuer_problem(issuer: str) -> str:
    try:
        parts = urlsplit(issuer)
    except ValueError:
        return "is no URL"
    if not parts.hostname or parts.query or parts.fragment or parts.username is not None:
        return "is no plain https address"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_this_machine(parts.hostname)):
        return ""
    return "does not begin with https://"


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _wrong(what: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{NAME} {what}")
