"""A topic's retention and quotas: what may be asked for, and what is sent of them to each broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import BrokerGroup, Cluster, ConfigurationChange, Replica
from controlplane.common.errors import InvalidInput
from controlplane.common.models import AuditEvent
from controlplane.insight.job_config import config_of
from controlplane.insight.models import Job, JobRun
from controlplane.topics import selectors, services
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.selectors import topics_live
from controlplane.topics.services import TopicOptions, topic_create, topic_update, topics_assert
from highwater import BrokerData, ClusterInfo, TopicConfig, TopicLimit, TopicStats
from highwater.errors import BrokerError, RequestTimeoutError
from mqwire import bodies
from mqwire.codes import ResponseCode
from tests.controlplane.world import Json, World


class Brokers:
    """The masters of a cluster's groups; `sent` are the attributes of each, by address."""

    def __init__(self, *groups: str) -> None:
        self.groups = groups
        self.sent: dict[str, dict[str, str | None]] = {}
        self.attributes: dict[str, str] = {}  # what they have of a topic
        self.types: list[str | None] = []
        self.answers: int | None = ResponseCode.SUCCESS  # to what is to be created; None: no answer in time

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            {group: BrokerData("orders", group, {0: f"{group}:1"}) for group in self.groups}, {"orders": self.groups}
        )

    def topic_config(self, topic: str, address: str) -> TopicConfig:
        return TopicConfig(topic, 8, 8, 6, attributes=self.attributes)

    def topic_stats(self, topic: str) -> TopicStats:
        return TopicStats(topic, ())

    def topic_limits(self, topic: str) -> tuple[TopicLimit, ...]:
        return (TopicLimit("broker-a", "quota.stored.bytes", 100, 95), TopicLimit("broker-a", "reserve.time", 24, None))

    def create_topic(self, topic: str, *, address: str, attributes: dict[str, str | None], **_: object) -> None:
        self.types.append(attributes.pop("message.type", None))
        self.sent[address] = attributes
        if self.answers is None:
            raise RequestTimeoutError("no answer")
        if self.answers != ResponseCode.SUCCESS:
            raise BrokerError(self.answers, "its words", address)


def listed(*, perm: int) -> bodies.TopicConfig:
    return bodies.TopicConfig(topic_name="orders-new", read_queue_nums=8, write_queue_nums=8, perm=perm)


@contextmanager
def brokers_of(*groups: str) -> Iterator[Brokers]:
    twin = Brokers(*groups)

    @contextmanager
    def admin(cluster: Cluster) -> Iterator[Any]:
        yield twin

    with patch.object(services, "cluster_admin", admin), patch.object(selectors, "cluster_admin", admin):
        yield twin


def test_a_broker_is_told_to_drop_the_limits_that_it_has_and_of_no_others(world: World) -> None:
    """One of an earlier version would not know their words."""
    with brokers_of("broker-a") as brokers:
        brokers.attributes = {"reserve.time": "24", "quota.held.pulls": "5"}
        topic_create(actor=world.alice, cluster=world.cluster, name="plain")
    assert brokers.sent == {"broker-a:1": {"reserve.time": None, "quota.held.pulls": None}}


def test_a_topics_limits_are_told_to_its_broker(world: World) -> None:
    options = TopicOptions(
        retention_hours=24, retention_bytes=1000, quota_messages_per_second=5, quota_bytes_per_second=600,
        quota_stored_bytes=7000, quota_held_pulls=80,
    )  # fmt: skip
    with brokers_of("broker-a") as brokers:
        topic_create(actor=world.alice, cluster=world.cluster, name="short", options=options)
    assert brokers.sent["broker-a:1"] == {
        "reserve.time": "24",
        "reserve.bytes": "1000",
        "quota.messages.per.second": "5",
        "quota.bytes.per.second": "600",
        "quota.stored.bytes": "7000",
        "quota.held.pulls": "80",
    }


def test_groups_share_a_topics_sizes_by_their_queues_and_keep_for_the_same_time(world: World) -> None:
    group = BrokerGroup.objects.create(cluster=world.cluster, name="broker-b")
    Replica.objects.create(group=group, host="127.0.0.9", port=3)
    options = TopicOptions(read_queue_nums=3, write_queue_nums=3, retention_hours=24, retention_bytes=3000)
    with brokers_of("broker-a", "broker-b") as brokers:
        topic_create(actor=world.alice, cluster=world.cluster, name="short", options=options)
    assert {address: sent["reserve.bytes"] for address, sent in brokers.sent.items()} == {
        "broker-a:1": "2000",
        "broker-b:1": "1000",
    }
    assert {sent["reserve.time"] for sent in brokers.sent.values()} == {"24"}


