"""A new master gets the topics that it lacks: one made in the last moment may be known to no one else alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, OperationState, OperationStep, Replica
from controlplane.clusters.remoting import remoting_errors
from controlplane.common.errors import BrokerUnreachable
from controlplane.topics import services
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.services import topics_assert
from highwater.errors import BrokerError
from mqwire.bodies import TopicConfig
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.promotions import lose, names, operation_of, run, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "async")


def topic(cluster: Cluster, name: str = "orders", **values: object) -> Topic:
    return Topic.objects.create(
        cluster=cluster,
        name=name,
        **{"state": TopicState.ACTIVE, "read_queue_nums": 4, "write_queue_nums": 4, **values},
    )


@contextmanager
def broker_with(*known: TopicConfig, refuses: str | None = None) -> Iterator[dict[str, tuple[int, int, int]]]:
    """A broker that keeps these topics and refuses one; yields what is asked of it: name -> (read queues, write queues, perm)."""
    reported: dict[str, tuple[int, int, int]] = {}

    def create_topic(name: str, *, read_queue_nums: int, write_queue_nums: int, perm: int, **_: object) -> None:
        if name == refuses:
            raise BrokerError(1, "no room", "127.0.0.1:1")
        reported[name] = (read_queue_nums, write_queue_nums, perm)

    @contextmanager
    def admin(cluster: Cluster) -> Iterator[SimpleNamespace]:
        with remoting_errors(cluster):
            yield SimpleNamespace(create_topic=create_topic)

    table = {one.topic_name: one for one in known}
    with (
        patch.object(replica_remoting, "topic_table", return_value=table),
        patch.object(services, "cluster_admin", admin),
    ):
        yield reported


def kept(read: int, write: int, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name="orders", read_queue_nums=read, write_queue_nums=write, perm=perm)


@pytest.mark.parametrize(
    ("present", "reported"),
    [
        (None, (4, 4, 6)),
        (kept(4, 4), None),
        (kept(4, 2), (4, 4, 6)),
        (kept(2, 4), (4, 4, 6)),
        (kept(4, 4, perm=4), (4, 4, 6)),
        (kept(8, 4), None),  # read queues that may hold messages stay
        (kept(8, 8), (8, 4, 6)),
    ],
)
def test_what_is_missing_or_other_than_its_row_is_reported(
    cluster: Cluster, present: TopicConfig | None, reported: tuple[int, int, int] | None
) -> None:
    topic(cluster)
    with broker_with(*([] if present is None else [present])) as asked:
        lacked = topics_assert(cluster, "broker-a", "127.0.0.1:1")
    assert (lacked, asked) == ((["orders"], {"orders": reported}) if reported else ([], {}))


def test_a_topic_that_is_not_there_yet_or_is_on_its_way_out_is_no_ones_business(cluster: Cluster) -> None:
    for state in (TopicState.CREATING, TopicState.FAILED, TopicState.DELETING):
        topic(cluster, f"topic-{state}", state=state)
    with broker_with() as asked:
        assert topics_assert(cluster, "broker-a", "127.0.0.1:1") == []
    assert asked == {}


def test_each_group_has_its_share(world: World) -> None:
    from controlplane.clusters.services import group_rows_create

    cluster = make_replicated(world.acme, "wide", "async")
    Replica.objects.filter(group=group_rows_create(cluster, 1, 2), broker_id=0).update(port=20)
    topic(cluster, read_queue_nums=3, write_queue_nums=3)
    with broker_with() as asked:
        topics_assert(cluster, "broker-b", "127.0.0.1:1")
    assert asked == {"orders": (1, 1, 6)}


def test_a_promotion_records_in_its_timeline_which_topics_the_new_master_lacked(
    cluster: Cluster, driver: DriverTwin
) -> None:
    topic(cluster)
    with ScriptedGroup.of(cluster).answering() as group, broker_with() as asked:
        lose(group)
        failover = start(cluster, driver, confirm="broker-a")
        assert run(failover, driver, group).state == OperationState.COMPLETED
    assert asked == {"orders": (4, 4, 6)}
    assert names(failover).index("first_write") < names(failover).index("topics")


def test_a_master_that_does_not_list_its_topics_does_not_fail_what_is_done(
    cluster: Cluster, driver: DriverTwin
) -> None:
    topic(cluster)
    with (
        ScriptedGroup.of(cluster).answering() as group,
        patch.object(replica_remoting, "topic_table", return_value=None),
    ):
        lose(group)
        failover = start(cluster, driver, confirm="broker-a")
        operation = run(failover, driver, group)
        step = operation.steps.get(name="failover_topics")
        assert (operation.state, "does not list its topics" in step.message) == (OperationState.IN_PROGRESS, True)
        OperationStep.objects.filter(pk=step.pk).update(started_at=timezone.now() - timedelta(seconds=21))
        assert run(failover, driver, group).state == OperationState.COMPLETED
    line = failover.timeline.get(name="topics")
    assert line.detail.startswith("The topics of the new master could not be checked: ")


def test_a_broker_that_does_not_answer_is_reported(cluster: Cluster) -> None:
    topic(cluster)
    with patch.object(replica_remoting, "topic_table", return_value=None), pytest.raises(BrokerUnreachable):
        topics_assert(cluster, "broker-a", "127.0.0.1:1")


def test_an_operation_has_the_step_after_the_first_write(cluster: Cluster, driver: DriverTwin) -> None:
    with ScriptedGroup.of(cluster).answering() as group:
        lose(group)
        steps = [step.name for step in operation_of(start(cluster, driver, confirm="broker-a")).steps.all()]
    assert steps.index("failover_topics") == steps.index("failover_verify") + 1
