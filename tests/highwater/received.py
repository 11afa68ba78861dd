"""A received message for tests of what the SDK does with it."""

from __future__ import annotations

from highwater import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("t", "broker-a", 0)


def message(offset: int, body: bytes = b"x") -> ReceivedMessage:
    return ReceivedMessage(
        topic="t",
        body=body,
        tags=None,
        keys=(),
        properties={},
        message_id=str(offset),
        offset_message_id=str(offset),
        queue=QUEUE,
        queue_offset=offset,
        physical_offset=offset,
        born_timestamp_ms=0,
        store_timestamp_ms=0,
        born_host=("127.0.0.1", 1),
        store_host=("127.0.0.1", 1),
    )
