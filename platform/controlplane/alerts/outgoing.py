"""One POST to an address that a tenant typed, which must not lead into the platform's own network.

The host's name is resolved here, each address is checked, and the connection goes to a checked address: nobody can answer the check
with one address and the connection with another. Redirects are not followed, and of the answer only the beginning is read.
"""

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

URL_CHARACTERS_MAX = 2000
ANSWER_BYTES_MAX = 4096
_TIMEOUT_S = 5.0
# Addresses that stand for an IPv4 address: the one that they stand for is judged (RFC 6052, RFC 3056, RFC 4380).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class OutgoingError(Exception):
    """The message was not taken; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The status and the first 4 KiB of the body."""

    status: int
    body: bytes


def url_problem(url: str, allowed: Sequence[Network] = ()) -> str:
    """Return why nothing can be sent to this URL, as far as it tells by itself; empty when it can."""
    if len(url) > URL_CHARACTERS_MAX or not url.isascii() or any(character <= " " for character in url):
        return f"Use a URL of at most {URL_CHARACTERS_MAX} ASCII characters, without blanks."
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "This isn’t a URL."
    if parts.scheme not in (("https", "http") if allowed else ("https",)):
        return "Use a URL that begins with https://."
    if not parts.hostname:
        return "The URL names no host."
    if parts.username is not None or parts.password is not None:
        return "The URL must not hold a user’s name or password."
    if port is not None and port != 443 and (port < 1024 and not allowed):
        return "Use port 443, or one from 1024 on."
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return ""
    return "" if may_connect(literal, allowed) else "This address is not on the public internet."


def may_connect(address: Address, allowed: Sequence[Network] = ()) -> bool:
    """Return whether the address is on the public internet, or in a network that the operator allows."""
    if isinstance(address, ipaddress.IPv6Address):
        meant = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if address in _NAT64:
            meant = ipaddress.IPv4Address(address.packed[-4:])
        if meant is not None:
            return may_connect(meant, allowed)
        if address.scope_id is not None:
            return False
    if any(address in network for network in allowed):
        return True
    return address.is_global and not address.is_multicast


def post(url: str, headers: Mapping[str, str], body: bytes, allowed: Sequence[Network] = ()) -> Answer:
    """Send it; raises OutgoingError when the address may not be reached, or nothing answers."""
    if problem := url_problem(url, allowed):
        raise OutgoingError(problem)
    parts = urlsplit(url)
    host = str(parts.hostname)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = _connection(parts.scheme, host, port, allowed)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request("POST", target, body, {"User-Agent": "Highwater", "Connection": "close", **headers})
        response = connection.getresponse()
        return Answer(response.status, response.read(ANSWER_BYTES_MAX))
    except (OSError, http.client.HTTPException) as error:
        raise OutgoingError(f"{host} does not answer: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _connection(scheme: str, host: str, port: int, allowed: Sequence[Network]) -> http.client.HTTPConnection:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OutgoingError(f"The name {host} is not known.") from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    good = [address for address in addresses if may_connect(ipaddress.ip_address(address), allowed)]
    if not good:
        raise OutgoingError(f"{host} is not on the public internet.")
    checked = _CheckedHTTPS(host, port) if scheme == "https" else _CheckedHTTP(host, port)
    checked.addresses = good
    return checked


class _CheckedHTTP(http.client.HTTPConnection):
    """Connects to one of the checked addresses, whatever the name stands for by now."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_S)
        self.addresses: list[str] = []

    def connect(self) -> None:
        self.sock = _connect(self.addresses, self.port)


class _CheckedHTTPS(http.client.HTTPSConnection):
    """The same over TLS; the certificate must be the name's."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_S, context=ssl.create_default_context())
        self.addresses: list[str] = []

    def connect(self) -> None:
        plain = _connect(self.addresses, self.port)
        try:
            self.sock = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def _connect(addresses: Sequence[str], port: int) -> socket.socket:
    last: OSError | None = None
    for address in addresses[:2]:
        try:
            return socket.create_connection((address, port), timeout=_TIMEOUT_S)
        except OSError as error:
            last = error
    raise last or OSError("no address")
