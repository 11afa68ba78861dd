"""Where passkeys work. A browser ties each to one host name, and shows it on secure pages only: https, or this machine."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class PasskeyPlace:
    """The host name that passkeys of this console belong to, and the address of the console by that name."""

    host: str
    origin: str
    is_usable: bool


def passkey_place(public_url: str) -> PasskeyPlace:
    """Return where passkeys of the console at `public_url` work.

    An IP address can't have any (WebAuthn, "valid domain string"); this machine's own has the name localhost besides.
    """
    url = urlsplit(public_url)
    host = url.hostname or ""
    is_named = True
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        pass
    else:
        is_named = is_loopback
        host = "localhost" if is_loopback else host
    name = f"[{host}]" if ":" in host else host
    origin = urlunsplit((url.scheme, name if url.port is None else f"{name}:{url.port}", "", "", ""))
    is_secure = url.scheme == "https" or host == "localhost" or host.endswith(".localhost")
    return PasskeyPlace(host, origin, is_usable=is_named and is_secure)


def host_name(request_host: str) -> str:
    """Return a request's host without its port."""
    return urlsplit(f"//{request_host}").hostname or ""
