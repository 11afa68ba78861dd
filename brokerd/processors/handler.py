"""What all processors have in common: a refusal becomes the answer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from brokerd.processors.context import Clock, Follower, MetadataLog, Peer
from brokerd.quotas import QuotaReached
from brokerd.replica.replica import Replica
from brokerd.replies import Refusal, Reply
from brokerd.store import StoreError
from brokerd.subscription_group import SubscriptionGroupManager
from brokerd.topic_config import TopicConfigManager
from brokerd.topic_validator import is_brokers_own
from mqwire.bodies import SubscriptionGroupConfig, TopicConfig
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand

BrokerT = TypeVar("BrokerT")


def answers_refusals(
    handler: Callable[[BrokerT, Peer, RemotingCommand], Reply],
) -> Callable[[BrokerT, Peer, RemotingCommand], Reply]:
    """Lets a processor raise Refusal."""

    @functools.wraps(handler)
    def answering(broker: BrokerT, peer: Peer, request: RemotingCommand) -> Reply:
        try:
            return handler(broker, peer, request)
        except Refusal as refusal:
            return request.reply(refusal.code, refusal.remark)

    return answering


def knowing_offsets(replica: Replica, follower: Follower, clock: Clock) -> None:
    """Raises Refusal where this replica cannot know the group's offsets, and another can: it would send consumers back.

    A follower that has lost its leader answers what it has, so that consumers can read on.
    """
    if replica.leads:
        if not replica.knows_group_end(clock.monotonic()):
            raise _not_known_yet(", or no majority of the replicas has pulled from it lately")
    elif follower.hears_leader:
        raise Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"this replica is a slave and may lag behind: ask the master, {replica.leader_address}",
        )


def seeing_all(replica: Replica) -> None:
    """Raises Refusal where this replica leads and does not see all of its log yet: a queue would seem to end too early.

    Any other says what it sees, for people; one that is cut off from its group, too.
    """
    if replica.leads and not replica.has_confirmed_epoch:
        raise _not_known_yet()


def _not_known_yet(or_else: str = "") -> Refusal:
    return Refusal(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"this replica leads, but does not know where the queues end: its epoch has just begun{or_else}; ask again in a"
        " moment",
    )


def reading_tables(metadata_log: MetadataLog) -> None:
    """Raises Refusal where the tables say what may be long over: a group would go on from where it was, or from the beginning."""
    if metadata_log.is_stale:
        raise Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "topics, groups and offsets cannot be read from the log; ask again once it is repaired, or ask another replica",
        )


def changing_tables(metadata_log: MetadataLog) -> None:
    """Raises Refusal where topics, groups and offsets cannot be changed now; it names the master."""
    refusal = metadata_log.refusal()
    if refusal is not None:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)


def not_written(error: StoreError | OSError) -> Refusal:
    """A change of the tables that the log did not take, or a quota."""
    code = ResponseCode.SYSTEM_BUSY if isinstance(error, QuotaReached) else ResponseCode.SERVICE_NOT_AVAILABLE
    return Refusal(code, f"nothing has changed: {error}")


def existing_topic(topic_configs: TopicConfigManager, topic: str) -> TopicConfig:
    """The topic's configuration; raises Refusal."""
    config = topic_configs.select(topic)
    if config is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic {topic[:128]!a} does not exist on this broker: create it first"
        )
    return config


def consumable_topic(topic_configs: TopicConfigManager, topic: str) -> TopicConfig:
    """The configuration of a topic in which groups have offsets; raises Refusal, also for what only the broker writes to."""
    if is_brokers_own(topic):
        raise Refusal(
            ResponseCode.NO_PERMISSION, f"topic {topic} is the broker's own: groups have no offsets there, for any key"
        )
    return existing_topic(topic_configs, topic)


def existing_group(subscription_groups: SubscriptionGroupManager, group: str) -> SubscriptionGroupConfig:
    """The group's configuration; raises Refusal."""
    config = subscription_groups.select(group)
    if config is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group {group[:128]!a} does not exist on this broker: create it, or set"
            " autoCreateSubscriptionGroup=true and start a consumer in it",
        )
    return config