def test_a_limit_that_is_taken_away_is_taken_from_the_brokers(world: World) -> None:
    topic = Topic.objects.create(
        cluster=world.cluster, name="short", state=TopicState.ACTIVE, retention_hours=24, retention_bytes=9
    )
    with brokers_of("broker-a") as brokers:
        brokers.attributes = {"reserve.time": "24", "reserve.bytes": "9"}
        topic_update(actor=world.alice, topic=topic, options=TopicOptions(retention_bytes=9))
    assert brokers.sent["broker-a:1"] == {"reserve.time": None, "reserve.bytes": "9"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"retention_hours": 0},
        {"retention_hours": 73},
        {"retention_bytes": 0},
        {"quota_messages_per_second": -1},
        {"quota_bytes_per_second": 2**51},
        {"quota_stored_bytes": 0},
        {"quota_held_pulls": 0},
    ],
)
def test_a_limit_out_of_range_is_refused_at_its_field(world: World, wrong: dict[str, int]) -> None:
    with brokers_of("broker-a") as brokers, pytest.raises(InvalidInput) as refused:
        topic_create(actor=world.alice, cluster=world.cluster, name="short", options=TopicOptions(**wrong))  # type: ignore[arg-type]  # by field
    assert [error.field for error in refused.value.errors] == list(wrong)
    assert brokers.sent == {}


def test_a_topic_may_keep_messages_for_as_long_as_its_clusters_brokers_do(world: World) -> None:
    ConfigurationChange.objects.create(
        cluster=world.cluster, number=1, changes={}, configuration={"fileReservedTime": 96}
    )
    with brokers_of("broker-a") as brokers:
        topic_create(actor=world.alice, cluster=world.cluster, name="long", options=TopicOptions(retention_hours=96))
        with pytest.raises(InvalidInput, match="Use 1 to 96 hours"):
            topic_create(
                actor=world.alice, cluster=world.cluster, name="longer", options=TopicOptions(retention_hours=97)
            )
    assert brokers.sent["broker-a:1"]["reserve.time"] == "96"


@pytest.mark.parametrize("answer", [ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT])
def test_a_topic_is_there_when_a_master_whose_slaves_are_gone_has_taken_it(world: World, answer: int) -> None:
    """It is given to the next master if this one is lost."""
    with brokers_of("broker-a") as brokers:
        brokers.answers = answer
        topic = topic_create(actor=world.alice, cluster=world.cluster, name="orders-new")
        assert topic_update(actor=world.alice, topic=topic, options=TopicOptions(perm=4)).state == TopicState.ACTIVE


@pytest.mark.parametrize(
    ("present", "is_there"),
    [
        ({"orders-new": listed(perm=6)}, True),
        ({"orders-new": listed(perm=4)}, False),
        ({}, False),
        (None, False),
    ],
)
def test_a_topic_whose_master_does_not_answer_in_time_is_there_when_the_master_lists_it(
    world: World, present: dict[str, bodies.TopicConfig] | None, is_there: bool
) -> None:
    """One that waits for a slave that hangs has taken it by then."""
    with (
        brokers_of("broker-a") as brokers,
        patch.object(replica_remoting, "topic_table", return_value=present),
        nullcontext() if is_there else pytest.raises(RequestTimeoutError),
    ):
        brokers.answers = None
        assert topic_create(actor=world.alice, cluster=world.cluster, name="orders-new").state == TopicState.ACTIVE


def test_any_other_answer_of_a_broker_is_raised(world: World) -> None:
    with brokers_of("broker-a") as brokers:
        brokers.answers = ResponseCode.SYSTEM_ERROR
        with pytest.raises(BrokerError):
            topic_create(actor=world.alice, cluster=world.cluster, name="orders-new")


def test_a_new_master_that_keeps_messages_for_another_time_is_told(world: World) -> None:
    Topic.objects.create(cluster=world.cluster, name="short", state=TopicState.ACTIVE, retention_hours=24)
    present = bodies.TopicConfig(topic_name="short", read_queue_nums=8, write_queue_nums=8, perm=6)
    with (
        brokers_of("broker-a") as brokers,
        patch.object(replica_remoting, "topic_table", return_value={"short": present}),
    ):
        assert topics_assert(world.cluster, "broker-a", "broker-a:1") == ["short"]
    assert brokers.sent["broker-a:1"]["reserve.time"] == "24"


