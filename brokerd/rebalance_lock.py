"""RebalanceLockManager: which client of a group holds which queue, for orderly consumption.

A lock lasts 60 s without renewal, on the monotonic clock. Source: RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mqwire.bodies import MessageQueue

LOCK_LIFETIME_S = 60.0
# A bound on memory: what is asked for beyond it is not locked.
LOCKS_MAX = 100_000


class RebalanceLockManager:
    """All locks; in memory only: after a restart clients ask again within 20 s."""

    def __init__(self, monotonic: Callable[[], float], lifetime_s: float = LOCK_LIFETIME_S) -> None:
        self._monotonic = monotonic
        self._lifetime_s = lifetime_s
        self._locks: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        self._count = 0

    def try_lock_batch(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> list[MessageQueue]:
        """Locks for `client_id` what is free, expired or its own already; returns those queues."""
        now_s = self._monotonic()
        locks = self._locks.setdefault(group, {})
        locked = []
        for queue in queues:
            holder = locks.get(queue)
            if holder is None:
                if self._count >= LOCKS_MAX:
                    continue
                self._count += 1
            if holder is None or holder[0] == client_id or self._is_expired(holder[1], now_s):
                locks[queue] = (client_id, now_s)
                locked.append(queue)
        if not locks:
            del self._locks[group]
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
                self._count -= 1
        if not locks:
            del self._locks[group]

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
            for queue, (_client_id, locked_s) in list(locks.items()):
                if self._is_expired(locked_s, now_s):
                    del locks[queue]
                    self._count -= 1
            if not locks:
                del self._locks[group]

    def _is_expired(self, locked_s: float, now_s: float) -> bool:
        return now_s - locked_s > self._lifetime_s
