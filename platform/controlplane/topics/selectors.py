"""Reads: topics as rows, and their offsets as the brokers report them now. What is not known is None, never 0."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from django.db.models import QuerySet

from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import cluster_admin
from controlplane.clusters.states import state_word
from controlplane.common.errors import ApplicationError, BrokerRefused, NotFound
from controlplane.common.sentences import say
from controlplane.topics.models import Topic
from highwater import TopicLimit, TopicStats

# A listing asks the brokers once per topic; past this it shows the rest as unknown rather than keep the reader waiting.
_LIVE_DEADLINE_S = 4.0


class LiveState(StrEnum):
    """Where the live numbers stand."""

    LIVE = "live"
    NOT_RUNNING = "not_running"
    UNREACHABLE = "unreachable"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class QueueOffsets:
    """One queue. Offsets count messages; `last_update` is the newest message's store time, None for an empty queue."""

    broker_name: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_update: datetime | None

    @property
    def message_count(self) -> int:
        """Messages between the offsets."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit of the topic at one broker, by its attribute or its key in broker.conf; `used` is None where that is not reported.

    `words` says what it is; `is_bytes` whether it counts bytes, `share` how much of it is used, from 0 to 1.
    """

    broker_name: str
    name: str
    limit: int
    used: int | None

    @property
    def words(self) -> str:
        """What is limited."""
        return _LIMIT_WORDS.get(self.name, self.name)

    @property
    def is_bytes(self) -> bool:
        """Whether the numbers are bytes."""
        return "bytes" in self.name.lower()

    @property
    def is_close(self) -> bool:
        """Whether more than nine tenths are used, of what refuses sends when it is full."""
        return self.used is not None and self.used > 0.9 * self.limit


_LIMIT_WORDS = {
    "reserve.time": say("Hours that messages are kept"),
    "reserve.bytes": say("Bytes that are kept"),
    "quota.messages.per.second": say("Messages sent in a second"),
    "quota.bytes.per.second": say("Bytes sent in a second"),
    "quota.stored.bytes": say("Bytes stored"),
    "quota.held.pulls": say("Pulls that wait"),
    "quotaTopicMessagesPerSecond": say("Messages sent in a second, by the tenant’s limits"),
    "quotaTopicBytesPerSecond": say("Bytes sent in a second, by the tenant’s limits"),
    "quotaTopicStoredBytes": say("Bytes stored, by the tenant’s limits"),
    "quotaTopicHeldPulls": say("Pulls that wait, by the tenant’s limits"),
}


@dataclass(frozen=True, slots=True)
class TopicLive:
    """A topic's offsets at `as_of`. `queues` is None when they are not known; `state` and `message` say why. `limits` is None
    unless they were asked for, and reported.
    """

    state: LiveState
    as_of: datetime
    queues: list[QueueOffsets] | None = None
    message: str = ""
    limits: list[LimitUse] | None = None

    @property
    def message_count(self) -> int | None:
        """Messages in all queues, None when not known."""
        return None if self.queues is None else sum(queue.message_count for queue in self.queues)

    @property
    def last_update(self) -> datetime | None:
        """Store time of the newest message, None when empty or not known."""
        return max((queue.last_update for queue in self.queues or () if queue.last_update is not None), default=None)


def topic_list(cluster: Cluster) -> QuerySet[Topic]:
    """Return the cluster's topics."""
    return Topic.objects.filter(cluster=cluster).select_related("cluster__tenant")


def topics_named(cluster: Cluster, search: str) -> QuerySet[Topic]:
    """Return the cluster's topics by name; those whose names hold `search`, whatever its case."""
    return topic_list(cluster).filter(name__icontains=search.strip().replace("\x00", "")).order_by("name")


def topic_get(cluster: Cluster, name: str) -> Topic:
    """Return one topic of the cluster; raises NotFound."""
    topic = topic_list(cluster).filter(name=name).first()
    if topic is None:
        raise NotFound(say("There is no such topic."))
    return topic


def topics_live(cluster: Cluster, topics: Iterable[Topic], *, with_limits: bool = False) -> dict[str, TopicLive]:
    """Return the live offsets of these topics by name. Never raises for a cluster that doesn't answer: it says so.

    `with_limits` asks for the use of their quotas as well, which costs as much again.
    """
    wanted = [topic.name for topic in topics]
    as_of = datetime.now(UTC)
    if not cluster.is_running:
        return {
            name: TopicLive(
                LiveState.NOT_RUNNING, as_of, message=say("The cluster is %(state)s.", state=state_word(cluster.state))
            )
            for name in wanted
        }
    found: dict[str, TopicLive] = {}
    deadline = time.monotonic() + _LIVE_DEADLINE_S
    try:
        with cluster_admin(cluster) as admin:
            for name in wanted:
                if time.monotonic() > deadline:
                    break
                try:
                    queues = _queues(admin.topic_stats(name))
                    limits = _limits(admin.topic_limits(name)) if with_limits else None
                except BrokerRefused as error:
                    found[name] = TopicLive(LiveState.UNREACHABLE, as_of, message=error.message)
                else:
                    found[name] = TopicLive(LiveState.LIVE, as_of, queues, limits=limits)
    except ApplicationError as error:
        return {
            name: found.get(name, TopicLive(LiveState.UNREACHABLE, as_of, message=error.message)) for name in wanted
        }
    skipped = TopicLive(LiveState.SKIPPED, as_of, message=say("Not asked: the others took too long."))
    return {name: found.get(name, skipped) for name in wanted}


def _limits(limits: Iterable[TopicLimit]) -> list[LimitUse]:
    return [LimitUse(one.broker_name, one.name, one.limit, one.used) for one in limits]


def _queues(stats: TopicStats) -> list[QueueOffsets]:
    return [
        QueueOffsets(
            broker_name=queue.queue.broker_name,
            queue_id=queue.queue.queue_id,
            min_offset=queue.min_offset,
            max_offset=queue.max_offset,
            last_update=(
                None
                if queue.last_update_timestamp_ms is None
                else datetime.fromtimestamp(queue.last_update_timestamp_ms / 1000, UTC)
            ),
        )
        for queue in stats.queues
    ]
