"""Known traffic on a real broker that meters itself."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from highwater import Admin, ConsumeFrom, HighwaterError, Message, MessageQueue, Producer, PushConsumer
from mqwire.metering import MeteringRecord, decode_metering_record
from mqwire.names import RMQ_SYS_METERING
from tests.processes import wait_until
from tests.spark_etl.topics import SEND_TIMEOUT_MS, wait_routed

WAIT_S = 120.0


@dataclass(frozen=True)
class Sent:
    """What was sent to one topic, by kind."""

    messages: int
    bytes: int
    units: int


def send(namesrv: str, topic: str, sizes: list[int]) -> Sent:
    """Plain messages of these body sizes, each acknowledged."""
    wait_routed(namesrv, topic)
    # What is metered are bodies as they are stored.
    with Producer(namesrv, timeout_ms=SEND_TIMEOUT_MS, compress_msg_body_over_howmuch=2**30) as producer:
        for size in sizes:
            producer.send(Message(topic, b"x" * size))
    return Sent(len(sizes), sum(sizes), sum(max(1, -(-size // 4096)) for size in sizes))


def send_ordered(namesrv: str, topic: str, count: int) -> None:
    with Producer(namesrv, timeout_ms=SEND_TIMEOUT_MS) as producer:
        for number in range(count):
            producer.send_ordered(Message(topic, b"ordered"), f"key-{number % 3}")


def send_delayed(namesrv: str, topic: str, count: int) -> None:
    with Producer(namesrv, timeout_ms=SEND_TIMEOUT_MS) as producer:
        for _ in range(count):
            producer.send(Message(topic, b"delayed", delay_time_level=1))


def consume(namesrv: str, topic: str, group: str, count: int) -> None:
    """Returns when the group has handled so many messages and stored its offsets."""
    seen = threading.Semaphore(0)
    consumer = PushConsumer(namesrv, group, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(topic, handler=lambda message: seen.release())
    with consumer:
        for _ in range(count):
            assert seen.acquire(timeout=WAIT_S), "not all messages were consumed"


def metered(namesrv: str) -> list[MeteringRecord]:
    """All records in the metering topic, by the SDK."""
    found: list[MeteringRecord] = []
    with Admin(namesrv) as admin:
        for queue in admin.topic_route(RMQ_SYS_METERING).subscribe_queues:
            found += _records(admin, queue)
    return found


def _records(admin: Admin, queue: MessageQueue) -> list[MeteringRecord]:
    found: list[MeteringRecord] = []
    position = admin.min_offset(queue)
    while messages := admin.pull(queue, position):
        found += [decode_metering_record(message.body) for message in messages]
        position = messages[-1].queue_offset + 1
    return found


def wait_metered(namesrv: str, topic: str, *, sent: int, delivered: int = 0) -> None:
    """Returns when the records count so many messages in, and so many out."""

    def counted() -> bool:
        try:
            records = metered(namesrv)
        except HighwaterError:
            return False  # no record yet, so no topic, or no master for a moment
        messages_in = sum(row.messages for one in records for row in one.messages_in if row.topic == topic)
        messages_out = sum(row.messages for one in records for row in one.messages_out if row.topic == topic)
        return (messages_in, messages_out) == (sent, delivered)

    wait_until(counted, timeout_s=WAIT_S, what=f"{sent} messages in and {delivered} out are metered", interval_s=0.3)
