"""Which replicas hold a message, by their own words, and what clients recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, Replica
from controlplane.insight import whereabouts
from controlplane.insight.whereabouts import Holding, replica_holding
from controlplane.topics.models import Topic, TopicState
from highwater import HighwaterError, MessageQueue, NoRouteError, ReceivedMessage
from highwater.message_trace import MessageTrace
from highwater.trace_story import TracedDelivery, TracedSend, TraceStory
from highwater.whereabouts import IdReading, read_id
from mqwire.bodies import ReplicaStatus
from mqwire.message import offset_message_id, pack_host
from tests.controlplane.world import Json, World, make_cluster

LEADER = ReplicaStatus(
    cluster="orders",
    group="broker-a",
    replica_id=0,
    advertised_broker_id=0,
    address="10.0.0.1:10911",
    role="master",
    mode="sync",
    epoch=3,
    log_epoch=3,
    epoch_map=[],
    min_offset=100,
    end_offset=1000,
    durable_offset=1000,
    held_offset=1000,
    confirm_offset=800,
    flush_disk_type="ASYNC_FLUSH",
    in_sync_replicas=2,
    min_in_sync_replicas=1,
    in_sync=[0],
    accepts_sends=True,
    promotable=True,
)


def replica(**changes: object) -> ReplicaStatus:
    return msgspec.structs.replace(LEADER, role="slave", **changes)


@pytest.mark.parametrize(
    ("status", "span", "holding"),
    [
        (replica(), (700, 800), Holding.HOLDS),
        (replica(), (800, 900), Holding.HOLDS),
        (replica(held_offset=850), (800, 900), Holding.LACKS),
        (replica(log_epoch=2), (800, 900), Holding.UNKNOWN),
        (replica(log_epoch=2), (700, 800), Holding.HOLDS),
        (replica(min_offset=500), (400, 500), Holding.DELETED),
    ],
)
def test_a_replicas_word_says_whether_it_holds_a_message(
    status: ReplicaStatus, span: tuple[int, int], holding: Holding
) -> None:
    assert replica_holding(*span, status, LEADER)[0] == holding


def test_past_the_high_watermark_nothing_is_known_without_a_leader() -> None:
    assert replica_holding(800, 900, replica(), None)[0] == Holding.UNKNOWN


# --- trace records ---


def message(message_id: str = "7F01") -> ReceivedMessage:
    return ReceivedMessage(
        topic="payments",
        body=b"x",
        tags=None,
        keys=(),
        properties={},
        message_id=message_id,
        offset_message_id="O1",
        queue=MessageQueue("payments", "broker-a", 0),
        queue_offset=0,
        physical_offset=0,
        born_timestamp_ms=1,
        store_timestamp_ms=2,
        born_host=("10.0.0.1", 1),
        store_host=("10.0.0.1", 1),
    )


class AdminTwin:
    """Finds one message, and trace records in RMQ_SYS_TRACE_TOPIC alone; `error` is raised for those instead."""

    def __init__(self) -> None:
        self.error: HighwaterError | None = None
        self.asked: list[tuple[str, str]] = []

    @contextmanager
    def cluster_admin(self, cluster: Cluster) -> Iterator[AdminTwin]:
        yield self

    def message_traces(self, message_id: str, *, trace_topic: str, sender: str) -> TraceStory:
        self.asked.append((message_id, trace_topic))
        if self.error is not None:
            raise self.error
        delivery = TracedDelivery(1_700_000_000_000, "10.0.0.8", "billing", 0, 24, "success")
        send = TracedSend(2**62, "10.0.0.7", "shop", "payments", "10.0.0.1:10911", 4, 100, "normal", is_success=True)
        return TraceStory((send,), (delivery,))


@pytest.fixture
def admin(world: World, monkeypatch: pytest.MonkeyPatch) -> AdminTwin:
    Topic.objects.create(cluster=world.cluster, name="my-traces", state=TopicState.ACTIVE)
    twin = AdminTwin()
    found = MessageTrace("k", IdReading(), (message(),), message())
    monkeypatch.setattr(whereabouts, "cluster_admin", twin.cluster_admin)
    monkeypatch.setattr(replica_remoting, "replica_statuses", lambda *_: {})
    monkeypatch.setattr(whereabouts, "trace_message", lambda *_, **__: found)
    return twin


def ask(world: World, **query: str) -> Any:
    return Json(world.bob).get(f"{world.cluster.path}message-trace/?{urlencode({'q': 'k', **query})}")


def test_what_clients_recorded_of_a_message_is_shown(world: World, admin: AdminTwin) -> None:
    answer = ask(world)
    assert answer.status_code == 200, answer.content
    traces = answer.json()["traces"]
    (delivery,) = traces["deliveries"]
    assert (delivery["began_at"], delivery["address"], delivery["result"]) == (
        "2023-11-14T22:13:20Z",
        "10.0.0.8",
        "success",
    )
    assert traces["sends"][0]["at"] is None  # a time that no calendar has
    assert admin.asked == [("7F01", "RMQ_SYS_TRACE_TOPIC")]


def test_trace_records_are_looked_for_in_a_topic_of_the_cluster(world: World, admin: AdminTwin) -> None:
    assert ask(world, trace_topic="my-traces").status_code == 200
    assert admin.asked == [("7F01", "my-traces")]
    assert ask(world, trace_topic="RMQ_SYS_METERING").status_code == 400
    assert len(admin.asked) == 1


def test_without_an_answer_for_the_trace_topic_the_rest_is_reported(world: World, admin: AdminTwin) -> None:
    admin.error = NoRouteError("no route")
    answer = ask(world).json()
    assert (answer["traces"], answer["topic"]) == (None, "payments")


# --- in another cluster ---


@pytest.fixture
def nothing_found(world: World, admin: AdminTwin, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Nothing matches in the cluster `orders`; the tenant's cluster `elsewhere` is returned, and a stranger has one like it."""

    def look(_admin: AdminTwin, text: str, **_: Any) -> MessageTrace:
        return MessageTrace(text, read_id(text, 1_700_000_000_000), (), None)

    monkeypatch.setattr(whereabouts, "trace_message", look)
    for tenant in (world.globex, world.acme):
        cluster = make_cluster(tenant, "elsewhere")
        Topic.objects.create(cluster=cluster, name="refunds", state=TopicState.ACTIVE)
        Topic.objects.create(cluster=cluster, name=f"only-{tenant.slug}", state=TopicState.ACTIVE)
    return cluster


