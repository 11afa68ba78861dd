"""Who may be connected, and with how much memory, before it has shown an account: no sockets, no clock.

A peer that has not been served a request yet counts as unproven. When there is no place, or none for that address, the
unproven connection that was there longest makes room: a client with a key shows it with its first request, and is safe. So that
there are some to make room for a replica, programs never have all places (`programs_max`, which quotas.py holds).
"""

from __future__ import annotations

import resource
from typing import Final

from brokerd.peer import Peer
from mqwire.held_frames import HeldFrames

# Descriptors for the log, the queues' files and the broker's own connections.
_RESERVED_DESCRIPTORS: Final = 1024
_CONNECTIONS_MAX: Final = 16_000
_CONNECTIONS_MIN: Final = 16
# Of them, only for those that have shown no account yet, replicas and the control plane: programs never take these.
_NOT_FOR_PROGRAMS: Final = 256
# One address may be a whole company's; unproven connections of one are short-lived, so that this is plenty.
UNPROVEN_PER_ADDRESS_MAX: Final = 1_024
# All unfinished frames together. One that is larger than what is left ends its connection.
UNPROVEN_FRAMES_BYTES: Final = 32 * 1024 * 1024
PROVEN_FRAMES_BYTES: Final = 96 * 1024 * 1024


def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to its hard one; returns how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def connections_max(descriptors: int) -> int:
    """How many connections leave enough descriptors for files."""
    reserved = min(_RESERVED_DESCRIPTORS, descriptors // 2)
    return max(_CONNECTIONS_MIN, min(_CONNECTIONS_MAX, descriptors - reserved))


def programs_max(connections: int) -> int:
    """How many of so many connections may be programs': a replica that reconnects always has one left."""
    return connections - min(_NOT_FOR_PROGRAMS, connections // 8)


class Admission:
    """The connected peers of one server. Invariant: at most `places` of them."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.peers: set[Peer] = set()
        self._unproven: dict[str, dict[Peer, None]] = {}
        # Of the unproven by address, of the proven by account.
        self._frames: dict[bool, HeldFrames[Peer]] = {
            False: HeldFrames(UNPROVEN_FRAMES_BYTES),
            True: HeldFrames(PROVEN_FRAMES_BYTES),
        }

    def admit(self, peer: Peer) -> Peer | None:
        """Take a new connection; returns the one to close for it. The peer itself is returned when all others are proven."""
        own = self._unproven.setdefault(peer.network, {})
        leaving = None
        if len(own) >= UNPROVEN_PER_ADDRESS_MAX:
            leaving = self._longest_unproven(own)
        if leaving is None and len(self.peers) >= self.places:
            leaving = self._of_the_fullest_address()
            if leaving is None:
                if not own:
                    del self._unproven[peer.network]
                return peer
        if leaving is not None:
            self.leave(leaving)
            own = self._unproven.setdefault(peer.network, {})
        self.peers.add(peer)
        own[peer] = None
        return leaving

    def leave(self, peer: Peer) -> None:
        """It is gone, or about to be; harmless when done twice."""
        self.peers.discard(peer)
        self.count_unfinished(peer, 0)
        address = peer.network
        own = self._unproven.get(address)
        if own is not None:
            own.pop(peer, None)
            if not own:
                del self._unproven[address]

    def count_unfinished(self, peer: Peer, size: int) -> Peer | None:
        """A peer has this much of an unfinished frame; returns the peer to end where that is too much (mqwire/held_frames.py)."""
        if not peer.unfinished_bytes:  # a frame begins
            peer.proven_frames = peer.proven
        peer.unfinished_bytes = size
        return self._frames[peer.proven_frames].count(peer, _holder(peer), size)

    def _of_the_fullest_address(self) -> Peer | None:
        for own in sorted(self._unproven.values(), key=len, reverse=True):
            found = self._longest_unproven(own)
            if found is not None:
                return found
        return None

    @staticmethod
    def _longest_unproven(own: dict[Peer, None]) -> Peer | None:
        """The first that is unproven; those before it, which have proven themselves since, are looked at no more."""
        while own:
            peer = next(iter(own))
            if not peer.proven:
                return peer
            del own[peer]
        return None


def _holder(peer: Peer) -> str:
    """Whose its unfinished frame is; without access control no one has an account."""
    return (peer.access_key if peer.proven_frames else "") or peer.network
