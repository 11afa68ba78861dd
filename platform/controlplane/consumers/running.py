"""How a member of a group is doing: what it says itself when the broker asks it. It may be any program: all is bounded."""

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import BrokerRefused, BrokerUnreachable, NotFound
from controlplane.common.sentences import say
from controlplane.tenants.rules import actor_require
from controlplane.topics.gateway import calendar_moment
from highwater import BrokerError, ConsumerOfflineError, ConsumerRunningInfo, ProtocolError, RequestTimeoutError
from highwater import ProcessQueueInfo as ProcessQueue
from mqwire.codes import ResponseCode

QUEUES_MAX = 2000
SUBSCRIPTIONS_MAX = 500
SETTINGS_MAX = 200
SETTING_MAX_CHARACTERS = 1000
STACK_MAX_CHARACTERS = 512 * 1024


@dataclass(frozen=True, slots=True)
class QueueRunning:
    """A queue as the member that reads it reports it: how far it is, and what it has fetched and not finished."""

    topic: str
    broker_name: str
    queue_id: int
    commit_offset: int
    fetched: int
    locked: bool
    dropped: bool
    last_pull_at: datetime | None
    last_consume_at: datetime | None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a member's client, by that client's own name."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member subscribes to."""

    topic: str
    expression: str


@dataclass(frozen=True, slots=True)
class MemberRunning:
    """A member by its own word. `stack` is None where it was not asked or does not say, and cut where not complete."""

    client_id: str
    settings: tuple[Setting, ...]
    subscriptions: tuple[Subscription, ...]
    queues: tuple[QueueRunning, ...]
    queues_left_out: int
    fetched: int
    stack: str | None
    stack_complete: bool


def member_running(*, actor: Actor, cluster: Cluster, group: str, client_id: str, with_stack: bool) -> MemberRunning:
    """Ask one member. Raises NotAllowed, NotFound for who is not connected, BrokerUnreachable for who is silent, Conflict,
    BrokerRefused.
    """
    actor_require(actor, "consumer.inspect", cluster.tenant)
    timeout_ms = settings.HIGHWATER_REMOTING_TIMEOUT_MS
    with cluster_admin(cluster) as admin:
        if group not in admin.group_list(cluster=cluster.slug):
            raise NotFound(say("The brokers know no consumer group of this name."))
        try:
            info = admin.consumer_running_info(group, client_id, stack=with_stack, timeout_ms=timeout_ms)
        except ConsumerOfflineError as error:
            raise NotFound(
                say("No member of this id is connected to the group."), hint=say("Look at the group's members again.")
            ) from error
        except RequestTimeoutError as error:
            raise _silent(timeout_ms) from error
        except ProtocolError as error:
            raise BrokerRefused(
                say("What the member answered can't be read: %(error)s", error=str(error)), code="member_unreadable"
            ) from error
        except BrokerError as error:
            if error.response_code == ResponseCode.CONSUME_MSG_TIMEOUT:
                raise _silent(timeout_ms) from error
            raise
    return _shown(info)


def _silent(timeout_ms: int) -> BrokerUnreachable:
    return BrokerUnreachable(
        say("The member has not answered within %(seconds)s s.", seconds=f"{timeout_ms / 1000:g}"),
        code="member_silent",
        hint=say("It may be overloaded, or paused. Try again, or look at the process itself."),
    )


def _shown(info: ConsumerRunningInfo) -> MemberRunning:
    stack = info.stack
    return MemberRunning(
        client_id=info.client_id,
        settings=tuple(
            Setting(name[:SETTING_MAX_CHARACTERS], value[:SETTING_MAX_CHARACTERS])
            for name, value in list(info.properties.items())[:SETTINGS_MAX]
        ),
        subscriptions=tuple(Subscription(one.topic, one.expression) for one in info.subscriptions[:SUBSCRIPTIONS_MAX]),
        queues=tuple(map(_queue, info.queues[:QUEUES_MAX])),
        queues_left_out=max(0, len(info.queues) - QUEUES_MAX),
        fetched=info.cached_messages,
        stack=None if stack is None else stack[:STACK_MAX_CHARACTERS],
        stack_complete=stack is None or len(stack) <= STACK_MAX_CHARACTERS,
    )


def _queue(one: ProcessQueue) -> QueueRunning:
    return QueueRunning(
        topic=one.queue.topic,
        broker_name=one.queue.broker_name,
        queue_id=one.queue.queue_id,
        commit_offset=one.commit_offset,
        fetched=one.cached_messages,
        locked=one.locked,
        dropped=one.dropped,
        last_pull_at=_moment(one.last_pull_timestamp_ms),
        last_consume_at=_moment(one.last_consume_timestamp_ms),
    )


def _moment(timestamp_ms: int | None) -> datetime | None:
    return None if timestamp_ms is None else calendar_moment(timestamp_ms)
