"""What a daemon holds of frames that are arriving, and whose is ended where that is too much."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


class HeldFrames(Generic[P]):
    """Unfinished frames that share one allowance, each held by someone: an address, or an account."""

    def __init__(self, allowed_bytes: int) -> None:
        self.total_bytes = 0
        self._allowed_bytes = allowed_bytes
        self._bytes_of: dict[str, int] = {}
        self._frames_of: dict[str, dict[P, int]] = {}

    def count(self, peer: P, holder: str, size_bytes: int) -> P | None:
        """A peer has this much of an unfinished frame; returns the peer to end where that is too much with all others'.

        It is who has most of the holder that holds most: strangers elsewhere, or another program's frames, end no newcomer whose
        request is large. One of that holder itself is ended without a search.
        """
        frames = self._frames_of.get(holder)
        if frames is None:
            if not size_bytes:
                return None
            frames = self._frames_of[holder] = {}
        more_bytes = size_bytes - frames.get(peer, 0)
        self.total_bytes += more_bytes
        if size_bytes:
            frames[peer] = size_bytes
        else:
            frames.pop(peer, None)
        if frames:
            self._bytes_of[holder] = self._bytes_of.get(holder, 0) + more_bytes
        else:
            del self._frames_of[holder]
            self._bytes_of.pop(holder, None)
        if more_bytes <= 0 or self.total_bytes <= self._allowed_bytes:
            return None
        most = max(self._bytes_of, key=self._bytes_of.__getitem__)
        if most == holder:
            return peer
        others = self._frames_of[most]
        return max(others, key=others.__getitem__)