def causes(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 200, answer.content
    return [(reason["cause"], reason["sentence"]) for reason in answer.json()["reasons"]]


def test_a_topic_of_another_cluster_of_the_tenant_is_named_first(world: World, nothing_found: Cluster) -> None:
    first, *_ = causes(ask(world, topic="refunds"))
    assert first == ("other_cluster", "The topic refunds is in another cluster of yours: elsewhere.")


@pytest.mark.parametrize("topic", ["only-globex", "none", "my-traces", ""])
def test_clusters_of_others_and_topics_that_are_here_are_not_spoken_of(
    world: World, nothing_found: Cluster, topic: str
) -> None:
    assert "other_cluster" not in dict(causes(ask(world, topic=topic)))


def test_an_id_that_names_a_broker_of_another_cluster_of_the_tenant_says_which(
    world: World, nothing_found: Cluster
) -> None:
    broker = Replica.objects.get(group__cluster=nothing_found)
    text = offset_message_id(pack_host(broker.host, broker.port or 0), 4096)
    assert causes(ask(world, q=text))[0] == (
        "other_cluster",
        "As a broker's id (offsetMsgId) it names a broker of your cluster elsewhere, broker-a.",
    )


def test_the_page_says_it_too_of_a_topic_that_an_address_names(world: World, nothing_found: Cluster) -> None:
    page = Json(world.bob).get("/t/acme/clusters/orders/message-trace/?q=k&topic=refunds").content.decode()
    assert 'data-cause="other_cluster"' in page
    assert "is in another cluster of yours: elsewhere." in page
