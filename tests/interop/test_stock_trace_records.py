"""Stock clients with tracing on write trace records to our brokers, and the story of a message is read from them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from highwater import Admin, Credentials
from highwater.trace_story import TraceStory
from mqwire.acl import SessionCredentials
from tests.interop.clients import Cluster, DriverProcess, GoClient
from tests.interop.content import plans
from tests.interop.targets import ADMIN_KEY, ADMIN_SECRET, Brand, Target, plain, start_target
from tests.processes import wait_until

SENDS = ("shop-sends", "shop-sends-secret")
READS = ("shop-reads", "shop-reads-secret")


def guarded_conf(brand: Brand, folder: Path) -> dict[str, str]:
    """Access control with an administrator, a key that may only send, and one that may only consume."""
    accounts = [
        {"accessKey": ADMIN_KEY, "secretKey": ADMIN_SECRET, "admin": True},
        {"accessKey": SENDS[0], "secretKey": SENDS[1], "defaultTopicPerm": "PUB", "defaultGroupPerm": "DENY"},
        {"accessKey": READS[0], "secretKey": READS[1], "defaultTopicPerm": "SUB", "defaultGroupPerm": "SUB"},
    ]
    folder.mkdir(parents=True, exist_ok=True)
    acl_file = folder / "plain_acl.yml"
    acl_file.write_text(yaml.safe_dump({"globalWhiteRemoteAddresses": [], "accounts": accounts}), "utf-8")
    return {**plain(brand, folder), "aclEnable": "true", "aclConfigFile": str(acl_file)}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    credentials = SessionCredentials(ADMIN_KEY, ADMIN_SECRET)
    folder = tmp_path_factory.mktemp("trace-acl")
    with start_target("highwater", folder, guarded_conf, credentials=credentials) as running:
        yield running


def reported(admin: Admin, message_id: str, deliveries: int) -> TraceStory:
    """The story of a message, once it has a send and so many deliveries that ended."""
    found = [TraceStory()]

    def is_whole() -> bool:
        found[0] = admin.message_traces(message_id)
        ended = [one for one in found[0].deliveries if one.result]
        return len(found[0].sends) == 1 and len(ended) == deliveries

    wait_until(is_whole, timeout_s=60.0, what=f"a send and {deliveries} ended deliveries of {message_id}")
    return found[0]


def test_the_story_of_a_message_is_read_from_a_stock_clients_trace_records(
    client: DriverProcess, target: Target, topic: str
) -> None:
    group, producer_group = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("c", "p"))
    (message,) = plans(topic, 1, sizes=[100])
    with client.consumer(target.cluster, topic, group=group, trace=True) as consumer:
        (outcome,) = client.produce(target.cluster, topic, [message], group=producer_group, trace=True)
        consumer.receive(1)
        with Admin(target.cluster.namesrv) as admin:
            story = reported(admin, outcome["msg_id"], deliveries=1)
    (send,), (delivery,) = story.sends, story.deliveries
    assert (send.topic, send.group, send.is_success, send.body_size_bytes) == (topic, producer_group, True, 100)
    assert send.store_host == target.broker_address
    assert send.at_ms is not None
    assert send.cost_ms is not None
    assert (delivery.group, delivery.result, delivery.retried) == (group, "success", 0)
    assert delivery.began_ms is not None


def test_a_delivery_that_failed_and_its_retry_are_reported(
    java_client: DriverProcess, target: Target, topic: str
) -> None:
    group = f"c-{uuid.uuid4().hex[:8]}"
    (message,) = plans(topic, 1, sizes=[100])
    with java_client.consumer(target.cluster, topic, group=group, trace=True, fail_until_reconsume_times=1) as consumer:
        (outcome,) = java_client.produce(target.cluster, topic, [message], group=f"p-{group}", trace=True)
        consumer.receive(2)
        with Admin(target.cluster.namesrv) as admin:
            story = reported(admin, outcome["msg_id"], deliveries=2)
    assert [(one.result, one.retried) for one in story.deliveries] == [("failed", 0), ("success", 1)]


def test_keys_that_may_only_send_or_only_consume_write_their_own_trace_records(
    java_client: DriverProcess, guarded: Target, tmp_path: Path
) -> None:
    # Two processes: within one, clients send their trace records over one connection, signed with the first one's key. Go's is one
    # of its own: a second producer with tracing and other name servers ends a process, as it finds no dispatcher.
    topic, group = f"topic-{uuid.uuid4().hex[:8]}", f"c-{uuid.uuid4().hex[:8]}"
    guarded.create_topic(topic, queues=1)
    (message,) = plans(topic, 1, sizes=[100])
    namesrv = guarded.cluster.namesrv
    with (
        GoClient(tmp_path) as go_client,
        java_client.consumer(Cluster(namesrv, *READS), topic, group=group, trace=True) as consumer,
    ):
        (outcome,) = go_client.produce(
            Cluster(namesrv, *SENDS), topic, [message], group=f"p-{uuid.uuid4().hex[:8]}", trace=True
        )
        consumer.receive(1)
        with Admin(namesrv, credentials=Credentials(ADMIN_KEY, ADMIN_SECRET)) as admin:
            story = reported(admin, outcome["msg_id"], deliveries=1)
    assert [one.result for one in story.deliveries] == ["success"]
