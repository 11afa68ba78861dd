"""Topics that keep little, and that take little, with stock clients: who comes late goes on at the first message that is kept."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from highwater import Admin
from mqwire.codes import ResponseCode
from tests.interop.clients import DriverProcess
from tests.interop.content import assert_exactly_these, plans
from tests.interop.targets import Target, plain, start_target
from tests.processes import wait_until

COUNT = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Ours, which looks five times a second for what has expired."""
    folder = tmp_path_factory.mktemp("topic-limits")
    with start_target(
        "highwater", folder, lambda brand, folder: {**plain(brand, folder), "cleanResourceInterval": "200"}
    ) as running:
        yield running


@pytest.fixture
def admin(broker: Target) -> Iterator[Admin]:
    with Admin(broker.cluster.namesrv) as admin:
        yield admin


@pytest.fixture
def topic(broker: Target) -> str:
    name = f"topic-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, queues=1)
    return name


def limit(admin: Admin, broker: Target, topic: str, **attributes: str) -> None:
    admin.create_topic(
        topic, address=broker.broker_address, read_queue_nums=1, write_queue_nums=1,
        attributes={name.replace("_", "."): value for name, value in attributes.items()},
    )  # fmt: skip


def first_kept(admin: Admin, topic: str) -> int:
    (queue,) = admin.topic_stats(topic).queues
    return queue.min_offset


def test_a_new_group_gets_what_the_topic_keeps(client: DriverProcess, broker: Target, admin: Admin, topic: str) -> None:
    messages = plans(topic, COUNT, sizes=[1000])
    client.produce(broker.cluster, topic, messages)
    limit(admin, broker, topic, reserve_bytes="20000")
    wait_until(lambda: first_kept(admin, topic) > 0, timeout_s=30, what="the oldest messages expire")
    kept = messages[first_kept(admin, topic) :]
    assert 10 < len(kept) < 20, "of about 1,100 bytes each"
    with client.consumer(broker.cluster, topic) as consumer:
        assert_exactly_these(kept, consumer.receive(len(kept)))


def test_a_group_that_was_away_goes_on_at_the_first_message_that_is_kept(
    client: DriverProcess, broker: Target, admin: Admin, topic: str
) -> None:
    group = f"g-{topic}"
    first, later = plans(f"first-{topic}", 5, sizes=[1000]), plans(f"later-{topic}", COUNT, sizes=[1000])
    client.produce(broker.cluster, topic, first)
    with client.consumer(broker.cluster, topic, group=group) as consumer:
        consumer.receive(len(first))
    client.produce(broker.cluster, topic, later)
    limit(admin, broker, topic, reserve_bytes="20000")
    wait_until(
        lambda: first_kept(admin, topic) > len(first),
        timeout_s=30,
        what="messages that the group has not consumed expire",
    )
    kept = later[first_kept(admin, topic) - len(first) :]
    with client.consumer(broker.cluster, topic, group=group) as consumer:
        assert_exactly_these(kept, consumer.receive(len(kept)))


def test_a_send_over_a_topics_quota_is_answered_busy(
    java_client: DriverProcess, broker: Target, admin: Admin, topic: str
) -> None:
    limit(admin, broker, topic, quota_messages_per_second="1")
    outcomes = java_client.produce(
        broker.cluster, topic, plans(topic, 20, sizes=[100]), mode="batch", batch_size=20, retries=0
    )
    outcomes += java_client.produce(broker.cluster, topic, plans(f"more-{topic}", 1, sizes=[100]), retries=0)
    refused = outcomes[-1]
    assert (refused["status"], refused["response_code"]) == (None, ResponseCode.SYSTEM_BUSY)
