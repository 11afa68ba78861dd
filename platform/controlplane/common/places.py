"""Places of a process' threads where they wait for clusters: those that don't answer leave room for all other requests.

One tenant has all threads but one at most. What is slow now, or was slow lately, has one place for each tenant, and half of the
threads over all. A place that is not had is not waited for long: the thread that waits is the one that others need.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Condition
from uuid import UUID

SLOW_S = 2.0
# So long after a slow call its cluster has the places of slow ones, unless a quick one comes first.
_KNOWN_AS_SLOW_S = 60.0
_WAIT_S = 0.25

# The clusters that this thread's request has its place for: one call may be made within another.
_mine: ContextVar[frozenset[UUID]] = ContextVar("_mine", default=frozenset())


@dataclass(slots=True)
class Call:
    """A thread that waits for a cluster since `began_s`. `keeps_slow_place`: its cluster was slow lately."""

    tenant: UUID
    cluster: UUID
    began_s: float
    keeps_slow_place: bool


@dataclass(slots=True)
class Places:
    """Who waits in this process. `threads` is how many it has for requests."""

    threads: int
    monotonic: Callable[[], float] = time.monotonic
    _calls: list[Call] = field(default_factory=list)
    _slow_until_s: dict[UUID, float] = field(default_factory=dict)
    _changed: Condition = field(default_factory=Condition)

    def enter(self, tenant: UUID, cluster: UUID, wait_s: float = _WAIT_S) -> Call | None:
        """Return a place, to give back with `leave`; None when there is none."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(tenant, cluster), 0):
                if self._is_slow(tenant, cluster) or wait_s <= 0:
                    return None
                if not self._changed.wait_for(lambda: self._has_room(tenant, cluster), wait_s):
                    return None
            call = Call(tenant, cluster, self.monotonic(), self._was_slow(cluster))
            self._calls.append(call)
            return call

    def leave(self, call: Call) -> None:
        """Give a place back."""
        now_s = self.monotonic()
        with self._changed:
            self._calls.remove(call)
            if now_s - call.began_s >= SLOW_S:
                self._slow_until_s[call.cluster] = now_s + _KNOWN_AS_SLOW_S
            else:
                self._slow_until_s.pop(call.cluster, None)
            self._changed.notify_all()

    @contextmanager
    def place(self, tenant: UUID, cluster: UUID) -> Iterator[bool]:
        """Yield whether there was a place. Within a place of the same cluster there always is."""
        if cluster in _mine.get():
            yield True
            return
        call = self.enter(tenant, cluster)
        if call is None:
            yield False
            return
        token = _mine.set(_mine.get() | {cluster})
        try:
            yield True
        finally:
            _mine.reset(token)
            self.leave(call)

    def _has_room(self, tenant: UUID, cluster: UUID) -> bool:
        own = sum(call.tenant == tenant for call in self._calls)
        if own >= max(1, self.threads - 1):
            return False
        if not self._is_slow(tenant, cluster):
            return True
        slow = [call for call in self._calls if self._hangs(call)]
        return len(slow) < max(1, self.threads // 2) and all(call.tenant != tenant for call in slow)

    def _is_slow(self, tenant: UUID, cluster: UUID) -> bool:
        return self._was_slow(cluster) or any(call.tenant == tenant and self._hangs(call) for call in self._calls)

    def _was_slow(self, cluster: UUID) -> bool:
        return self._slow_until_s.get(cluster, float("-inf")) > self.monotonic()

    def _hangs(self, call: Call) -> bool:
        return call.keeps_slow_place or self.monotonic() - call.began_s >= SLOW_S
