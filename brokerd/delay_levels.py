"""messageDelayLevel: "1s 5s 10s 30s 1m ..." as a table from level (1 upwards) to milliseconds.

Source: ScheduleMessageService.parseDelayLevel, computeDeliverTimestamp, delayLevel2QueueId.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_STEP = re.compile(r"([0-9]{1,9})([smhd])")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delay of each level. Levels count from 1; level N waits in queue N - 1 of SCHEDULE_TOPIC_XXXX."""

    delays_ms: tuple[int, ...]

    @property
    def maximum(self) -> int:
        """The highest level; a higher wish is served as this one."""
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """The level that is used for the wish `level` (which is at least 1)."""
        return min(level, self.maximum)

    def delay_ms(self, level: int) -> int:
        """How long a message of `level` waits. A level that no longer exists waits a second, as in RocketMQ."""
        if 1 <= level <= self.maximum:
            return self.delays_ms[level - 1]
        return 1_000


def parse_delay_levels(text: str) -> DelayLevels:
    """`text` as a table; raises ValueError that names the step which cannot be read."""
    delays_ms = []
    for step in text.split():
        matched = _STEP.fullmatch(step)
        if matched is None:
            raise ValueError(f'"{step}" is no delay: write a number and s, m, h or d, as in "1s 5s 10s 1m 1h"')
        delays_ms.append(int(matched[1]) * _UNIT_MS[matched[2]])
    if not delays_ms:
        raise ValueError('no delay level is given: write them as in "1s 5s 10s 1m 1h"')
    return DelayLevels(tuple(delays_ms))


def queue_id_of_level(level: int) -> int:
    return level - 1


def level_of_queue_id(queue_id: int) -> int:
    return queue_id + 1
