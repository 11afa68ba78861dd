"""From what is known now to what changes in the open alerts. Pure: no clock, no database.

Unknown neither fires an alert nor ends one. What went right again ends its alert when it has stayed right for CLEAR_S, so that
one that comes and goes is one alert.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from controlplane.alerts.kinds import KINDS, OPEN_MAX, Rule
from controlplane.common.sentences import say

CLEAR_S = 60
# What was wrong, then unknown for so long, and is wrong now has not lasted: its time begins again.
UNKNOWN_MAX = timedelta(minutes=10)
# An alert of a group that is no longer counted: Spark is off for good, or the brokers don't report which groups there are.
FORGOTTEN_AFTER = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Key:
    """What an alert is about: at most one is open for it."""

    cluster_id: uuid.UUID
    kind: str
    subject: str


@dataclass(frozen=True, slots=True)
class Fact:
    """The present value of one subject, in its kind's unit (1 or 0 for a kind that is wrong or not); None: not known now."""

    key: Key
    value: float | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that has not ended. `fired_at` is None while it has not lasted long enough."""

    id: uuid.UUID
    key: Key
    since: datetime
    known_at: datetime
    fired_at: datetime | None = None
    clear_since: datetime | None = None


class Act(StrEnum):
    """BEGIN: a new row. SEEN: still wrong. CLEARING: right again, not yet for long enough. FIRE: it lasted. RESOLVE: a fired one
    ended. DROP: one ended that never fired.
    """

    BEGIN = "begin"
    SEEN = "seen"
    CLEARING = "clearing"
    FIRE = "fire"
    RESOLVE = "resolve"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `alert` is None for BEGIN; `value` and `threshold` are those of the fact, for BEGIN, SEEN and FIRE."""

    act: Act
    key: Key
    alert: OpenAlert | None = None
    value: float | None = None
    threshold: float | None = None
    detail: str = ""
    reason: str = ""


def evaluate(
    facts: Iterable[Fact],
    rule_of: Callable[[uuid.UUID, str], Rule],
    open_alerts: Iterable[OpenAlert],
    now: datetime,
    *,
    running: Container[uuid.UUID],
    gone: Container[Key] = frozenset(),
    without_topic: Container[Key] = frozenset(),
) -> list[Change]:
    """Return what is to be changed; an alert that begins and needs no time gets BEGIN, and FIRE the next time.

    `running`: the clusters that are watched. Whatever was wrong with another one ends. `gone`: what was about a consumer group
    that has been deleted, `without_topic`: about the lag on a topic that has.
    """
    opened = {alert.key: alert for alert in open_alerts}
    counts: dict[tuple[uuid.UUID, str], int] = defaultdict(int)
    for key in opened:
        counts[key.cluster_id, key.kind] += 1
    changes: list[Change] = []
    begins: list[Change] = []
    known: set[Key] = set()
    for fact in facts:
        if fact.key in gone or fact.key in without_topic:
            continue
        known.add(fact.key)
        rule, alert = rule_of(fact.key.cluster_id, fact.key.kind), opened.get(fact.key)
        if not rule.is_on:
            if alert is not None:
                changes.append(_ended(alert, say("Its rule was switched off.")))
        elif fact.value is None:
            continue
        elif rule.kind.is_wrong(fact.value, rule.threshold):
            if alert is not None and alert.fired_at is None and now - alert.known_at > UNKNOWN_MAX:
                changes.append(_ended(alert, ""))
                alert = None
            change = _wrong(fact, rule, alert, now)
            (begins if alert is None else changes).append(change)
        elif alert is not None:
            changes.append(_right(alert, now))
    for key, alert in opened.items():
        if key in known:
            continue
        if key.cluster_id not in running:
            changes.append(_ended(alert, say("Its cluster does not run any more.")))
        elif key in gone:
            changes.append(_ended(alert, say("The consumer group was deleted.")))
        elif key in without_topic:
            changes.append(_ended(alert, say("The topic was deleted.")))
        elif reason := _gone(alert, rule_of(key.cluster_id, key.kind), now):
            changes.append(_ended(alert, reason))
    for change in begins:
        place = change.key.cluster_id, change.key.kind
        if counts[place] < OPEN_MAX:
            counts[place] += 1
            changes.append(change)
    return changes


def _wrong(fact: Fact, rule: Rule, alert: OpenAlert | None, now: datetime) -> Change:
    if alert is None:
        act = Act.BEGIN
    elif alert.fired_at is None and now - alert.since >= timedelta(seconds=rule.duration_s):
        act = Act.FIRE
    else:
        act = Act.SEEN
    return Change(act, fact.key, alert, fact.value, rule.threshold, fact.detail)


def _right(alert: OpenAlert, now: datetime) -> Change:
    if alert.fired_at is None:
        return _ended(alert, "")
    if alert.clear_since is None or now - alert.clear_since < timedelta(seconds=CLEAR_S):
        return Change(Act.CLEARING, alert.key, alert)
    return _ended(alert, say("Back to normal."))


def _gone(alert: OpenAlert, rule: Rule, now: datetime) -> str:
    """Why an alert ends whose subject is no longer reported; empty while it may only be unknown."""
    if not rule.is_on:
        return say("Its rule was switched off.")
    if KINDS[alert.key.kind].every_subject_is_known:
        return say("What it was about is gone.")
    return say("Nothing was heard of it for a day.") if now - alert.known_at > FORGOTTEN_AFTER else ""


def _ended(alert: OpenAlert, reason: str) -> Change:
    return Change(Act.DROP if alert.fired_at is None else Act.RESOLVE, alert.key, alert, reason=reason)
