"""How long several clients together wait for answers, whether these come or not: a daemon that answers each request late holds no
one for longer than one that is silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from highwater.errors import TimeSpentError
from highwater.sentences import say


class WaitBudget:
    """All the time, in milliseconds, that those who share it may wait for answers. Waits at once count once.

    Safe to use from any thread. Give the same one to several clients; it is never filled up again.
    """

    def __init__(self, total_ms: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.total_ms = total_ms
        self._left_s = total_ms / 1000
        self._monotonic = monotonic
        self._waiting = 0
        self._since_s = 0.0  # when the first of those that wait now began
        self._lock = threading.Lock()

    @property
    def left_ms(self) -> float:
        """What is left now; 0 when it is spent."""
        with self._lock:
            return max(0.0, self._left_now_s() * 1000)

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.left_ms <= 0

    @contextmanager
    def waiting(self, address: str, wished_ms: float) -> Iterator[float]:
        """Count the time until the block ends; the value is how long it may wait, in milliseconds: at most `wished_ms`.

        Raises TimeSpentError when nothing is left: `address` is not to be asked.
        """
        with self._lock:
            left_s = self._left_now_s()
            if left_s <= 0:
                raise TimeSpentError(
                    say("%(address)s was not asked: earlier requests took all the time for waiting", address=address)
                )
            if not self._waiting:
                self._since_s = self._monotonic()
            self._waiting += 1
        try:
            yield min(wished_ms, left_s * 1000)
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    self._left_s -= self._monotonic() - self._since_s

    def _left_now_s(self) -> float:
        return self._left_s - (self._monotonic() - self._since_s if self._waiting else 0.0)
