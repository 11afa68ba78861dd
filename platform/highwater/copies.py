"""What of a stored message goes into a new one that is sent in its stead. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from mqwire import names

# What belongs to the copy that was read, not to the one that is sent.
NOT_SENT_AGAIN = frozenset(
    {
        names.PROPERTY_KEYS,
        names.PROPERTY_TAGS,
        names.PROPERTY_WAIT_STORE_MSG_OK,
        names.PROPERTY_DELAY_TIME_LEVEL,
        names.PROPERTY_SHARDING_KEY,
        names.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
        names.PROPERTY_RETRY_TOPIC,
        names.PROPERTY_REAL_TOPIC,
        names.PROPERTY_REAL_QUEUE_ID,
        names.PROPERTY_TRANSACTION_PREPARED,
        names.PROPERTY_TRANSACTION_ID,
        names.PROPERTY_PRODUCER_GROUP,
        names.PROPERTY_MIN_OFFSET,
        names.PROPERTY_MAX_OFFSET,
        names.PROPERTY_ORIGIN_MESSAGE_ID,
        names.PROPERTY_RECONSUME_TIME,
        names.PROPERTY_MAX_RECONSUME_TIMES,
        names.PROPERTY_CONSUME_START_TIMESTAMP,
        names.PROPERTY_CRC32,
        names.PROPERTY_DLQ_ORIGIN_TOPIC,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        names.PROPERTY_POP_CK,
        names.PROPERTY_POP_CK_OFFSET,
        names.PROPERTY_FIRST_POP_TIME,
        names.PROPERTY_CLUSTER,
        names.PROPERTY_MSG_REGION,
        names.PROPERTY_TRACE_SWITCH,
        names.PROPERTY_TIMER_DELAY_SEC,
        names.PROPERTY_TIMER_DELAY_MS,
        names.PROPERTY_TIMER_DELIVER_MS,
        names.PROPERTY_TIMER_DEL_UNIQKEY,
        names.PROPERTY_INNER_MULTI_DISPATCH,
        names.PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    }
)


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that a program gave: without those of delays, retries, transactions and the broker's own."""
    return {name: value for name, value in properties.items() if name not in NOT_SENT_AGAIN and value}
