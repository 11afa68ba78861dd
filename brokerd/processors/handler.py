"""What all processors have in common: a refusal becomes the answer."""

from __future__ import annotations

import functools

from brokerd.dispatch_types import Handler, Reply
from brokerd.processors.context import Broker, Peer
from brokerd.processors.refusal import Refusal
from brokerd.store import StoreError
from mqwire.bodies import SubscriptionGroupConfig, TopicConfig
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand


def answers_refusals(handler: Handler) -> Handler:
    """Lets a processor raise Refusal."""

    @functools.wraps(handler)
    def answering(broker: Broker, peer: Peer, request: RemotingCommand) -> Reply:
        try:
            return handler(broker, peer, request)
        except Refusal as refusal:
            return request.reply(refusal.code, refusal.remark)

    return answering


def knowing_offsets(broker: Broker) -> None:
    """Raises Refusal where this replica cannot know the group's offsets, and another can: it would send consumers back.

    A follower that has lost its leader answers what it has, so that consumers can read on.
    """
    replica = broker.replica
    if replica.leads:
        if not replica.knows_group_end(broker.clock.monotonic()):
            raise Refusal(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this replica leads, but cannot tell where the queues end: its epoch has just begun, or no majority of"
                " the replicas has pulled from it lately; ask again in a moment",
            )
    elif broker.follower.hears_leader:
        raise Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"this replica is a slave and may lag behind: ask the master, {replica.leader_address}",
        )


def changing_tables(broker: Broker) -> None:
    """Raises Refusal where topics, groups and offsets cannot be changed now; it names the master."""
    refusal = broker.metadata_log.refusal()
    if refusal is not None:
        raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)


def not_written(error: StoreError | OSError) -> Refusal:
    """A change of the tables that the log did not take."""
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"nothing has changed: {error}")


def existing_topic(broker: Broker, topic: str) -> TopicConfig:
    """The topic's configuration; raises Refusal."""
    config = broker.topic_configs.select(topic)
    if config is None:
        raise Refusal(
            ResponseCode.TOPIC_NOT_EXIST, f"topic {topic[:128]!a} does not exist on this broker: create it first"
        )
    return config


def existing_group(broker: Broker, group: str) -> SubscriptionGroupConfig:
    """The group's configuration; raises Refusal."""
    config = broker.subscription_groups.select(group)
    if config is None:
        raise Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group {group[:128]!a} does not exist on this broker: create it, or set"
            " autoCreateSubscriptionGroup=true and start a consumer in it",
        )
    return config
