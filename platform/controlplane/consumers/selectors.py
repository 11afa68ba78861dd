"""Reads: who is connected in a group, and its resets."""

import uuid
from dataclasses import dataclass
from urllib.parse import quote

from django.db.models import QuerySet

from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import NotFound
from controlplane.common.sentences import say
from controlplane.consumers.models import DeadLetterReplay, OffsetReset
from controlplane.consumers.subscriptions import Comparison, Subscribed, compare
from controlplane.topics.names import topic_name_is_system
from mqwire.versions import version_name


@dataclass(frozen=True, slots=True)
class OwnSubscription:
    """How one member subscribes to a topic. `expression_type` is RocketMQ's TAG or SQL92."""

    topic: str
    expression: str
    expression_type: str


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client. `version` is the ordinal of RocketMQ's MQVersion, `version_name` the same as people write it.

    `subscriptions` is what it has reported itself, sorted by topic, without system topics; None where the broker doesn't know.
    """

    client_id: str
    address: str
    language: str
    version: int
    subscriptions: tuple[OwnSubscription, ...] | None = None

    @property
    def version_name(self) -> str:
        """Return the version, empty for one before 4.0.0."""
        return version_name(self.version)


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Who is connected now. `subscriptions` maps topics to expressions; what no connected member has reported is empty.

    `comparison` says which members subscribe otherwise than the others; the broker does not know of `not_compared` of them.
    """

    members: tuple[Member, ...]
    subscriptions: tuple[tuple[str, str], ...]
    consume_type: str
    message_model: str
    comparison: Comparison
    not_compared: int


def group_members(cluster: Cluster, group: str) -> GroupMembers:
    """Ask the brokers. Raises NotFound for a group that none knows, Conflict, BrokerRefused, BrokerUnreachable."""
    with cluster_admin(cluster) as admin:
        if group not in admin.group_list(cluster=cluster.slug):
            raise NotFound(say("The brokers know no consumer group of this name."))
        found = admin.consumer_connections(group)
    own = {
        client_id: tuple(
            OwnSubscription(one.topic, one.expression, one.expression_type)
            for one in sorted(mine, key=lambda one: one.topic)
            if not topic_name_is_system(one.topic)
        )
        for client_id, mine in found.member_subscriptions.items()
    }
    return GroupMembers(
        members=tuple(
            Member(one.client_id, one.client_addr, one.language, one.version, own.get(one.client_id))
            for one in found.connections
        ),
        subscriptions=tuple(found.subscriptions.items()),
        consume_type=found.consume_type or "",
        message_model=found.message_model or "",
        comparison=compare(
            {
                client_id: {one.topic: Subscribed(one.expression, one.expression_type) for one in mine}
                for client_id, mine in own.items()
            }
        ),
        not_compared=sum(one.client_id not in own for one in found.connections),
    )


def reset_list(cluster: Cluster, group: str) -> QuerySet[OffsetReset]:
    """Return the group's resets, newest first."""
    return OffsetReset.objects.filter(cluster=cluster, consumer_group=group).select_related("cluster", "undone_by")


def reset_get(cluster: Cluster, group: str, reset_id: uuid.UUID) -> OffsetReset:
    """Return one reset; raises NotFound."""
    found = reset_list(cluster, group).filter(pk=reset_id).first()
    if found is None:
        raise NotFound(say("There is no such reset."))
    return found


def replay_list(cluster: Cluster, group: str) -> QuerySet[DeadLetterReplay]:
    """Return the replays of the group's dead letters, newest first."""
    return DeadLetterReplay.objects.filter(cluster=cluster, consumer_group=group).select_related("cluster__tenant")


def replay_get(cluster: Cluster, group: str, replay_id: uuid.UUID) -> DeadLetterReplay:
    """Return one replay; raises NotFound."""
    found = replay_list(cluster, group).filter(pk=replay_id).first()
    if found is None:
        raise NotFound(say("There is no such replay."))
    return found


def group_path(cluster: Cluster, group: str) -> str:
    """Return the group's API path (`%` and `|` are percent-encoded)."""
    return f"{cluster.path}consumer-groups/{quote(group, safe='')}/"
