"""ClientChannel: one client in one group, over one connection (RocketMQ's ClientChannelInfo)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from mqwire.bodies import Connection
from mqwire.codes import LanguageCode
from mqwire.command import RemotingCommand


class Peer(Protocol):
    """The connection that a request came over (brokerd/peer.py)."""

    @property
    def id(self) -> int: ...
    @property
    def remote_address(self) -> tuple[str, int]: ...
    @property
    def remote_host(self) -> bytes: ...

    closed: bool
    proven: bool  # a request of its was served that only an account may make
    access_key: str  # which it showed first
    is_platform: bool  # it is the infrastructure's, a replica or the control plane
    has_certificate: bool  # it showed one of the CA that tls.server.trustCertPath names

    def send(self, command: RemotingCommand) -> None:
        """Pushes a command to the client; never waits."""

    @property
    def pending_bytes(self) -> int:
        """What was written to the client and it has not read yet."""

    def write(self, data: bytes) -> None:
        """Queues whole frames for the client; `flush` sends them."""

    def flush(self) -> None:
        """Hands over what is queued, as far as the client reads; never waits."""

    def close(self) -> None:
        """Ends the connection."""

    def close_soon(self) -> None:
        """Ends it once the request that is being served is answered."""


# What a member reported as its subscriptions: topic, expression and its type, sorted.
Reported: TypeAlias = tuple[tuple[str, str, str], ...]

_CHANNEL_BYTES: Final = 600  # with its places in dictionaries and sets, and an id's own overhead


@dataclass(slots=True)
class ClientChannel:
    """A member of a group.

    The group's table writes `seen_s`, the monotonic time of its last heartbeat, and `reported`; None: not kept.
    """

    peer: Peer
    client_id: str
    language: int
    version: int
    seen_s: float = 0.0
    reported: Reported | None = None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes in one group's table."""
        return _CHANNEL_BYTES + text_bytes(self.client_id)

    def to_connection(self) -> Connection:
        host, port = self.peer.remote_address
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return Connection(
            client_id=self.client_id, client_addr=address, language=language_name(self.language), version=self.version
        )


def text_bytes(text: str) -> int:
    """How much memory a text takes at most: one character beyond the basic plane makes all of them four bytes wide."""
    return len(text) if text.isascii() else 4 * len(text)


def language_name(language: int) -> str:
    try:
        return LanguageCode(language).name
    except ValueError:
        return LanguageCode.OTHER.name
