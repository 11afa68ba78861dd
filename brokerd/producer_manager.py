"""ProducerManager: who produces in which group, for transaction checks and for lists. Source: ProducerManager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerd.client_channel import ClientChannel, Peer

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig

logger = logging.getLogger("brokerd.producer_manager")


class ProducerManager:
    """All producers that are online; in memory only. `monotonic` is a clock of seconds that never jumps."""

    def __init__(self, config: BrokerConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._groups: dict[str, dict[int, ClientChannel]] = {}
        self._next: dict[str, int] = {}

    def register(self, group: str, channel: ClientChannel) -> None:
        """A heartbeat's word on one group."""
        channel.seen_s = self._monotonic()
        members = self._groups.setdefault(group, {})
        known = members.get(channel.peer.id)
        if known is None or known.client_id != channel.client_id:
            members[channel.peer.id] = channel
            logger.info("producer %s joins group %s", channel.client_id, group)
        else:
            known.seen_s = channel.seen_s

    def unregister(self, group: str, peer: Peer) -> None:
        members = self._groups.get(group)
        if members is not None and members.pop(peer.id, None) is not None and not members:
            del self._groups[group]
            self._next.pop(group, None)

    def close_peer(self, peer: Peer) -> None:
        """A connection is gone, and the producers that used it."""
        for group in list(self._groups):
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
