"""Two requests about one topic at once: whichever reaches the brokers last, they keep what the row says, or nothing without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters import remoting
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    Operation,
    OperationState,
    OperationStep,
    OperationType,
    Replica,
    StepState,
)
from controlplane.clusters.operations import operation_start
from controlplane.common.errors import Conflict
from controlplane.provisioning import steps
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.steps import StepContext, spread_topics
from controlplane.topics import services
from controlplane.topics.models import Topic, TopicState
from controlplane.topics.services import TopicOptions, topic_create, topic_delete, topic_update
from tests.controlplane.brokers_twin import BrokersTwin, brokers_that_answer
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World


class Brokers(BrokersTwin):
    """They keep topics; `meanwhile` is done once, before the next request to them."""

    kept: dict[tuple[str, str], int] = {}  # every Admin speaks to the same brokers; the fixture empties it
    meanwhile: Callable[[], object] | None = None

    def cluster_info(self):  # type: ignore[no-untyped-def] # as the twin's
        act, Brokers.meanwhile = Brokers.meanwhile, None
        if act is not None:
            act()
        return super().cluster_info()

    def create_topic(self, name: str, *, address: str, perm: int, **_: object) -> None:  # type: ignore[override] # named
        self.kept[name, address] = perm

    def delete_topic(self, name: str, *, cluster: str) -> None:
        for key in [key for key in self.kept if key[0] == name]:
            del self.kept[key]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Brokers]]:
    Brokers.kept, Brokers.meanwhile = {}, None
    monkeypatch.setattr(services, "_present", lambda admin, topic, address: None)
    with brokers_that_answer(), patch.object(remoting, "Admin", Brokers):
        yield Brokers


def row(name: str) -> Topic:
    return Topic.objects.select_related("cluster__tenant").get(name=name)


def names(brokers: type[Brokers]) -> set[str]:
    return {name for name, _ in brokers.kept}


def groups_with(brokers: type[Brokers], topic: str) -> int:
    return sum(name == topic for name, _ in brokers.kept)


def growing(cluster: Cluster) -> Operation:
    """A group that is added to the cluster, which has ports already."""
    added = BrokerGroup.objects.create(cluster=cluster, name="broker-b")
    Replica.objects.create(group=added, host="127.0.0.1", port=29991)
    return operation_start(
        actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_GROW, metadata={"group": "broker-b"}
    )


def spreading(growth: Operation, driver: DriverTwin) -> StepContext:
    growth.steps.filter(name="spread_topics").update(state=StepState.RUNNING)
    return StepContext.of(OperationStep.objects.get(operation_id=growth.pk, name="spread_topics"), driver)


def test_a_topic_that_is_deleted_while_it_is_changed_stays_deleted(world: World, brokers: type[Brokers]) -> None:
    topic = topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    brokers.meanwhile = lambda: topic_delete(actor=world.alice, topic=row("invoices"))
    with pytest.raises(Conflict, match="being deleted"):
        topic_update(actor=world.alice, topic=topic, options=TopicOptions(perm=4))
    assert not Topic.objects.exists()
    assert names(brokers) == set()


def test_a_topic_that_is_made_again_while_its_former_life_is_changed_is_as_it_was_made(
    world: World, brokers: type[Brokers]
) -> None:
    def made_again() -> None:
        topic_delete(actor=world.alice, topic=row("invoices"))
        topic_create(actor=world.alice, cluster=world.cluster, name="invoices", options=TopicOptions(perm=2))

    topic = topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    brokers.meanwhile = made_again
    with pytest.raises(Conflict):
        topic_update(actor=world.alice, topic=topic, options=TopicOptions(perm=4))
    assert set(brokers.kept.values()) == {row("invoices").perm} == {2}


def test_of_two_changes_at_once_the_brokers_keep_the_one_that_the_row_has(world: World, brokers: type[Brokers]) -> None:
    topic = topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    brokers.meanwhile = lambda: topic_update(actor=world.alice, topic=row("invoices"), options=TopicOptions(perm=2))
    topic_update(actor=world.alice, topic=topic, options=TopicOptions(perm=4))
    assert (row("invoices").state, set(brokers.kept.values())) == (TopicState.ACTIVE, {row("invoices").perm})


def test_what_is_changed_while_topics_are_spread_over_a_new_group_counts(
    world: World, brokers: type[Brokers], driver: DriverTwin
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        topic_create(actor=world.alice, cluster=world.cluster, name=name)
    context = spreading(growing(world.cluster), driver)

    def changed() -> None:
        topic_delete(actor=world.alice, topic=row("bbb"))
        topic_update(actor=world.alice, topic=row("ccc"), options=TopicOptions(perm=4))

    brokers.meanwhile = changed
    spread_topics(context)
    assert names(brokers) == {"aaa", "ccc"}
    assert {perm for (name, _), perm in brokers.kept.items() if name == "ccc"} == {4}


def test_spreading_goes_on_where_the_run_before_has_ended(
    world: World, brokers: type[Brokers], driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("aaa", "bbb", "ccc"):
        topic_create(actor=world.alice, cluster=world.cluster, name=name)
    Topic.objects.update(updated_at=timezone.now() - timedelta(hours=1))
    growth = growing(world.cluster)
    spread: list[str] = []
    monkeypatch.setattr(steps, "topic_apply", lambda topic, **_: spread.append(topic.name))
    monkeypatch.setattr(steps, "_SPREAD_S", -1.0)  # each run ends before its next topic
    with pytest.raises(StepNotReady):
        spread_topics(spreading(growth, driver))
    monkeypatch.setattr(steps, "_SPREAD_S", 60.0)
    spread_topics(spreading(growth, driver))
    assert spread == ["aaa", "bbb", "ccc"]


def test_what_is_changed_between_two_runs_of_spreading_is_spread_too(
    world: World, brokers: type[Brokers], driver: DriverTwin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new group does not count there: it kept the permission of before, and lacked a topic whose name had been passed."""
    for name in ("bbb", "ccc"):
        topic_create(actor=world.alice, cluster=world.cluster, name=name)
    growth = growing(world.cluster)
    monkeypatch.setattr(steps, "_SPREAD_S", -1.0)
    with pytest.raises(StepNotReady):
        spread_topics(spreading(growth, driver))
    growth.steps.filter(name="spread_topics").update(state=StepState.PENDING)
    topic_update(actor=world.alice, topic=row("bbb"), options=TopicOptions(perm=4))
    topic_create(actor=world.alice, cluster=world.cluster, name="aaa")
    assert groups_with(brokers, "aaa") == 1
    monkeypatch.setattr(steps, "_SPREAD_S", 60.0)
    growth.refresh_from_db()
    spread_topics(spreading(growth, driver))
    assert groups_with(brokers, "aaa") == 2
    assert {perm for (name, _), perm in brokers.kept.items() if name == "bbb"} == {4}


def test_a_topic_that_is_being_made_when_spreading_begins_is_made_on_the_new_group_too(
    world: World, brokers: type[Brokers], driver: DriverTwin
) -> None:
    growth = growing(world.cluster)
    brokers.meanwhile = lambda: spread_topics(spreading(growth, driver))
    topic_create(actor=world.alice, cluster=world.cluster, name="aaa")
    assert groups_with(brokers, "aaa") == 2


@pytest.mark.parametrize("state", [OperationState.IN_PROGRESS, OperationState.FAILED])
def test_topics_come_and_go_without_a_group_that_has_never_led(
    world: World, brokers: type[Brokers], state: OperationState
) -> None:
    """Its growth failed, or has not come to spreading them."""
    growth = growing(world.cluster)
    Operation.objects.filter(pk=growth.pk).update(state=state)
    topic_create(actor=world.alice, cluster=world.cluster, name="invoices")
    leads = Replica.objects.get(group__cluster=world.cluster, group__name="broker-a")
    assert {address for _, address in brokers.kept} == {leads.address}
    topic_delete(actor=world.alice, topic=row("invoices"))
    assert not Topic.objects.exists()
