"""What mqadmin's consumerStatus and its direct consume ask of a stock consumer, through the broker."""

from __future__ import annotations

import uuid

import pytest

from highwater import Admin
from tests.interop.clients import ClientError, DriverProcess
from tests.interop.content import plans
from tests.interop.targets import Target
from tests.processes import wait_until

NOT_YET_CODES = (17, 206)  # TOPIC_NOT_EXIST of the retry topic, CONSUMER_NOT_ONLINE


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def member_of(java: DriverProcess, target: Target, group: str) -> str:
    """The group's one member, once the broker knows it."""
    found: list[str] = []

    def is_there() -> bool:
        try:
            found[:] = java.order("member_ids", target.cluster, group=group)
        except ClientError as error:
            if error.response_code not in NOT_YET_CODES:
                raise
        return len(found) == 1

    wait_until(is_there, timeout_s=60.0, what=f"a member of {group}")
    return found[0]


def test_a_stock_consumer_reports_how_it_is_doing(
    java_client: DriverProcess, client: DriverProcess, target: Target, topic: str
) -> None:
    group = new_group()
    with client.consumer(target.cluster, topic, group=group):
        member = member_of(java_client, target, group)

        def queues() -> set[int]:
            info = java_client.order("running_info", target.cluster, group=group, client_id=member)
            assert topic in info["topics"]
            return {queue["queue_id"] for queue in info["queues"] if queue["topic"] == topic}

        wait_until(lambda: queues() == {0, 1, 2, 3}, timeout_s=60.0, what="the queues are the member's")


def test_our_administration_reads_what_a_stock_consumer_reports(
    java_client: DriverProcess, client: DriverProcess, target: Target, topic: str
) -> None:
    group = new_group()
    (message,) = plans(topic, 1, sizes=[100])
    with client.consumer(target.cluster, topic, group=group) as consumer, Admin(target.cluster.namesrv) as admin:
        (outcome,) = java_client.produce(target.cluster, topic, [message])
        consumer.receive(1)
        member = member_of(java_client, target, group)
        info = admin.consumer_running_info(group, member, stack=True)
        result = admin.consume_message_directly(group, member, outcome["offset_msg_id"], topic=topic)
    assert topic in {subscription.topic for subscription in info.subscriptions}
    assert topic in {queue.queue.topic for queue in info.queues}
    assert info.stack
    assert result.consume_result == "CR_SUCCESS"


@pytest.mark.parametrize("is_named", [True, False])
def test_a_java_consumer_says_where_it_is(
    java_client: DriverProcess, target: Target, topic: str, is_named: bool
) -> None:
    group = new_group()
    with java_client.consumer(target.cluster, topic, group=group) as consumer:
        java_client.produce(target.cluster, topic, plans(topic, 4, sizes=[10]))
        consumer.receive(4)
        member = member_of(java_client, target, group)
        asked = {"topic": topic, "group": group, **({"client_id": member} if is_named else {})}

        def progress() -> int:
            rows = java_client.order("consume_status", target.cluster, **asked)
            assert {row["client"] for row in rows} <= {member}
            return sum(row["offset"] for row in rows)

        wait_until(lambda: progress() == 4, timeout_s=60.0, what="the member's own offsets")


def test_a_java_consumer_reports_its_threads_when_asked(java_client: DriverProcess, target: Target, topic: str) -> None:
    group = new_group()
    with java_client.consumer(target.cluster, topic, group=group):
        order = {"group": group, "client_id": member_of(java_client, target, group)}
        assert not java_client.order("running_info", target.cluster, **order)["jstack"]
        assert "TID" in java_client.order("running_info", target.cluster, jstack=True, **order)["jstack"]


def test_a_stock_consumer_is_handed_one_message_again(
    java_client: DriverProcess, client: DriverProcess, target: Target, topic: str
) -> None:
    group = new_group()
    (message,) = plans(topic, 1, sizes=[100])
    with client.consumer(target.cluster, topic, group=group) as consumer:
        (outcome,) = java_client.produce(target.cluster, topic, [message])
        consumer.receive(1)
        result = java_client.order(
            "consume_directly",
            target.cluster,
            group=group,
            client_id=member_of(java_client, target, group),
            topic=topic,
            msg_id=outcome["offset_msg_id"],
        )
        again = consumer.receive(1)
    assert result["result"] in ("CR_SUCCESS", "0")
    assert [received["offset_msg_id"] for received in again] == [outcome["offset_msg_id"]]


@pytest.mark.parametrize("operation", ["running_info", "consume_directly"])
def test_a_member_that_is_not_there_is_an_error(
    java_client: DriverProcess, target: Target, topic: str, operation: str
) -> None:
    group = new_group()
    (message,) = plans(topic, 1, sizes=[100])
    (outcome,) = java_client.produce(target.cluster, topic, [message])
    with java_client.consumer(target.cluster, topic, group=group):
        member_of(java_client, target, group)
        with pytest.raises(ClientError, match="not online"):
            java_client.order(
                operation,
                target.cluster,
                group=group,
                client_id="nobody@1",
                topic=topic,
                msg_id=outcome["offset_msg_id"],
            )