def test_the_audit_log_says_which_limits_were_set(world: World) -> None:
    with brokers_of("broker-a"):
        topic_create(actor=world.alice, cluster=world.cluster, name="short", options=TopicOptions(retention_hours=24))
    assert AuditEvent.objects.get(action="topic.create").details["retention_hours"] == 24


def test_the_api_sets_shows_and_takes_away_a_limit(world: World) -> None:
    client = Json(world.alice)
    path = f"/api/v1/tenants/acme/clusters/{world.cluster.slug}/topics/"
    with brokers_of("broker-a"):
        made = client.call("POST", path, {"name": "short", "retention_hours": 24, "quota_messages_per_second": 50})
        assert made.status_code == 201, made.content
        assert (made.json()["retention_hours"], made.json()["quota_messages_per_second"]) == (24, 50)
        changed = client.call("PATCH", f"{path}short/", {"retention_hours": None})
    assert (changed.json()["retention_hours"], changed.json()["quota_messages_per_second"]) == (None, 50)


def test_the_api_says_how_much_of_a_topics_limits_is_used(world: World) -> None:
    Topic.objects.create(cluster=world.cluster, name="short", state=TopicState.ACTIVE)
    with brokers_of("broker-a"):
        found = (
            Json(world.alice).call("GET", f"/api/v1/tenants/acme/clusters/{world.cluster.slug}/topics/short/").json()
        )
    assert found["live"]["limits"] == [
        {"broker_name": "broker-a", "name": "quota.stored.bytes", "used": "95", "limit": "100"},
        {"broker_name": "broker-a", "name": "reserve.time", "used": None, "limit": "24"},
    ]


def test_a_quota_of_which_more_than_nine_tenths_are_used_is_close(world: World) -> None:
    topic = Topic.objects.create(cluster=world.cluster, name="short", state=TopicState.ACTIVE)
    with brokers_of("broker-a"):
        limits = topics_live(world.cluster, [topic], with_limits=True)["short"].limits
    assert limits is not None
    assert [(one.name, one.is_close) for one in limits] == [("quota.stored.bytes", True), ("reserve.time", False)]


def test_the_jobs_are_told_of_topics_that_keep_less_than_their_brokers(world: World) -> None:
    for name, hours in (("short", 24), ("plain", None)):
        Topic.objects.create(cluster=world.cluster, name=name, state=TopicState.ACTIVE, retention_hours=hours)
    (given,) = (
        one
        for one in config_of(JobRun.objects.create(job=Job.LAG_ANALYTICS))["clusters"]
        if one["cluster_id"] == str(world.cluster.pk)
    )
    assert (given["retention_hours"], given["topic_retention_hours"]) == (72, {"short": 24})


@pytest.mark.parametrize("message_type", ["NORMAL", "FIFO", "DELAY", "MIXED"])
def test_a_topics_type_is_told_to_its_broker(world: World, message_type: str) -> None:
    with brokers_of("broker-a") as brokers:
        topic_create(
            actor=world.alice, cluster=world.cluster, name="t", options=TopicOptions(message_type=message_type)
        )
    assert brokers.types == [message_type]


def test_a_topic_for_transactions_is_refused_with_the_reason(world: World) -> None:
    with brokers_of("broker-a"), pytest.raises(InvalidInput) as refused:
        topic_create(
            actor=world.alice, cluster=world.cluster, name="t", options=TopicOptions(message_type="TRANSACTION")
        )
    (error,) = refused.value.errors
    assert (error.field, error.message) == (
        "message_type",
        (
            "Transactions are not supported yet: the brokers refuse transactional messages. Send an ordinary one once your own"
            " transaction has committed."
        ),
    )


def test_the_api_says_that_transactions_are_not_supported(world: World) -> None:
    body = {"name": "t", "message_type": "TRANSACTION"}
    answer = Json(world.alice).call("POST", f"/api/v1/tenants/acme/clusters/{world.cluster.slug}/topics/", body)
    assert answer.status_code == 400
    assert "Transactions are not supported yet" in answer.content.decode()


def test_a_topic_for_transactions_of_before_can_be_changed(world: World) -> None:
    topic = Topic.objects.create(cluster=world.cluster, name="t", state=TopicState.ACTIVE, message_type="TRANSACTION")
    with brokers_of("broker-a") as brokers:
        topic_update(actor=world.alice, topic=topic, options=replace(TopicOptions.of(topic), retention_hours=5))
    assert (brokers.types, brokers.sent["broker-a:1"]["reserve.time"]) == ([None], "5")
    assert AuditEvent.objects.get(action="topic.update").details["changes"] == {"retention_hours": [None, 5]}
