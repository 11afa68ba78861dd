"""A cluster in memory whose every message holds secrets: in its body, keys, tag and properties."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from controlplane.clusters import remoting
from controlplane.tenants.models import Tenant
from controlplane.topics.models import MaskingRule
from highwater import (
    MessageQueue,
    QueryResult,
    QueueStats,
    ReceivedMessage,
    TopicStats,
)
from highwater._admin_replica import DivergedMessages
from mqwire.bodies import DivergedFile
from tests.controlplane.brokers_twin import BrokersTwin

SECRET = "4111-1111"
TOPIC = "invoices"
CUT = "cut-00000000000000004096"
MESSAGE_ID = "7F0000010000000100000000000000FF"

MESSAGE = ReceivedMessage(
    topic=TOPIC,
    body=f'{{"card":{{"number":"{SECRET}"}},"n":1}}'.encode(),
    tags=f"t{SECRET}",
    keys=(f"k{SECRET}", "o-1"),
    properties={
        "KEYS": f"k{SECRET} o-1",
        "TAGS": f"t{SECRET}",
        "phone": SECRET,
        "RETRY_TOPIC": TOPIC,
        "DLQ_ORIGIN_TOPIC": TOPIC,
        "UNIQ_KEY": MESSAGE_ID,
    },
    message_id=MESSAGE_ID,
    offset_message_id="O1",
    queue=MessageQueue(TOPIC, "broker-a", 0),
    queue_offset=0,
    physical_offset=0,
    born_timestamp_ms=1,
    store_timestamp_ms=2,
    born_host=("10.0.0.1", 1),
    store_host=("10.0.0.1", 1),
)


class SecretTwin(BrokersTwin):
    """Whatever topic is asked for holds the message, at each place and under each key."""

    message = MESSAGE

    def topic_stats(self, topic: str) -> TopicStats:
        return TopicStats(topic, (QueueStats(MessageQueue(topic, "broker-a", 0), 0, 1, 2),))

    def pull(self, queue: MessageQueue, offset: int, count: int = 1) -> list[ReceivedMessage]:
        return [replace(self.message, queue=queue)] if offset == 0 else []

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return 0

    def diverged_list(self, address: str) -> tuple[DivergedFile, ...]:
        return (
            DivergedFile(
                name=CUT,
                epoch=2,
                begin_offset=4096,
                end_offset=8192,
                size_bytes=4096,
                messages=1,
                cut_at_ms=1,
                topics={TOPIC: 1},
                counted_bytes=4096,
            ),
        )

    def diverged_read(self, address: str, name: str, *, position: int = 0, max_messages: int = 32) -> DivergedMessages:
        return DivergedMessages((self.message,), (0,), None)

    def query_messages(self, topic: str, key: str, **_: object) -> QueryResult:
        return QueryResult((replace(self.message, queue=MessageQueue(topic, "broker-a", 0)),))


def hide_the_secrets(tenant: Tenant, visible_from: str = "admin") -> None:
    """Rules that hide every secret of the message from lower roles."""
    for part, pattern in (("body", "$.card.number"), *(("property", name) for name in ("KEYS", "TAGS", "phone"))):
        MaskingRule.objects.create(
            tenant=tenant, part=part, pattern=pattern, visible_from=visible_from, created_by="alice@example.com"
        )


@contextmanager
def secret_messages() -> Iterator[None]:
    """Have every cluster hold the message."""
    with patch.object(remoting, "Admin", SecretTwin), patch.object(remoting, "Producer", SecretTwin):
        yield
