"""Ten thousand messages from each stock client through a cluster that a tenant created with the REST API.

Mixed sizes from one byte to nearly 4 MiB, with keys, tags and unicode properties, sent in all five ways, under access
control and synchronous flush; every message's content is compared.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from mqwire.acl import SessionCredentials
from tests.interop.clients import DriverProcess
from tests.interop.content import KIBIBYTE, Plan, assert_exactly_these, assert_same_message, index_of, plans
from tests.interop.platform_cluster import PlatformCluster
from tests.remoting import wait_for_commits

MODES = {"sync": 1_500, "async": 4_000, "oneway": 1_500, "batch": 2_000, "ordered": 1_000}
MODES_BEFORE_THE_RESTART = ("sync", "async")
TIMEOUT_MS = 120_000


def planned(client_name: str) -> dict[str, list[Plan]]:
    """The ten thousand, by the way in which they are sent."""
    messages: dict[str, list[Plan]] = {}
    first_index = 0
    for mode, count in MODES.items():
        # A whole batch must fit one request of 4 MiB.
        sizes = [1, 300, KIBIBYTE, 5 * KIBIBYTE] if mode == "batch" else None
        messages[mode] = plans(f"{client_name}-{mode}", count, sizes=sizes, first_index=first_index)
        first_index += count
    return messages


def send(client: DriverProcess, tenant_cluster: PlatformCluster, topic: str, mode: str, messages: list[Plan]) -> None:
    outcomes = client.produce(tenant_cluster.cluster, topic, messages, mode=mode, timeout_ms=15_000)
    if mode != "oneway":
        failed = [outcome for outcome in outcomes if outcome["status"] != "SEND_OK"]
        assert not failed, failed[:3]
        assert len(outcomes) == len(messages)


@pytest.mark.timeout(600)
def test_ten_thousand_messages_arrive_once_and_unchanged(
    client: DriverProcess, tenant_cluster: PlatformCluster
) -> None:
    topic = f"ten-thousand-{client.name}"
    tenant_cluster.create_topic(topic, queues=8)
    messages = planned(client.name)
    everything = [plan for plan_list in messages.values() for plan in plan_list]
    assert len(everything) == 10_000
    group = f"everything-{client.name}"

    cluster = tenant_cluster.cluster
    assert cluster.access_key is not None
    assert cluster.secret_key is not None
    credentials = SessionCredentials(cluster.access_key, cluster.secret_key)
    with client.consumer(cluster, topic, group=group) as consumer:
        for mode in MODES_BEFORE_THE_RESTART:
            send(client, tenant_cluster, topic, mode, messages[mode])
        received = consumer.receive(sum(MODES[mode] for mode in MODES_BEFORE_THE_RESTART), TIMEOUT_MS)
        # While it lives it commits each 5 s; what it had not noted when it stopped would come again.
        wait_for_commits(cluster.namesrv, topic, group, len(received), credentials)
    for mode in MODES.keys() - set(MODES_BEFORE_THE_RESTART):
        send(client, tenant_cluster, topic, mode, messages[mode])
    # The same group once more: it resumes, so each message still comes exactly once.
    with client.consumer(tenant_cluster.cluster, topic, group=group) as consumer:
        received += consumer.receive(10_000 - len(received), TIMEOUT_MS)
    assert_exactly_these(everything, received)

    order_sent = {int(plan["properties"]["index"]): plan["sharding_key"] for plan in messages["ordered"]}
    stored: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for message in received:
        if index_of(message) in order_sent:
            stored[order_sent[index_of(message)]].append((message["queue_offset"], index_of(message)))
    for places in stored.values():
        indexes = [index for _, index in sorted(places)]
        assert indexes == sorted(indexes), "messages of one key are stored in the order in which they were sent"

    # A second group that wants some tags only, reading what is stored by now.
    wanted = [plan for plan in everything if plan.get("tag") in ("paid", "shipped")]
    with client.consumer(
        tenant_cluster.cluster, topic, group=f"filtered-{client.name}", expression="paid || shipped"
    ) as consumer:
        assert_exactly_these(wanted, consumer.receive(len(wanted), TIMEOUT_MS))


@pytest.mark.timeout(300)
def test_what_no_one_can_consume_ends_in_the_dead_letter_queue(
    java_client: DriverProcess, tenant_cluster: PlatformCluster
) -> None:
    topic, group = "poison", "poisoned"
    tenant_cluster.create_topic(topic, queues=2)
    messages = plans("poison", 5, sizes=[1, KIBIBYTE, 20 * KIBIBYTE])
    # One retry, with the pause that every cluster has by default: ten seconds.
    options: dict[str, Any] = {"group": group, "fail_until_reconsume_times": 99, "max_reconsume_times": 1}
    with java_client.consumer(tenant_cluster.cluster, topic, **options) as consumer:
        send(java_client, tenant_cluster, topic, "sync", messages)
        attempts = consumer.receive(2 * len(messages), TIMEOUT_MS)
        assert sorted(message["reconsume_times"] for message in attempts) == [0] * 5 + [1] * 5
        for message in attempts:
            assert_same_message(messages[index_of(message)], message)
        with java_client.consumer(tenant_cluster.cluster, f"%DLQ%{group}", group="undertaker") as dead_letters:
            assert_exactly_these(messages, dead_letters.receive(len(messages), TIMEOUT_MS))


@pytest.mark.parametrize(
    ("access_key", "secret_key"), [(None, None), ("somebody", "else")], ids=["no credentials", "foreign credentials"]
)
def test_a_stranger_is_told_no_permission(
    java_client: DriverProcess, tenant_cluster: PlatformCluster, access_key: str | None, secret_key: str | None
) -> None:
    topic = "closed-to-strangers"
    if tenant_cluster.api.get(f"{tenant_cluster.path}topics/{topic}/").status_code == 404:
        tenant_cluster.create_topic(topic, queues=1)
    stranger = tenant_cluster.cluster.with_credentials(access_key, secret_key)
    (outcome,) = java_client.produce(stranger, topic, plans("stranger", 1, sizes=[10]), retries=0)
    assert (outcome["status"], outcome["response_code"]) == (None, 16)
