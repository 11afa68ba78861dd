"""What the environment says about the cluster to use."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from highwater._models import Credentials
from highwater._network import trust_ca
from highwater._routes import parse_name_servers
from highwater.errors import ConfigurationError

_ENDPOINT = ("HIGHWATER_ENDPOINT", "NAMESRV_ADDR")
_KEY = ("HIGHWATER_KEY", "HIGHWATER_ACCESS_KEY")
_SECRET = ("HIGHWATER_SECRET", "HIGHWATER_SECRET_KEY")
_TLS = ("HIGHWATER_TLS",)
_TLS_CA = ("HIGHWATER_TLS_CA",)


@dataclass(frozen=True, slots=True)
class Settings:
    """Name servers, credentials and whether to use TLS."""

    namesrv: tuple[str, ...]
    credentials: Credentials | None
    use_tls: bool | ssl.SSLContext = False


def settings_from_env(environ: Mapping[str, str] | None = None) -> Settings:
    """HIGHWATER_ENDPOINT (or RocketMQ's NAMESRV_ADDR), HIGHWATER_KEY, HIGHWATER_SECRET, and either
    HIGHWATER_TLS_CA=ca.pem for TLS with the cluster's own CA, or HIGHWATER_TLS=true for whom the machine trusts.

    Raises ConfigurationError that names the variable that is missing.
    """
    environment = os.environ if environ is None else environ

    def value(names: tuple[str, ...]) -> str:
        return next((environment[name] for name in names if environment.get(name)), "")

    endpoint = value(_ENDPOINT)
    if not endpoint:
        raise ConfigurationError("no cluster is named: set HIGHWATER_ENDPOINT (or NAMESRV_ADDR) to host:port;host:port")
    key, secret = value(_KEY), value(_SECRET)
    if bool(key) != bool(secret):
        raise ConfigurationError(f"only one half of the credentials is set: {(_SECRET if key else _KEY)[0]} is missing")
    return Settings(
        namesrv=parse_name_servers(endpoint),
        credentials=Credentials(key, secret) if key else None,
        use_tls=trust_ca(value(_TLS_CA)) if value(_TLS_CA) else value(_TLS).lower() in ("1", "true", "yes"),
    )
