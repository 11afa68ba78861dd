"""RebalanceLockManager: which client of a group holds which queue, for orderly consumption.

A lock lasts 60 s without renewal, on the monotonic clock. Source: RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from brokerd.client_channel import text_bytes
from mqwire.bodies import MessageQueue

LOCK_LIFETIME_S = 60.0
# A bound on memory: what is asked for beyond it is not locked. Of clients that have ids of 60 characters, 90,000 locks.
LOCKS_BYTES_MAX = 32 * 1024 * 1024
_LOCK_BYTES = 300  # with its place in a dictionary, and an id's own overhead
_GROUP_BYTES = 500


class RebalanceLockManager:
    """All locks; in memory only: after a restart clients ask again within 20 s."""

    def __init__(self, monotonic: Callable[[], float], lifetime_s: float = LOCK_LIFETIME_S) -> None:
        self._monotonic = monotonic
        self._lifetime_s = lifetime_s
        self._locks: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._kept_bytes = 0

    def try_lock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Locks for `client_id` what is free, expired or its own already; returns those queues.

        What is given is kept: the caller passes names that it keeps too, of the group and of topics.
        """
        now_s = self._monotonic()
        locks = self._locks.get(group)
        if locks is None:
            locks = self._locks[group] = {}
            self._kept_bytes += _size_of_group(group)
        size_bytes = _size_of_lock(client_id)
        locked = []
        for queue in queues:
            holder = locks.get(queue)
            if holder is not None and holder[0] != client_id and not self._is_expired(holder[1], now_s):
                continue
            added_bytes = size_bytes - (0 if holder is None else _size_of_lock(holder[0]))
            if added_bytes > 0 and self._kept_bytes + added_bytes > LOCKS_BYTES_MAX:
                continue
            self._kept_bytes += added_bytes
            locks[queue] = (client_id, now_s)
            locked.append(queue)
        self._forget_if_empty(group)
        return locked

    def unlock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Frees what `client_id` holds of `queues`; other clients' locks stay."""
        locks = self._locks.get(group)
        if locks is None:
            return
        for queue in queues:
            holder = locks.get(queue)
            if holder is not None and holder[0] == client_id:
                del locks[queue]
                self._kept_bytes -= _size_of_lock(client_id)
        self._forget_if_empty(group)

    def _forget_if_empty(self, group: str) -> None:
        if not self._locks[group]:
            del self._locks[group]
            self._kept_bytes -= _size_of_group(group)

    def holder(self, group: str, queue: MessageQueue) -> str | None:
        """The client that holds the queue now."""
        holder = self._locks.get(group, {}).get(queue)
        return None if holder is None or self._is_expired(holder[1], self._monotonic()) else holder[0]

    def is_any_held(self, group: str) -> bool:
        """Whether a member of the group holds a queue now: it consumes in order."""
        now_s = self._monotonic()
        return any(
            not self._is_expired(locked_s, now_s) for _client_id, locked_s in self._locks.get(group, {}).values()
        )

    def scan(self) -> None:
        """Forgets locks that are over, so that gone groups cost no memory; call it each 10 s or so."""
        now_s = self._monotonic()
        for group, locks in list(self._locks.items()):
            for queue, (client_id, locked_s) in list(locks.items()):
                if self._is_expired(locked_s, now_s):
                    del locks[queue]
                    self._kept_bytes -= _size_of_lock(client_id)
            self._forget_if_empty(group)

    def _is_expired(self, locked_s: float, now_s: float) -> bool:
        return now_s - locked_s > self._lifetime_s


def _size_of_lock(client_id: str) -> int:
    return _LOCK_BYTES + text_bytes(client_id)


def _size_of_group(group: str) -> int:
    return _GROUP_BYTES + text_bytes(group)
