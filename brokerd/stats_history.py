"""Counts of the last minute, hour and day, by topic and by group (RocketMQ's StatsItem), from samples of counters.

Nothing here is on the hot path: a service samples every ten seconds. A sample is a copy of the counters, kept at three
rhythms, as RocketMQ does: 10 s for a minute, 10 min for an hour, 1 h for a day. Sources: StatsItem, StatsItemSet.
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mqwire.bodies import BrokerStatsData, BrokerStatsItem

Counters: TypeAlias = Mapping[str, Mapping[str, int]]  # statistic -> key -> count since the start


@dataclass(slots=True)
class DayTotals:
    """Messages since the start, as they stood at the last midnights (BrokerStats)."""

    put_yesterday_morning: int = 0
    put_today_morning: int = 0
    got_yesterday_morning: int = 0
    got_today_morning: int = 0


class _Window:
    """Samples at one rhythm, spanning `count` periods."""

    def __init__(self, period_s: float, count: int) -> None:
        self._period_s = period_s
        self._samples: deque[tuple[float, Counters]] = deque(maxlen=count + 1)

    def sample(self, now_s: float, counters: Counters) -> None:
        # A service that wakes a little early must not skip a turn.
        if not self._samples or now_s - self._samples[-1][0] >= self._period_s * 0.95:
            self._samples.append((now_s, counters))

    def item(self, name: str, key: str, current: int, now_s: float) -> BrokerStatsItem:
        if not self._samples:
            return BrokerStatsItem()
        then_s, counters = self._samples[0]
        count = current - counters.get(name, {}).get(key, 0)
        seconds = now_s - then_s
        return BrokerStatsItem(sum=count, tps=count / seconds if seconds > 0 else 0.0)


class StatsHistory:
    """`today` is the date here, for the totals at midnight."""

    def __init__(self, today: Callable[[], datetime.date] = datetime.date.today) -> None:
        self._today = today
        self._day = today()
        self._day_totals = DayTotals()
        self._minute = _Window(10, 6)
        self._hour = _Window(600, 6)
        self._one_day = _Window(3600, 24)
        self._current: Counters = {}
        self._now_s = 0.0

    def sample(self, now_s: float, counters: Counters, put: int, got: int) -> None:
        """Takes the counters of this moment, of which nothing is changed afterwards; call it each ten seconds."""
        self._now_s = now_s
        self._current = counters
        for window in (self._minute, self._hour, self._one_day):
            window.sample(now_s, counters)
        day = self._today()
        if day != self._day:
            self._day = day
            last = self._day_totals
            self._day_totals = DayTotals(last.put_today_morning, put, last.got_today_morning, got)

    def day_totals(self) -> DayTotals:
        return self._day_totals

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """The counts of one key as of the last sample; None when nothing was ever counted under it."""
        current = self._current.get(name, {}).get(key)
        if current is None:
            return None
        return BrokerStatsData(
            stats_minute=self._minute.item(name, key, current, self._now_s),
            stats_hour=self._hour.item(name, key, current, self._now_s),
            stats_day=self._one_day.item(name, key, current, self._now_s),
        )
