"""Choosing a queue by a key: the same key, the same queue, in every language that RocketMQ has a client for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from highwater._models import Message, MessageQueue
from mqwire.message import tags_code

QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def select_by_hash(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """SelectMessageQueueByHash: Java's String.hashCode modulo the number of queues, without its sign."""
    return queues[abs(tags_code(sharding_key)) % len(queues)]
