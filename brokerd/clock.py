"""The broker's two clocks, as one argument that tests replace."""

import time
from typing import Final

# CLOCK_MONOTONIC stands still on Linux while the machine is suspended: leases of leaders and followers, and what counts as a recent
# pull, would outlive that.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Wall-clock time for what is stored and reported, monotonic time for everything that waits or expires."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """The same, under the name that the store's Clock has."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never jump, and go on while the machine is suspended."""
        return time.clock_gettime(_CLOCK)

    def thread_time(self) -> float:
        """Seconds of processor time that the calling thread has used."""
        return time.thread_time()
