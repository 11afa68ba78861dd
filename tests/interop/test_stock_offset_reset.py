"""A group is reset while its stock consumers run: they go on from the new place, and no commit of theirs undoes it."""

from __future__ import annotations

import uuid

import pytest

from highwater import Admin
from tests.interop.clients import ConsumerHandle, DriverProcess
from tests.interop.content import plans
from tests.interop.targets import Target
from tests.processes import wait_until

COUNT = 40
# Go's client drops the queue, sleeps for 10 s and shares the queues out again.
FOLLOWS_WITHIN_MS = 60_000


def committed(admin: Admin, group: str, topic: str) -> dict[int, int]:
    """The group's offset by queue id."""
    return {one.queue.queue_id: admin.consumer_offset(group, one.queue) or 0 for one in admin.topic_stats(topic).queues}


def ids_of(messages: list[dict[str, object]]) -> set[object]:
    return {message["offset_msg_id"] for message in messages}


def consume_all(consumer: ConsumerHandle, admin: Admin, group: str, topic: str) -> set[object]:
    """What the consumer gets of COUNT messages, once it has committed all of them."""
    received = ids_of(consumer.receive(COUNT))
    assert len(received) == COUNT
    wait_until(
        lambda: sum(committed(admin, group, topic).values()) == COUNT, timeout_s=60.0, what=f"{group} commits them all"
    )
    return received


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "orderly"])
def test_a_running_consumer_reads_again_from_the_start(
    java_client: DriverProcess, client: DriverProcess, target: Target, topic: str, ordered: bool
) -> None:
    group = f"group-{uuid.uuid4().hex[:12]}"
    java_client.produce(target.cluster, topic, plans(topic, COUNT, sizes=[10]))
    with (
        client.consumer(target.cluster, topic, group=group, ordered=ordered) as consumer,
        Admin(target.cluster.namesrv) as admin,
    ):
        before = consume_all(consumer, admin, group, topic)
        offsets = admin.reset_offset_by_time(group, topic, 0)
        assert set(offsets.values()) == {0}
        again = ids_of(consumer.receive(COUNT, FOLLOWS_WITHIN_MS))
        assert again == before
        wait_until(
            lambda: sum(committed(admin, group, topic).values()) == COUNT,
            timeout_s=60.0,
            what="the same member commits them again",
        )


def test_a_running_consumer_is_not_given_what_a_reset_to_the_end_passes_over(
    java_client: DriverProcess, client: DriverProcess, target: Target, topic: str
) -> None:
    group = f"group-{uuid.uuid4().hex[:12]}"
    java_client.produce(target.cluster, topic, plans(topic, COUNT, sizes=[10]))
    with (
        client.consumer(target.cluster, topic, group=group) as consumer,
        Admin(target.cluster.namesrv) as admin,
    ):
        consume_all(consumer, admin, group, topic)
        admin.reset_offset_by_time(group, topic, -1)
        assert sum(committed(admin, group, topic).values()) == COUNT
        (late,) = java_client.produce(target.cluster, topic, plans(f"{topic}-late", 1, sizes=[10]))
        assert ids_of(consumer.receive(1, FOLLOWS_WITHIN_MS)) == {late["offset_msg_id"]}
