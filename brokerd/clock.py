"""The broker's two clocks, as one argument that tests replace."""

import time


class SystemClock:
    """Wall-clock time for what is stored and reported, monotonic time for everything that waits or expires."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def now_ms(self) -> int:
        """The same, under the name that the store's Clock has."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()

    def thread_time(self) -> float:
        """Seconds of processor time that the calling thread has used."""
        return time.thread_time()
