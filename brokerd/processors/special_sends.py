"""Sends that need more than to be appended: delayed ones, retries that a client sends itself, and what is not offered.

Kept off the hot path: `has_special_properties` decides with a few substring searches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from brokerd.processors.handler import not_written
from brokerd.replies import Refusal
from brokerd.store import MessageToStore, StoreError
from mqwire.codes import ResponseCode
from mqwire.message import properties_to_string, string_to_properties
from mqwire.names import (
    DLQ_GROUP_TOPIC_PREFIX,
    PROPERTY_CRC32,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_POP_CK,
    PROPERTY_TRANSACTION_PREPARED,
    RETRY_GROUP_TOPIC_PREFIX,
)

if TYPE_CHECKING:
    from random import Random

    from brokerd.processors.context import DelayedMessages
    from brokerd.processors.send_header import SendOrigin
    from brokerd.rebalance_lock import RebalanceLockManager
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager

_DLQ_QUEUES_PER_GROUP = 1


class SpecialSendsBroker(Protocol):
    """What special sends use of the broker."""

    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    rebalance_locks: RebalanceLockManager
    random: Random

    @property
    def schedule(self) -> DelayedMessages: ...

    def register_soon(self) -> None: ...


def no_transactions() -> Refusal:
    """Of a transactional message. A half message that were stored as any other would reach consumers uncommitted, or never."""
    return Refusal(
        ResponseCode.NO_PERMISSION,
        "sending transaction message is forbidden: this broker does not serve transactions yet; nothing was stored. Send an"
        " ordinary message (Java: DefaultMQProducer.send) once your own transaction has committed",
    )


def has_special_properties(properties: bytes) -> bool:
    """Whether a message's properties ask for more than storing it. May say so too often, never too seldom."""
    return (
        b"DELAY\x01" in properties
        or b"TRAN_MSG\x01" in properties
        or b"TIMER_" in properties
        or b"__CRC32#\x01" in properties
        or b"POP_CK\x01" in properties
    )


class SpecialSends:
    """Turns such a message into the one that is stored."""

    def __init__(self, broker: SpecialSendsBroker) -> None:
        self._broker = broker

    def prepare(self, origin: SendOrigin, message: MessageToStore, credential: str) -> MessageToStore:
        """The message to store instead, of a sender with this access key; raises Refusal for what this broker does not do."""
        properties = string_to_properties(_decode(message.properties))
        if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
            raise no_transactions()
        if any(name.startswith(("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")) for name in properties):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "timer messages are not served by this broker yet: use a delay level (property DELAY)",
            )
        # The broker writes these itself; a copy from a client would be believed.
        for name in (PROPERTY_CRC32, PROPERTY_POP_CK):
            properties.pop(name, None)
        if origin.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            message = self._retry(origin, message, properties, credential)
        message = message._replace(properties=properties_to_string(properties).encode("utf-8", "surrogatepass"))
        return self._broker.schedule.transform_on_send(message)

    def _retry(
        self, origin: SendOrigin, message: MessageToStore, properties: dict[str, str], credential: str
    ) -> MessageToStore:
        """A retry that a client sends itself (SendMessageProcessor.handleRetryAndDLQ): a concurrent consumer after its send-back
        failed, an orderly one when it has retried a message in place as often as it may. An orderly one is known by its locks: its
        message goes to the dead letters at once, or it would come back for as long as it fails.
        """
        broker = self._broker
        group_name = origin.topic[len(RETRY_GROUP_TOPIC_PREFIX) :]
        group = broker.subscription_groups.find_or_create(group_name, credential)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group_name}")
        most = group.retry_max_times if origin.max_reconsume_times is None else origin.max_reconsume_times
        if origin.reconsume_times <= most and not broker.rebalance_locks.is_any_held(group_name):
            return message
        topic = DLQ_GROUP_TOPIC_PREFIX + group_name
        try:
            broker.topic_configs.create_for_send_back(topic, _DLQ_QUEUES_PER_GROUP)
        except StoreError as error:
            raise not_written(error) from error
        broker.register_soon()
        properties.pop(PROPERTY_DELAY_TIME_LEVEL, None)
        return message._replace(topic=topic, queue_id=broker.random.randrange(_DLQ_QUEUES_PER_GROUP))


def _decode(properties: bytes) -> str:
    try:
        return properties.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message's properties are not UTF-8") from error
