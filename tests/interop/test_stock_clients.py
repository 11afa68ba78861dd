"""Unmodified Java and Go clients send and receive through one broker; every message's content is compared."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from typing import Any

import pytest

from tests.interop import content
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import KIBIBYTE, Plan, assert_exactly_these, assert_same_message, index_of, plans
from tests.interop.targets import Target
from tests.processes import wait_until
from tests.remoting import wait_for_commits

# A group's first heartbeat creates its retry topic; clients may take up to 50 s to see it in a route.
RETRY_TIMEOUT_MS = 90_000


def new_group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"


def new_retry_group(client: DriverProcess, target: Target) -> str:
    """A group for tests of retries. Its first heartbeat creates its retry topic, which Java finds at its next poll.

    Go's poll of the name server can't be hastened from its 30 s, so for Go the retry topic is there before.
    """
    group = new_group()
    if client.name == "go":
        target.create_topic(f"%RETRY%{group}", queues=1)
    return group


def send_all(
    client: DriverProcess, cluster: Cluster, topic: str, messages: list[Plan], mode: str = "sync"
) -> list[dict[str, Any]]:
    """Sends and checks that every message was acknowledged with SEND_OK (one-way has no acknowledgements)."""
    outcomes = client.produce(cluster, topic, messages, mode=mode)
    if mode == "oneway":
        assert outcomes == []
        return outcomes
    assert sorted(outcome["seed"] for outcome in outcomes) == sorted(plan["seed"] for plan in messages)
    failed = [outcome for outcome in outcomes if outcome["status"] != "SEND_OK"]
    assert not failed, failed[:3]
    return outcomes


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch", "ordered"])
def test_every_way_of_sending_delivers_equal_content(
    client: DriverProcess, target: Target, topic: str, mode: str
) -> None:
    # A batch must stay under 4 MiB as a whole, so it gets no large bodies.
    sizes = [1, 300, KIBIBYTE, 5 * KIBIBYTE] if mode == "batch" else None
    messages = plans(f"{mode}-{topic}", 200, sizes=sizes)
    with client.consumer(target.cluster, topic) as consumer:
        outcomes = send_all(client, target.cluster, topic, messages, mode)
        received = consumer.receive(len(messages))
    assert_exactly_these(messages, received)
    places = {(message["queue_id"], message["queue_offset"]): message for message in received}
    assert len(places) == len(messages), "two messages share a place in a queue"
    by_seed = {plan["seed"]: plan for plan in messages}
    for outcome in outcomes:
        message = places[outcome["queue_id"], outcome["queue_offset"]]
        assert_same_message(by_seed[outcome["seed"]], message)
        assert message["offset_msg_id"] == outcome["offset_msg_id"]
        if outcome["msg_id"]:  # the Go client returns none for a batch
            assert message["msg_id"] == outcome["msg_id"]


def test_a_java_producer_and_a_go_consumer_agree(
    java_client: DriverProcess, go_client: DriverProcess, target: Target, topic: str
) -> None:
    messages = plans(f"java-{topic}", 120)
    with go_client.consumer(target.cluster, topic) as consumer:
        send_all(java_client, target.cluster, topic, messages)
        assert_exactly_these(messages, consumer.receive(len(messages)))


def test_a_go_producer_and_a_java_consumer_agree(
    java_client: DriverProcess, go_client: DriverProcess, target: Target, topic: str
) -> None:
    messages = plans(f"go-{topic}", 120)
    with java_client.consumer(target.cluster, topic) as consumer:
        send_all(go_client, target.cluster, topic, messages)
        assert_exactly_these(messages, consumer.receive(len(messages)))


@pytest.mark.parametrize("expression", ["paid", "paid || shipped"])
def test_a_tag_filter_delivers_only_what_it_names(
    client: DriverProcess, target: Target, topic: str, expression: str
) -> None:
    messages = plans(topic, 80, sizes=[100])
    wanted = [plan for plan in messages if plan.get("tag") in expression.split(" || ")]
    with client.consumer(target.cluster, topic, expression=expression) as consumer:
        send_all(client, target.cluster, topic, messages)
        assert_exactly_these(wanted, consumer.receive(len(wanted)))


def test_a_tag_outside_ascii_filters_in_java(java_client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 40, sizes=[100])
    wanted = [plan for plan in messages if plan.get("tag") == "täg-✓"]
    with java_client.consumer(target.cluster, topic, expression="täg-✓") as consumer:
        send_all(java_client, target.cluster, topic, messages)
        assert_exactly_these(wanted, consumer.receive(len(wanted)))


def test_a_failed_message_comes_again_until_it_succeeds(client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 3, sizes=[500])
    group = new_retry_group(client, target)
    with client.consumer(target.cluster, topic, group=group, fail_until_reconsume_times=2) as consumer:
        send_all(client, target.cluster, topic, messages)
        received = consumer.receive(9, RETRY_TIMEOUT_MS)
    attempts: dict[int, list[int]] = defaultdict(list)
    for message in received:
        assert_same_message(messages[index_of(message)], message)
        assert message["topic"] == topic, "clients show the topic that a retried message came from"
        attempts[index_of(message)].append(message["reconsume_times"])
    assert {index: sorted(times) for index, times in attempts.items()} == {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]}


def test_a_message_that_keeps_failing_ends_in_the_dead_letter_queue(
    client: DriverProcess, java_client: DriverProcess, target: Target, topic: str
) -> None:
    messages = plans(topic, 2, sizes=[2000])
    group = new_retry_group(client, target)
    with client.consumer(
        target.cluster, topic, group=group, fail_until_reconsume_times=99, max_reconsume_times=2
    ) as consumer:
        outcomes = send_all(client, target.cluster, topic, messages)
        # Delivered three times each: once, and twice again.
        received = consumer.receive(6, RETRY_TIMEOUT_MS)
        assert sorted(message["reconsume_times"] for message in received) == [0, 0, 1, 1, 2, 2]
        with java_client.consumer(target.cluster, f"%DLQ%{group}") as dead_letters:
            dead = dead_letters.receive(2, RETRY_TIMEOUT_MS)
    assert_exactly_these(messages, dead)
    first_ids = {outcome["seed"]: outcome["offset_msg_id"] for outcome in outcomes}
    for message in dead:
        assert message["properties"]["ORIGIN_MESSAGE_ID"] == first_ids[messages[index_of(message)]["seed"]]
        assert message["properties"]["RETRY_TOPIC"] == topic


def test_a_consumer_that_comes_back_resumes_where_its_group_stopped(
    client: DriverProcess, target: Target, topic: str
) -> None:
    group = new_group()
    first = plans(f"first-{topic}", 60, sizes=[200])
    second = plans(f"second-{topic}", 60, sizes=[200], first_index=60)
    with client.consumer(target.cluster, topic, group=group) as consumer:
        send_all(client, target.cluster, topic, first)
        assert_exactly_these(first, consumer.receive(len(first)))
        wait_for_commits(target.cluster.namesrv, topic, group, len(first))  # while it lives: it commits each 5 s
    send_all(client, target.cluster, topic, second)
    with client.consumer(target.cluster, topic, group=group) as consumer:
        assert_exactly_these(second, consumer.receive(len(second)))


def test_ordered_messages_of_one_key_arrive_in_the_order_sent(
    client: DriverProcess, target: Target, topic: str
) -> None:
    messages = plans(topic, 200, sizes=[64])
    send_all(client, target.cluster, topic, messages, "ordered")
    # Every message fails once first: an ordered consumer must wait for it, not go round it.
    options: dict[str, Any] = {
        "ordered": True,
        "fail_until_reconsume_times": 1,
        "suspend_ms": 50,
        "max_reconsume_times": 16,
    }
    with client.consumer(target.cluster, topic, **options) as consumer:
        received = consumer.receive(2 * len(messages))
    done: dict[str, list[int]] = defaultdict(list)
    queues: dict[str, set[int]] = defaultdict(set)
    for message in received:
        sharding_key = messages[index_of(message)]["sharding_key"]
        queues[sharding_key].add(message["queue_id"])
        if message["reconsume_times"] == 1:
            done[sharding_key].append(index_of(message))
    assert sum(len(indexes) for indexes in done.values()) == len(messages)
    for sharding_key, indexes in done.items():
        assert indexes == sorted(indexes), sharding_key
        assert len(queues[sharding_key]) == 1, sharding_key


def test_broadcasting_gives_every_consumer_everything(client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 40, sizes=[100])
    group = new_group()
    options: dict[str, Any] = {"group": group, "broadcasting": True}
    # Broadcasting consumers keep their offsets themselves: these two begin at the end of a topic without messages.
    with (
        client.consumer(target.cluster, topic, instance=f"{group}-1", **options) as first,
        client.consumer(target.cluster, topic, instance=f"{group}-2", **options) as second,
    ):
        send_all(client, target.cluster, topic, messages)
        assert_exactly_these(messages, first.receive(len(messages)))
        assert_exactly_these(messages, second.receive(len(messages)))


def test_two_consumers_of_a_group_share_the_queues(client: DriverProcess, target: Target, topic: str) -> None:
    group = new_group()
    with (
        client.consumer(target.cluster, topic, group=group, instance=f"{group}-1") as first,
        client.consumer(target.cluster, topic, group=group, instance=f"{group}-2") as second,
    ):
        # Until both have balanced, one may hold all queues: send until each was given something.
        got_first: list[dict[str, Any]] = []
        got_second: list[dict[str, Any]] = []
        sent: list[Plan] = []
        for round_number in range(30):
            burst = plans(f"{topic}-{round_number}", 20, sizes=[50])
            for plan in burst:
                plan["properties"] = {"index": str(len(sent))}
                sent.append(plan)
            send_all(client, target.cluster, topic, burst)
            got_first += first.poll(1, 1_000)
            got_second += second.poll(1, 1_000)
            if got_first and got_second:
                break
        assert got_first, "the first consumer never got a queue"
        assert got_second, "the second consumer never got a queue"
        # The balance moves queues between the two, and what was in flight may come twice; but nothing may be lost.
        missing = set(range(len(sent))) - {index_of(message) for message in got_first + got_second}
        deadline_s = time.monotonic() + RETRY_TIMEOUT_MS / 1000
        while missing and time.monotonic() < deadline_s:
            missing -= {index_of(message) for message in first.poll(1, 500) + second.poll(1, 500)}
        assert not missing


def test_a_delayed_message_comes_after_its_delay(client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 4, sizes=[100])
    for plan in messages:
        plan["delay_level"] = 2
    with client.consumer(target.cluster, topic) as consumer:
        send_all(client, target.cluster, topic, messages)
        received = consumer.receive(len(messages))
    assert_exactly_these(messages, received)
    for message in received:
        # Three seconds from the first store to the second; the client's clock and the broker's are one here.
        assert message["received_at_ms"] - message["born_timestamp_ms"] >= 2_900
        assert message["properties"]["REAL_TOPIC"] == topic


def test_a_lite_pull_consumer_reads_everything(java_client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 150, sizes=[10, KIBIBYTE, 20 * KIBIBYTE])
    send_all(java_client, target.cluster, topic, messages)
    received = java_client.order(
        "lite_pull", target.cluster, topic=topic, group=new_group(), count=len(messages), timeout_ms=60_000
    )
    assert_exactly_these(messages, received)


def test_a_pull_says_where_the_queue_begins_and_ends(java_client: DriverProcess, target: Target, topic: str) -> None:
    outcomes = send_all(java_client, target.cluster, topic, plans(topic, 40, sizes=[100]))
    queue_id = outcomes[0]["queue_id"]
    length = sum(outcome["queue_id"] == queue_id for outcome in outcomes)
    arguments = {"topic": topic, "group": new_group(), "queue_id": queue_id, "expression": "*", "count": 32}
    pulled = java_client.order("pull", target.cluster, offset=0, **arguments)
    assert (pulled["status"], pulled["min_offset"], pulled["max_offset"]) == ("FOUND", 0, length)
    assert pulled["next_begin_offset"] == len(pulled["messages"]) == length
    beyond = java_client.order("pull", target.cluster, offset=length + 5, **arguments)
    assert (beyond["status"], beyond["next_begin_offset"]) == ("OFFSET_ILLEGAL", length)


def test_a_message_can_be_viewed_by_its_offset_id(java_client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 20, sizes=[KIBIBYTE])
    outcomes = send_all(java_client, target.cluster, topic, messages)
    for plan, outcome in zip(messages, outcomes, strict=True):
        viewed = java_client.order("view_message", target.cluster, topic=topic, msg_id=outcome["offset_msg_id"])
        assert_same_message(plan, viewed)
        assert (viewed["queue_id"], viewed["queue_offset"]) == (outcome["queue_id"], outcome["queue_offset"])


def test_messages_can_be_queried_by_key_and_viewed_by_their_unique_id(
    java_client: DriverProcess, target: Target, topic: str
) -> None:
    messages = plans(topic, 40, sizes=[KIBIBYTE])
    outcomes = send_all(java_client, target.cluster, topic, messages)
    everyone = {"key": f"all-{topic}"}

    def query(**what: str) -> list[dict[str, Any]]:
        return java_client.query("query_key" if "key" in what else "view_message", target.cluster, topic, **what)

    wait_until(lambda: len(query(**everyone)) == len(messages), timeout_s=60, what="the index has every message")
    for plan, outcome in list(zip(messages, outcomes, strict=True))[::8]:
        for found in (query(key=plan["keys"].split(" ")[0]), query(msg_id=outcome["msg_id"])):
            assert_same_message(plan, found[0])
            assert len(found) == 1
    assert query(key="nobody's") == []


def test_offsets_can_be_asked_for_and_searched_by_time(java_client: DriverProcess, target: Target, topic: str) -> None:
    outcomes = send_all(java_client, target.cluster, topic, plans(topic, 40, sizes=[100]))
    sent_to: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for outcome in outcomes:
        sent_to[outcome["queue_id"]].append(outcome)
    for queue in java_client.order("offsets", target.cluster, topic=topic):
        count = len(sent_to[queue["queue_id"]])
        assert (queue["min"], queue["max"]) == (0, count)
        assert (queue["stats_min"], queue["stats_max"]) == (0, count)
    queue_id = outcomes[0]["queue_id"]
    search = {"topic": topic, "broker": target.broker_name, "queue_id": queue_id}
    stored_ms = [
        java_client.order("view_message", target.cluster, topic=topic, msg_id=outcome["offset_msg_id"])[
            "store_timestamp_ms"
        ]
        for outcome in sent_to[queue_id]
    ]
    for timestamp_ms in sorted(set(stored_ms)):
        found = java_client.order("search_offset", target.cluster, timestamp_ms=timestamp_ms, **search)
        assert found == stored_ms.index(timestamp_ms), "the first message that is not older"
    assert java_client.order("search_offset", target.cluster, timestamp_ms=stored_ms[0] - 10_000, **search) == 0
    assert java_client.order("search_offset", target.cluster, timestamp_ms=stored_ms[-1] + 10_000, **search) == len(
        stored_ms
    )


def test_a_consumer_group_shows_its_progress(java_client: DriverProcess, target: Target, topic: str) -> None:
    messages = plans(topic, 40, sizes=[100])
    group = new_group()
    with java_client.consumer(target.cluster, topic, group=group) as consumer:
        send_all(java_client, target.cluster, topic, messages)
        consumer.receive(len(messages))
        wait_for_commits(target.cluster.namesrv, topic, group, len(messages))
    progress = java_client.order("consume_stats", target.cluster, group=group, topic=topic)
    assert sum(queue["broker_offset"] for queue in progress) == len(messages)
    assert all(queue["consumer_offset"] == queue["broker_offset"] for queue in progress)


def test_a_topic_that_no_one_created_is_refused(client: DriverProcess, target: Target) -> None:
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    (outcome,) = client.produce(target.cluster, missing, plans("missing", 1, sizes=[10]))
    assert outcome["status"] is None
    assert missing in outcome["error"] or "route" in outcome["error"].lower()


def test_a_body_over_the_limit_is_refused_by_the_broker(go_client: DriverProcess, target: Target, topic: str) -> None:
    # The Java client refuses by itself; Go's sends it.
    too_large = plans("large", 1, sizes=[4 * content.MEBIBYTE + 4096])
    too_large[0]["kind"] = "binary"
    (outcome,) = go_client.produce(target.cluster, topic, too_large)
    assert outcome["status"] is None
    send_all(go_client, target.cluster, topic, plans(topic, 1, sizes=[10]))
