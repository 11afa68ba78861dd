"""How long sends took: from when the broker took them up until their answer was written, what they waited for included.

Counting is one search and one addition for all answers of a wake-up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Final

from mqwire.latency import BOUNDS_MS

_BOUNDS_S: Final = tuple(bound_ms / 1000 for bound_ms in BOUNDS_MS)
_WINDOW_S: Final = 60
_SAMPLES_MAX: Final = 8  # of a minute, one each ten seconds, and the one before it
# RocketMQ's places of putMessageDistributeTime, by their upper bounds in ms.
_PLACES: Final = (
    ("[<=0ms]", 1),
    ("[0~10ms]", 10),
    ("[10~50ms]", 50),
    ("[50~100ms]", 100),
    ("[100~200ms]", 200),
    ("[200~500ms]", 500),
    ("[500ms~1s]", 1000),
    ("[1~2s]", 2000),
    ("[2~3s]", 3000),
    ("[3~4s]", 4000),
    ("[4~5s]", 5000),
    ("[5~10s]", 10_000),
    ("[10s~]", float("inf")),
)


class SendLatency:
    """One broker's. Times are seconds of a monotonic clock, passed in."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_S) + 1)
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=_SAMPLES_MAX)

    def observe(self, took_s: float, answers: int) -> None:
        """`answers` sends were answered together, after `took_s`."""
        self._counts[bisect_left(_BOUNDS_S, took_s)] += answers

    def sample(self, now_s: float) -> None:
        """Remember the counts of this moment; call it each ten seconds."""
        self._samples.append((now_s, tuple(self._counts)))

    def last_minute(self) -> list[int] | None:
        """The counts between the last samples that are a minute apart, or less at first; None while there is only one sample."""
        if len(self._samples) < 2:
            return None
        now_s, newest = self._samples[-1]
        oldest = next(counts for then_s, counts in self._samples if now_s - then_s <= _WINDOW_S * 1.05)
        return [now - then for now, then in zip(newest, oldest, strict=True)]


def distribution(counts: list[int]) -> str:
    """RocketMQ's putMessageDistributeTime: whole milliseconds, so that what took less than one is in the first place."""
    places = dict.fromkeys((name for name, _ in _PLACES), 0)
    for bound_ms, count in zip((*BOUNDS_MS, float("inf")), counts, strict=True):
        places[next(name for name, below_ms in _PLACES if bound_ms <= below_ms)] += count
    return " ".join(f"{name}:{count}" for name, count in places.items())
