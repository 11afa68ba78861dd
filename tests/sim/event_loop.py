"""Time, chance and the trace of one simulated run: a heap of (time, number) and one seeded generator.

Everything that happens is noted as a line; the digest of all lines is the run's fingerprint. Nothing here or in what runs on it
may depend on the real clock, on the order of a set, or on a hash of a string: the same seed gives the same lines.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from random import Random

_LINES_KEPT = 400


class EventLoop:
    """Runs events in the order of their times, ties in the order in which they were planned."""

    def __init__(self, seed: int, *, show: bool = False) -> None:
        self._seed = seed
        self.random = Random(seed)
        self.now_s = 0.0
        self.events = 0
        self.last_lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._show = show
        self._digest = hashlib.sha256()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0

    def chance(self, purpose: str) -> Random:
        """A generator of its own, by the seed: what is drawn from it changes nothing of what `random` draws."""
        return Random(f"{self._seed} {purpose}")

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do it that much later."""
        self._planned += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._planned, action))

    def run_until(self, until_s: float, stop: Callable[[], bool] | None = None) -> None:
        """Let time pass up to `until_s`, or until `stop` says so."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(heap)
            self.events += 1
            action()
            if stop is not None and stop():
                return
        self.now_s = max(self.now_s, until_s)

    def note(self, text: str) -> None:
        """One line of the trace."""
        line = f"{self.now_s:10.4f} {text}"
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self.last_lines.append(line)
        if self._show:
            print(line)

    @property
    def fingerprint(self) -> str:
        """Of all lines so far."""
        return self._digest.hexdigest()
