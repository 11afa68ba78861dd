"""Lag in sentences. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from controlplane.common.sentences import say
from controlplane.insight.models import DrainState, LagWindow


@dataclass(frozen=True, slots=True)
class LagWarning:
    """A warning in words; `code` is `stuck`, `loses_data`, `never_drains` or `skewed`, `severity` `bad` or `warn`."""

    code: str
    severity: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A backlog that is smaller, or grows more slowly, is no warning: a group that is one message behind is at work."""

    lag_messages: int = 100
    growth_per_second: float = 0.1


DEFAULT_THRESHOLDS = Thresholds()
SKEW_MUCH = 3.0
# Nothing that takes longer than ten years is under way.
_DRAINS_S_MAX = 10 * 365 * 86_400
# A loss is foretold from a trend that has lasted for this share of the time until then, and for no more than TREND_MAX.
_TREND_SHARE = 0.1
TREND_MAX = timedelta(minutes=30)
_LEAST_LAG_FOR_SKEW = 100


def warnings_of(
    windows: Sequence[LagWindow], now: datetime, thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> list[LagWarning]:
    """Return what an owner should know about the last of these windows, worst first; those before it show how long its trend has
    lasted.
    """
    window, found = windows[-1], []
    loses_at = loss_foretold(windows)
    if loses_at is not None:
        found.append(LagWarning("loses_data", "bad", _loses(loses_at, now)))
    if window.stuck:
        found.append(
            LagWarning(
                "stuck",
                "bad",
                say(
                    "The group is stuck: it has a backlog and consumed nothing in the last window. "
                    "Check that its consumers are running, and look at the oldest message."
                ),
            )
        )
    if _never_drains(window, thresholds) and not window.stuck:
        found.append(
            LagWarning(
                "never_drains",
                "warn",
                say("At the current rate the group never catches up: messages arrive faster than it consumes."),
            )
        )
    if window.skew is not None and is_uneven(window.skew, window.lag_messages_last):
        found.append(
            LagWarning(
                "skewed",
                "warn",
                say(
                    "The lag is uneven: the worst queue has %(skew)s times the average. "
                    "A consumer may be slow, or a key hot.",
                    skew=f"{window.skew:.1f}",
                ),
            )
        )
    return found


def loss_foretold(windows: Sequence[LagWindow]) -> datetime | None:
    """Return when messages are lost if the trend of these windows, oldest first, goes on; None when none are, or when it has not
    lasted long enough to say so.

    One window of five minutes sees a consumer that restarts, and says that it will stand still for days. A loss that is near,
    or has begun, is said at once.
    """
    last = windows[-1]
    if last.loses_data_at is None:
        return None
    first = list(takewhile(lambda window: window.loses_data_at is not None, reversed(windows)))[-1]
    end = last.window_start + timedelta(seconds=last.window_seconds)
    needed = min(TREND_MAX, (last.loses_data_at - end) * _TREND_SHARE)
    return last.loses_data_at if end - first.window_start >= needed else None


def _never_drains(window: LagWindow, thresholds: Thresholds) -> bool:
    return (
        window.drain_state == DrainState.NEVER
        and window.lag_messages_last >= thresholds.lag_messages
        and (window.trend_per_second or 0.0) >= thresholds.growth_per_second
    )


def is_uneven(skew: float | None, lag_messages: int | None) -> bool:
    """Whether so much of a backlog of this size lies on one queue that it is worth a look; of a few messages it always does."""
    return skew is not None and skew >= SKEW_MUCH and (lag_messages or 0) >= _LEAST_LAG_FOR_SKEW


def keeps_up(window: LagWindow, thresholds: Thresholds) -> bool:
    """Whether the backlog is what a group at work always has: nothing that it has to catch up with."""
    return 0 < window.lag_messages_last < thresholds.lag_messages and not window.stuck


def trend_words(per_second: float | None) -> str:
    """Return the trend: `grows by 3.2 messages/s`; empty when not known."""
    if per_second is None:
        return ""
    if abs(per_second) < 0.005:
        return say("steady")
    amount = f"{abs(per_second):.2f}" if abs(per_second) < 10 else f"{abs(per_second):,.0f}"
    if per_second > 0:
        return say("grows by %(amount)s messages/s", amount=amount)
    return say("shrinks by %(amount)s messages/s", amount=amount)


def drain_words(state: str, seconds: float | None) -> str:
    """Return when the lag is gone: `caught up`, `in about 5 min`, `not at this rate`; empty when not known."""
    if state == DrainState.DRAINED:
        return say("caught up")
    if state == DrainState.NEVER or (seconds is not None and seconds > _DRAINS_S_MAX):
        return say("not at this rate")
    if state == DrainState.DRAINING and seconds is not None:
        return say("in about %(length)s", length=length_words(timedelta(seconds=seconds)))
    return ""


def length_words(length: timedelta) -> str:
    """Return a length of time in one or two units: `12 s`, `5 min`, `2 h 5 min`, `3 d 4 h`."""
    minutes, seconds = divmod(max(0, round(length.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return say("%(days)s d %(hours)s h", days=days, hours=hours) if hours else say("%(days)s d", days=days)
    if hours:
        return (
            say("%(hours)s h %(minutes)s min", hours=hours, minutes=minutes)
            if minutes
            else say("%(hours)s h", hours=hours)
        )
    return say("%(minutes)s min", minutes=minutes) if minutes else say("%(seconds)s s", seconds=seconds)


def _loses(at: datetime, now: datetime) -> str:
    if at <= now:
        return say(
            "The group is losing messages: retention deletes what it has not consumed. "
            "Add consumers, or keep messages longer."
        )
    return say(
        "The group will lose messages at about %(moment)s UTC, in %(length)s, when retention reaches what it has not consumed. "
        "Add consumers, or keep messages longer.",
        moment=f"{at.astimezone(UTC):%Y-%m-%d %H:%M}",
        length=length_words(at - now),
    )
