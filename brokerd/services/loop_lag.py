"""How far this process is behind: whether it has more to do than it gets done."""

from __future__ import annotations

from typing import Final

import trio

_PERIOD_S: Final = 0.1
_FADES_TO: Final = 0.8  # each period: one slow moment is forgotten within a second
_BUSY_S: Final = 0.5


class LoopLag:
    """Measures how late a task that wants to run each tenth of a second does run: as late as every request."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def busy(self) -> bool:
        """Whether requests wait so long that readers are served better elsewhere."""
        return self.seconds > _BUSY_S

    def observe(self, late_s: float) -> None:
        """Ran so late once more."""
        self.seconds = max(late_s, self.seconds * _FADES_TO)

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            due_s = trio.current_time() + _PERIOD_S
            await trio.sleep_until(due_s)
            self.observe(trio.current_time() - due_s)
