"""How long a group refused sends, measured from outside: a probe each 50 ms, as a producer would send."""

import threading
import time
from types import TracebackType
from typing import Self

from controlplane.clusters.replica_remoting import GroupProducer

INTERVAL_S = 0.05


class SendWatch:
    """Probes a group's leader from a thread of its own until it is left.

    `refused_ms` is how long no probe was acknowledged, all such spells together; `refused_since` when the present one began,
    by the monotonic clock, None while probes are acknowledged. A spell lasts from the start of the first probe that was not
    acknowledged to the answer of the next that was.
    """

    def __init__(self, producer: GroupProducer) -> None:
        self._producer = producer
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="send-watch")
        self._refused_s = 0.0
        self.refused_since: float | None = None
        self.acknowledged = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def refused_ms(self) -> int:
        """Whole milliseconds, the spell that goes on included."""
        since = self.refused_since
        return round(1000 * (self._refused_s + (0.0 if since is None else time.monotonic() - since)))

    def _run(self) -> None:
        address: str | None = None
        while not self._over.is_set():
            begun = time.monotonic()
            address = address or self._producer.leader_address()
            if address is not None and self._producer.send(address, b"rolling restart").acknowledged:
                self._noted_acknowledged()
            else:
                address = None  # another may lead by now
                if self.refused_since is None:
                    self.refused_since = begun
            self._over.wait(max(0.0, INTERVAL_S - (time.monotonic() - begun)))

    def _noted_acknowledged(self) -> None:
        self.acknowledged += 1
        since, self.refused_since = self.refused_since, None
        if since is not None:
            self._refused_s += time.monotonic() - since
