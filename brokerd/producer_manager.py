"""ProducerManager: who produces in which group, for transaction checks and for lists. Source: ProducerManager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from brokerd.client_channel import ClientChannel, Peer, text_bytes

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig

# Memory of all producers' memberships: of those that have ids of 60 characters 48,000, far more than one broker's clients have.
PRODUCERS_BYTES_MAX: Final = 32 * 1024 * 1024

logger = logging.getLogger("brokerd.producer_manager")


class ProducerManager:
    """All producers that are online; in memory only. `monotonic` is a clock of seconds that never jumps."""

    def __init__(self, config: BrokerConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._groups: dict[str, dict[int, ClientChannel]] = {}
        self._next: dict[str, int] = {}
        self._groups_of: dict[int, set[str]] = {}  # by connection
        self._kept_bytes = 0

    def register(self, group: str, channel: ClientChannel) -> bool:
        """A heartbeat's word on one group; False when that would take more memory than all producers may."""
        channel.seen_s = self._monotonic()
        known = self._groups.get(group, {}).get(channel.peer.id)
        if known is not None and known.client_id == channel.client_id:
            known.seen_s = channel.seen_s
            return True
        added_bytes = _size_of(group, channel) - (0 if known is None else _size_of(group, known))
        if self._kept_bytes + added_bytes > PRODUCERS_BYTES_MAX and added_bytes > 0:
            return False
        self._kept_bytes += added_bytes
        self._groups_of.setdefault(channel.peer.id, set()).add(group)
        self._groups.setdefault(group, {})[channel.peer.id] = channel
        logger.debug("producer %s joins group %s", channel.client_id, group)
        return True

    def unregister(self, group: str, peer: Peer) -> None:
        members = self._groups.get(group)
        member = None if members is None else members.pop(peer.id, None)
        if members is None or member is None:
            return
        self._kept_bytes -= _size_of(group, member)
        own = self._groups_of[peer.id]
        own.discard(group)
        if not own:
            del self._groups_of[peer.id]
        if not members:
            del self._groups[group]
            self._next.pop(group, None)

    def close_peer(self, peer: Peer) -> None:
        """A connection is gone, and the producers that used it."""
        for group in list(self._groups_of.get(peer.id, ())):
            self.unregister(group, peer)

    def scan(self) -> None:
        """Drops members without a heartbeat for longer than channelExpiredTimeout; call it each 10 s."""
        oldest_s = self._monotonic() - self._config.channel_expired_timeout_ms / 1000
        for group, members in list(self._groups.items()):
            for channel in list(members.values()):
                if channel.seen_s < oldest_s:
                    self.unregister(group, channel.peer)

    def channels(self, group: str) -> list[ClientChannel]:
        return list(self._groups.get(group, {}).values())

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def available_channel(self, group: str) -> ClientChannel | None:
        """One of the group's open connections, another at each call (getAvailableChannel)."""
        open_channels = [channel for channel in self.channels(group) if not channel.peer.closed]
        if not open_channels:
            return None
        turn = self._next.get(group, 0)
        self._next[group] = turn + 1
        return open_channels[turn % len(open_channels)]


def _size_of(group: str, member: ClientChannel) -> int:
    """Each of a group's first members may have brought its name."""
    return member.size_bytes + text_bytes(group)
