"""Lines of a daemon's log about strangers, who could fill it otherwise and so drive out all that it said before.

The first line of an address in a second is written, and the others are counted; so are all of those who come after the first
addresses, for there may be thousands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_ADDRESSES_PER_S: Final = 16
_ELSEWHERE: Final = "other addresses"


class StrangersLog:
    """What one logger says of strangers. `clock_ms` is any clock in milliseconds."""

    def __init__(self, logger: logging.Logger, clock_ms: Callable[[], float]) -> None:
        self._logger = logger
        self._clock_ms = clock_ms
        self._second = 0
        self._left_out: dict[str, int] = {}  # lines since this second began, by address

    def info(self, where: str, line: str, *args: object) -> None:
        """Write a line about someone at an address, as strangers' are counted (addresses.py), or count it."""
        self._write(logging.INFO, where, line, *args)

    def warning(self, where: str, line: str, *args: object) -> None:
        """As `info`."""
        self._write(logging.WARNING, where, line, *args)

    def _write(self, level: int, where: str, line: str, *args: object) -> None:
        self.sum_up()
        if where not in self._left_out and len(self._left_out) >= _ADDRESSES_PER_S:
            where = _ELSEWHERE
        if where in self._left_out:
            self._left_out[where] += 1
        else:
            self._left_out[where] = 0
            self._logger.log(level, line, *args)

    def sum_up(self) -> None:
        """Say how many lines were left out, once their second is over."""
        second = int(self._clock_ms() // 1000)
        if second != self._second:
            for where, count in self._left_out.items():
                if count:
                    self._logger.info("%d more such lines about %s in that second are left out", count, where)
            self._second, self._left_out = second, {}
