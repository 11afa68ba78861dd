"""A group's lag now beside the newest windows that Spark counted, as the API and the console show it."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from controlplane.clusters.models import Cluster
from controlplane.common.errors import NotFound
from controlplane.common.sentences import say
from controlplane.insight.live import GroupLag, groups_live
from controlplane.insight.models import LagWindow
from controlplane.insight.selectors import lag_before, lag_latest, lag_topics
from controlplane.insight.thresholds import thresholds_of
from controlplane.insight.words import (
    DEFAULT_THRESHOLDS,
    TREND_MAX,
    LagWarning,
    Thresholds,
    drain_words,
    keeps_up,
    trend_words,
    warnings_of,
)
from controlplane.topics.selectors import LiveState


@dataclass(frozen=True, slots=True)
class TopicOutlook:
    """The newest window of one topic, with its warnings; attributes that it doesn't have are the window's."""

    window: LagWindow
    warnings: list[LagWarning]
    keeps_up: bool = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.window, name)

    @property
    def trend(self) -> str:
        return trend_words(self.window.trend_per_second)

    @property
    def drain(self) -> str:
        return say("keeps up") if self.keeps_up else drain_words(self.window.drain_state, self.window.drain_seconds)


@dataclass(frozen=True, slots=True)
class GroupOutlook:
    """A group: live numbers, and what Spark says of each of its topics."""

    live: GroupLag
    outlook: list[TopicOutlook]

    def __getattr__(self, name: str) -> object:
        return getattr(self.live, name)

    @property
    def warnings(self) -> list[tuple[str, LagWarning]]:
        """(topic, warning), the worst first."""
        found = [(one.window.topic, warning) for one in self.outlook for warning in one.warnings]
        return sorted(found, key=lambda pair: (pair[1].severity != "bad", pair[0]))

    @property
    def worst(self) -> TopicOutlook | None:
        """The topic with the most lag, which stands for the group in a list."""
        return max(self.outlook, key=lambda one: one.window.lag_messages_last, default=None)


def group_outlooks(cluster: Cluster, groups: list[str], *, ages: bool = True) -> list[GroupOutlook]:
    """Return the groups in the order in which they were named."""
    now = timezone.now()
    latest, thresholds = lag_latest(cluster, groups=groups), thresholds_of(cluster)
    before = lag_before(cluster, [one for one in latest.values() if one.loses_data_at is not None], TREND_MAX)
    windows = {key: [*before.get(key, ()), one] for key, one in latest.items()}
    return [
        GroupOutlook(live, _topics(windows, live.group, now, thresholds.get(live.group, DEFAULT_THRESHOLDS)))
        for live in groups_live(cluster, groups, ages=ages)
    ]


def group_outlook(cluster: Cluster, group: str) -> GroupOutlook:
    """Return one group; raises NotFound when the brokers know nothing of it, and there is no history either."""
    found = group_outlooks(cluster, [group])[0]
    if found.live.state == LiveState.LIVE and not found.live.queues and not lag_topics(cluster, group):
        raise NotFound(say("There is no such consumer group."))
    return found


def _topics(
    windows: dict[tuple[str, str], list[LagWindow]], group: str, now: datetime, thresholds: Thresholds
) -> list[TopicOutlook]:
    mine = [found for (name, _), found in sorted(windows.items()) if name == group]
    return [
        TopicOutlook(found[-1], warnings_of(found, now, thresholds), keeps_up(found[-1], thresholds)) for found in mine
    ]
