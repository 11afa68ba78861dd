"""The time of metering intervals: UTC that advances with the monotonic clock, so that a step of the wall clock moves no interval.

Small differences (the wall clock is slewed) are followed. A step is logged, and taken over when it has lasted: a machine that
started with a wrong clock gets the right one, and one whose clock jumps a day ahead and back notices nothing. Pure.
"""

from __future__ import annotations

from typing import Final

SLEW_MAX_MS: Final = 1000
STEP_LASTS_S: Final = 600.0


class SteadyTime:
    """Begins at the wall clock's time."""

    def __init__(self, wall_ms: int, monotonic_s: float) -> None:
        self._offset_ms = wall_ms - round(monotonic_s * 1000)
        self._stepped_at_s = 0.0
        self.step_ms = 0
        """How far the wall clock is ahead (below 0: behind); 0 while it is followed."""

    def now_ms(self, wall_ms: int, monotonic_s: float) -> int:
        """UTC in milliseconds. Call it at least once in an interval."""
        steady_ms = self._offset_ms + round(monotonic_s * 1000)
        difference_ms = wall_ms - steady_ms
        if abs(difference_ms) <= SLEW_MAX_MS:
            self._offset_ms += difference_ms
            self.step_ms = 0
            return wall_ms
        if abs(difference_ms - self.step_ms) > SLEW_MAX_MS:
            self._stepped_at_s = monotonic_s
        self.step_ms = difference_ms
        return steady_ms

    def step_lasts(self, monotonic_s: float) -> bool:
        """Whether the wall clock has been elsewhere for so long that it is taken to be right."""
        return self.step_ms != 0 and monotonic_s - self._stepped_at_s >= STEP_LASTS_S

    def adopt(self) -> int:
        """Follow the wall clock from here on; returns by how much the time has moved, in milliseconds."""
        moved_ms, self.step_ms = self.step_ms, 0
        self._offset_ms += moved_ms
        return moved_ms
