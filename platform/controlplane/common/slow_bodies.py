"""Request bodies that come slowly hold some of the web's threads, never all.

Granian hands a request to a thread when its head is here, and the thread waits for the body as long as the client likes. So one
address has half of the threads for that, and all together have all but one. A body that is here when it is read, as nearly all
are, has its place for no time. A proxy that passes requests on when they are whole makes none of this happen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition

from mqwire.addresses import network_of

_SLOW_S = 0.5
_WAIT_S = 0.25


class TooManySlowBodies(OSError):
    """Others are waited for already; try again later."""


@dataclass(slots=True)
class BodyPlaces:
    """Which of this process' threads wait for bodies, by address. `threads` is how many it has for requests."""

    threads: int
    monotonic: Callable[[], float] = time.monotonic
    _began_s: dict[str, list[float]] = field(default_factory=dict)
    _changed: Condition = field(default_factory=Condition)

    @contextmanager
    def place(self, address: str) -> Iterator[None]:
        """Within it a thread may wait for a body; raises TooManySlowBodies: at once where those that wait do so for long."""
        network = network_of(address)
        with self._changed:
            wait_s = 0.0 if self._hangs(network) else _WAIT_S
            if not self._changed.wait_for(lambda: self._has_room(network), wait_s):
                raise TooManySlowBodies("other requests' bodies are waited for")
            began_s = self.monotonic()
            self._began_s.setdefault(network, []).append(began_s)
        try:
            yield
        finally:
            with self._changed:
                own = self._began_s[network]
                own.remove(began_s)
                if not own:
                    del self._began_s[network]
                self._changed.notify_all()

    def _has_room(self, network: str) -> bool:
        waiting = sum(map(len, self._began_s.values()))
        own = len(self._began_s.get(network, ()))
        return waiting < max(1, self.threads - 1) and own < max(1, self.threads // 2)

    def _hangs(self, network: str) -> bool:
        """Whether there is no room, and will not be soon."""
        long_ago_s = self.monotonic() - _SLOW_S
        return not self._has_room(network) and any(
            began_s < long_ago_s for own in self._began_s.values() for began_s in own
        )
