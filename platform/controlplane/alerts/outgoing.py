"""One POST to an address that a tenant typed, which must not lead into the platform's own network.

The host's name is resolved here, each address is checked, and the connection goes to a checked address: no one can answer the check
with one address and the connection with another. Redirects are not followed, and of the answer only the beginning is read.
"""

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from controlplane.common.sentences import say

URL_CHARACTERS_MAX = 2000
ANSWER_BYTES_MAX = 4096
_TIMEOUT_S = 5.0
# Of all together, from the connection to the answer: a receiver that drips is cut off.
TRY_S = 20
# Addresses that stand for an IPv4 address: the one that they stand for is judged (RFC 6052, RFC 3056, RFC 4380).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
# The IPv6 internet; Python takes other ranges for global too: IPv4-compatible, SIIT, local NAT64, site-local ones.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
# What Python 3.11 takes for global: protocol assignments with a cloud's metadata (RFC 6890), relays (RFC 7526), Azure's
# WireServer, documentation (RFC 9637).
_REFUSED = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20")]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class OutgoingError(Exception):
    """The message was not taken; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Answer:
    """The status and the first 4 KiB of the body."""

    status: int
    body: bytes


def url_problem(url: str, allowed: Sequence[Network] = ()) -> str:
    """Return why nothing can be sent to this URL, as far as the URL itself shows; empty when it can."""
    if (
        len(url) > URL_CHARACTERS_MAX
        or not url.isascii()
        or any(character <= " " or character == "\x7f" for character in url)
    ):
        return say(
            "Use a URL of at most %(url_characters_max)s ASCII characters, without blanks.",
            url_characters_max=URL_CHARACTERS_MAX,
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return say("This isn’t a URL.")
    if parts.scheme not in (("https", "http") if allowed else ("https",)):
        return say("Use a URL that begins with https://.")
    if not parts.hostname:
        return say("The URL names no host.")
    if parts.username is not None or parts.password is not None:
        return say("The URL must not hold a user’s name or password.")
    if port is not None and port != 443 and (port < 1024 and not allowed):
        return say("Use port 443, or one from 1024 on.")
    try:
        literal = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return ""
    if may_connect(literal, allowed):
        return ""
    return say("This address is not on the public internet. An operator of the platform can allow its network.")


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
    if any(address in network for network in _REFUSED):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
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
    watch = threading.Timer(TRY_S, connection.cut_off)
    watch.daemon = True
    watch.start()
    try:
        connection.request("POST", target, body, {"User-Agent": "Highwater", "Connection": "close", **headers})
        response = connection.getresponse()
        answer = Answer(response.status, response.read(ANSWER_BYTES_MAX))
        if connection.is_cut_off:
            raise OutgoingError(_late(host))
        return answer
    except (OSError, http.client.HTTPException) as error:
        if connection.is_cut_off:
            raise OutgoingError(_late(host)) from error
        why = str(error)[:300] or type(error).__name__
        raise OutgoingError(say("%(host)s does not answer: %(error)s", host=host, error=why)) from error
    finally:
        watch.cancel()
        connection.close()


def _late(host: str) -> str:
    return say("%(host)s did not answer within %(seconds)s s.", host=host, seconds=TRY_S)


def _connection(scheme: str, host: str, port: int, allowed: Sequence[Network]) -> "_Checked":
    addresses = list(dict.fromkeys(_resolve(host, port)))
    # Plain http and the ports of other services are for networks that the operator named, not for the internet.
    may_all = scheme == "https" and (port == 443 or port >= 1024)
    good = [
        text
        for text in addresses
        if may_connect(address := ipaddress.ip_address(text), allowed)
        and (may_all or any(address in network for network in allowed))
    ]
    if not good:
        raise OutgoingError(say("%(host)s is not on the public internet.", host=host))
    checked: _Checked = _CheckedHTTPS(host, port) if scheme == "https" else _Checked(host, port)
    checked.addresses = good
    return checked


def _resolve(host: str, port: int) -> list[str]:
    """Return the name's addresses. In a thread: the resolver can't be interrupted, and a tenant's name server may be silent."""
    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):  # nothing is found, and reported below
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_TIMEOUT_S)
    if not found:
        raise OutgoingError(say("The name %(host)s is not known.", host=host))
    return list(found)


class _Checked(http.client.HTTPConnection):
    """Connects to one of the checked addresses, whatever the name stands for by now."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_S)
        self.addresses: list[str] = []
        self.is_cut_off = False
        self._open: socket.socket | None = None

    def connect(self) -> None:
        self._open = self.sock = _connect(self.addresses, self.port)

    def cut_off(self) -> None:
        """End it from another thread: a reader that waits for bytes gets their end."""
        self.is_cut_off = True
        if self._open is not None:
            with contextlib.suppress(OSError):  # it is closed already
                self._open.shutdown(socket.SHUT_RDWR)


class _CheckedHTTPS(_Checked):
    """The same over TLS; the certificate must be the name's."""

    def connect(self) -> None:
        plain = _connect(self.addresses, self.port)
        try:
            secure = ssl.create_default_context().wrap_socket(
                plain, server_hostname=self.host, do_handshake_on_connect=False
            )
        except BaseException:
            plain.close()
            raise
        # Known before the handshake, so that one that takes for ever is cut off too.
        self._open = self.sock = secure
        secure.do_handshake()


def _connect(addresses: Sequence[str], port: int) -> socket.socket:
    last: OSError | None = None
    for address in addresses[:2]:
        try:
            return socket.create_connection((address, port), timeout=_TIMEOUT_S)
        except OSError as error:
            last = error
    raise last or OSError("no address")
