"""Lag as the brokers report it now. What is not known is None, never 0, and it is said why."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controlplane.clusters.models import Cluster
from controlplane.clusters.remarks import error_words
from controlplane.clusters.remoting import GATEWAY_GROUP, cluster_admin
from controlplane.clusters.states import state_word
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.insight.words import is_uneven
from controlplane.topics.selectors import LiveState
from highwater import Admin, MessageQueue
from highwater.errors import BrokerError, HighwaterError
from mqwire.names import AGE_LOOK_GROUP, is_system_group

# One request for each group, one more for each queue whose oldest waiting message is looked at: both end after this.
_DEADLINE_S = 4.0
# Clocks kept by NTP differ by milliseconds.
CLOCKS_DIFFER_MS = 2_000
GROUPS_MAX = 5000
# Besides RocketMQ's reserved groups: its monitor's, the console's, and those of the clouds' own programs.
_OWN_GROUPS = frozenset({"__MONITOR_CONSUMER", GATEWAY_GROUP})
_OWN_PREFIXES = ("CID_HOUSEKEEPING", "CID_ONSAPI_")


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A group's lag on one queue. `lag_ms` is the age of the oldest message that waits: 0 if none does, None if not known."""

    topic: str
    broker_name: str
    queue_id: int
    consumer_offset: int
    max_offset: int
    lag_ms: int | None
    # Its oldest waiting message says that it will be stored later: the broker's clock is ahead of ours, and no age is known.
    is_of_the_future: bool = False

    @property
    def lag_messages(self) -> int:
        return max(0, self.max_offset - self.consumer_offset)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag at `as_of`. `queues` is None when it is not known; `state` and `message` say why."""

    group: str
    state: LiveState
    as_of: datetime
    queues: tuple[QueueLag, ...] | None = None
    consume_tps: float | None = None
    message: str = ""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({queue.topic for queue in self.queues or ()}))

    @property
    def lag_messages(self) -> int | None:
        """Messages that wait in all queues; None when not known."""
        return None if self.queues is None else sum(queue.lag_messages for queue in self.queues)

    @property
    def lag_ms(self) -> int | None:
        """The age of the oldest message that waits; None when that of any lagging queue is not known."""
        if self.queues is None:
            return None
        ages = [queue.lag_ms for queue in self.queues]
        return None if None in ages else max((age for age in ages if age is not None), default=0)

    @property
    def skew(self) -> float | None:
        """The highest lag over the mean of the queues; None without lag."""
        lags = [queue.lag_messages for queue in self.queues or ()]
        total = sum(lags)
        return max(lags) * len(lags) / total if total else None

    @property
    def clock_note(self) -> str:
        """Why ages are not known: in words, empty where no clock is wrong."""
        if any(queue.is_of_the_future for queue in self.queues or ()):
            return say(
                "A broker’s clock is ahead of the console’s, so ages of its messages are not known. Set the clocks by NTP."
            )
        return ""

    @property
    def is_skewed(self) -> bool:
        return is_uneven(self.skew, self.lag_messages)


def groups_live(cluster: Cluster, groups: Sequence[str], *, ages: bool = True) -> list[GroupLag]:
    """Return the lag of these groups. Never raises for a cluster that doesn't answer: it says so.

    `ages` also asks for the oldest waiting message of each queue.
    """
    as_of = datetime.now(UTC)
    wanted = list(groups)
    if not cluster.is_running:
        return [
            _unknown(
                group, LiveState.NOT_RUNNING, as_of, say("The cluster is %(state)s.", state=state_word(cluster.state))
            )
            for group in wanted
        ]
    found: dict[str, GroupLag] = {}
    deadline = time.monotonic() + _DEADLINE_S
    try:
        with cluster_admin(cluster) as admin:
            for group in wanted:
                if time.monotonic() > deadline:
                    break
                found[group] = _group(admin, group, as_of, deadline if ages else 0.0)
    except ApplicationError as error:
        return [found.get(group, _unknown(group, LiveState.UNREACHABLE, as_of, error.message)) for group in wanted]
    skipped = say("Not asked: the others took too long.")
    return [found.get(group, _unknown(group, LiveState.SKIPPED, as_of, skipped)) for group in wanted]


def group_names(cluster: Cluster) -> list[str]:
    """Return the groups that the brokers know, sorted, without RocketMQ's own. Raises Conflict, BrokerUnreachable, …"""
    with cluster_admin(cluster) as admin:
        names = admin.group_list(cluster=cluster.slug)
    return [name for name in names if not group_is_system(name)][:GROUPS_MAX]


def group_is_system(name: str) -> bool:
    """Return whether RocketMQ or the console keeps this group for itself."""
    return is_system_group(name) or name in _OWN_GROUPS or name.startswith(_OWN_PREFIXES)


def _group(admin: Admin, group: str, as_of: datetime, deadline: float) -> GroupLag:
    try:
        progress = admin.consumer_progress(group)
    except BrokerError as error:
        return _unknown(
            group,
            LiveState.UNREACHABLE,
            as_of,
            say("The cluster refused: %(answer)s", answer=error_words(error)),
        )
    queues = []
    for one in progress.queues:
        age_ms = 0 if one.lag == 0 else _oldest_age_ms(admin, one.queue, one.consumer_offset, deadline)
        is_of_the_future = age_ms is not None and age_ms < -CLOCKS_DIFFER_MS
        queues.append(
            QueueLag(
                topic=one.queue.topic,
                broker_name=one.queue.broker_name,
                queue_id=one.queue.queue_id,
                consumer_offset=one.consumer_offset,
                max_offset=one.broker_offset,
                lag_ms=None if age_ms is None or is_of_the_future else max(0, age_ms),
                is_of_the_future=is_of_the_future,
            )
        )
    return GroupLag(group, LiveState.LIVE, as_of, tuple(queues), progress.consume_tps)


def _oldest_age_ms(admin: Admin, queue: MessageQueue, offset: int, deadline: float) -> int | None:
    """The age of the first message that waits, below 0 where the broker's clock is ahead of ours.

    Reading moves no offset, and is no delivery that the tenant pays for. Past the deadline no one is asked.
    """
    if time.monotonic() > deadline:
        return None
    try:
        messages = admin.pull(queue, offset, 1, group=AGE_LOOK_GROUP)
    except HighwaterError:  # only this number is missing: unknown
        return None
    if not messages:
        return None
    stored_at = datetime.fromtimestamp(messages[0].store_timestamp_ms / 1000, UTC)
    return (datetime.now(UTC) - stored_at) // timedelta(milliseconds=1)


def _unknown(group: str, state: LiveState, as_of: datetime, message: str) -> GroupLag:
    return GroupLag(group, state, as_of, message=message)
