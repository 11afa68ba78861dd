"""What a sample of a group writes down: who led when, and since when a silent replica's process is known to have ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from unittest.mock import patch

import pytest
from django.utils import timezone

from controlplane.clusters import replica_remoting
from controlplane.clusters.models import Cluster, ClusterState, Operation, OperationType, Replica
from controlplane.clusters.selectors import cluster_health
from controlplane.common.errors import ClusterSlow
from controlplane.failover import tasks
from controlplane.failover.models import FailoverKind, GroupLeadership, ReplicaSample
from controlplane.failover.promotion.services import group_preflight
from controlplane.failover.promotion.verdict import cleanness_of
from controlplane.failover.sampling import cluster_sample
from controlplane.failover.selectors import group_get, group_view
from controlplane.provisioning.drivers.base import ProcessState, ProcessStatus
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import World
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


@pytest.fixture
def cluster(world: World) -> Cluster:
    return make_replicated(world.acme, "pair", "async")


def sample_with(cluster: Cluster, driver: DriverTwin, **process: object) -> ReplicaSample:
    """Sample while the slave is silent and its process is so."""

    def statuses(names: Sequence[str]) -> dict[str, ProcessStatus]:
        return {name: ProcessStatus(name, **process) for name in names}  # type: ignore[arg-type]  # values of any type

    with patch.object(driver, "process_statuses", statuses):
        cluster_sample(cluster, driver)
    return ReplicaSample.objects.get(replica__group__cluster=cluster, replica__broker_id=1)


def test_the_moment_at_which_a_master_was_last_seen_leading_is_kept(cluster: Cluster, driver: DriverTwin) -> None:
    with ScriptedGroup.of(cluster).answering() as group:
        before = timezone.now()
        cluster_sample(cluster, driver)
        led = GroupLeadership.objects.get(group__cluster=cluster)
        assert led.led_at is not None
        assert led.led_at > before
        assert (led.led_epoch, led.led_to_offset) == (1, 1000)
        group.restart(0)
        cluster_sample(cluster, driver)
        led_again = GroupLeadership.objects.get(group__cluster=cluster)
        assert (led_again.led_at, led_again.led_epoch) == (led.led_at, 1)


@pytest.mark.parametrize(
    ("state", "started_s", "ended"),
    [
        (ProcessState.BACKOFF, -60, True),
        (ProcessState.RUNNING, 1, True),
        (ProcessState.RUNNING, -60, False),
        (ProcessState.STARTING, None, False),
    ],
    ids=["tried again later", "another one by now", "the one that answered", "no one knows"],
)
def test_a_silent_replicas_process_has_ended_if_it_is_not_the_one_that_answered(
    cluster: Cluster, driver: DriverTwin, state: ProcessState, started_s: float | None, ended: bool
) -> None:
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        group[1].answers = False
        stopped_at = timezone.now()
        started_at = None if started_s is None else stopped_at + timedelta(seconds=started_s)
        sample = sample_with(cluster, driver, state=state, started_at=started_at, stopped_at=stopped_at)
        assert sample.process_ended_at == (stopped_at if ended else None)


def test_the_first_end_is_when_it_went_away(cluster: Cluster, driver: DriverTwin) -> None:
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        group[1].answers = False
        first = timezone.now()
        ends: list[datetime | None] = []
        for seconds in (0, 30):
            stopped_at = first + timedelta(seconds=seconds)
            sample = sample_with(cluster, driver, state=ProcessState.BACKOFF, stopped_at=stopped_at)
            ends.append(sample.process_ended_at)
        assert ends == [first, first]
        group[1].answers = True
        cluster_sample(cluster, driver)
        sample.refresh_from_db()
        assert sample.process_ended_at is None


def test_a_promotion_waits_less_for_who_was_silent_when_last_asked(cluster: Cluster, driver: DriverTwin) -> None:
    with ScriptedGroup.of(cluster).answering() as group:
        group[0].answers = False
        cluster_sample(cluster, driver)
        with patch.object(replica_remoting, "replica_statuses", side_effect=replica_remoting.replica_statuses) as asked:
            group_preflight(
                cluster=cluster,
                group=cluster.broker_groups.get(),
                kind=FailoverKind.PROMOTE,
                candidate_id=1,
                driver=driver,
            )
        assert asked.call_args.kwargs["timeouts_s"] == {group[0].address: 0.3, group[1].address: 1.0}


@pytest.mark.parametrize(
    ("process_state", "health", "sentences"),
    [
        (ProcessState.BACKOFF, "unknown", ["The broker broker-a (replica 1) answers again."]),
        (ProcessState.RUNNING, "down", ["It is not registered."]),
    ],
)
def test_who_answers_is_not_called_down_by_an_older_look_at_its_process(
    cluster: Cluster, driver: DriverTwin, process_state: ProcessState, health: str, sentences: list[str]
) -> None:
    before = timezone.now()
    cluster.name_servers.update(health="healthy", sampled_at=before)
    replicas = Replica.objects.filter(group__cluster=cluster)
    replicas.update(health="healthy", sampled_at=before)
    replicas.filter(broker_id=1).update(
        health="down", process_state=process_state, health_message="It is not registered."
    )
    with ScriptedGroup.of(cluster).answering():
        cluster_sample(cluster, driver)
    found = cluster_health(Cluster.objects.get(pk=cluster.pk))
    assert (found.status, found.sentences) == (health, sentences)


@pytest.mark.parametrize("led_unseen", [0, 2])
def test_a_master_that_led_again_between_two_looks_is_promoted_again_beside_a_new_disk(
    world: World, driver: DriverTwin, led_unseen: int
) -> None:
    """It was restarted, and fenced before it was seen to lead: it says itself that it led last. Where another did, that one may
    have shown what no other holds.
    """
    cluster = make_replicated(world.acme, "three", "sync", replicas=3)
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        for one in group.replicas:
            one.leads, one.epoch, one.log_epoch, one.in_sync_for_ms = False, 8, 7, None
        group[led_unseen].led_in.append(7)
        group[0].end_offset = 2000
        group[2].disk, group[2].has_caught_up = "second", False
        GroupLeadership.objects.update(epoch=9)  # the fence was ours
        cluster_sample(cluster, driver)
    found = group_view(group_get(cluster, "broker-a"))
    assert cleanness_of(found, 0).clean is (led_unseen == 0)


def test_a_single_broker_is_not_looked_at_until_it_gets_replicas(world: World) -> None:
    cluster = make_replicated(world.acme, "solo", "single", replicas=1)
    asked: list[str] = []
    with patch.object(tasks.cluster_sample_task, "apply_async", lambda args, **_: asked.append(args[0])):
        tasks.clusters_sample_task()
        assert str(cluster.pk) not in asked
        Replica.objects.create(group=cluster.broker_groups.get(), broker_id=1, broker_role="SLAVE", host="127.0.0.1")
        tasks.clusters_sample_task()
        assert asked.count(str(cluster.pk)) == 1


@pytest.mark.parametrize("state", [ClusterState.SUSPENDING, ClusterState.RESUMING])
def test_where_a_suspension_or_a_resumption_failed_it_is_still_seen_who_leads_and_a_replica_may_be_promoted(
    cluster: Cluster, driver: DriverTwin, state: ClusterState
) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state=state)
    cluster.refresh_from_db()
    with ScriptedGroup.of(cluster).answering() as group, patch.object(tasks, "get_driver", return_value=driver):
        tasks.cluster_sample_task(str(cluster.pk))
        assert GroupLeadership.objects.get(group__cluster=cluster).led_epoch == 1
        group[0].answers = False
        found = group_preflight(
            cluster=cluster,
            group=cluster.broker_groups.get(),
            kind=FailoverKind.PROMOTE,
            candidate_id=None,
            driver=driver,
        )
        assert found.candidate is not None
        assert found.candidate.replica_id == 1


def test_measuring_elections_of_a_slow_cluster_takes_no_time_from_a_promotion(world: World, driver: DriverTwin) -> None:
    cluster = make_replicated(world.acme, "voters", "dledger", replicas=3)
    looked: list[str] = []

    def slow(_cluster: Cluster, _driver: object) -> None:
        raise ClusterSlow("too slow", extra={"cluster": "voters"})

    with (
        ScriptedGroup.of(cluster).answering(),
        patch.object(tasks, "get_driver", return_value=driver),
        patch("controlplane.failover.elections.elections_measure", slow),
        patch.object(tasks, "automatic_failover", lambda _cluster, view, _driver: looked.append(view.name)),
    ):
        tasks.cluster_sample_task(str(cluster.pk))
    assert looked == [cluster.broker_groups.get().name]


def test_a_cluster_at_whose_suspension_a_worker_is_is_left_to_it(cluster: Cluster, driver: DriverTwin) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(state=ClusterState.SUSPENDING)
    Operation.objects.create(tenant=cluster.tenant, cluster=cluster, type=OperationType.CLUSTER_SUSPEND)
    with ScriptedGroup.of(cluster).answering(), patch.object(tasks, "get_driver", return_value=driver):
        tasks.cluster_sample_task(str(cluster.pk))
    assert not GroupLeadership.objects.filter(group__cluster=cluster, led_epoch=1).exists()


@pytest.mark.parametrize(
    ("asked_epoch", "led_epoch", "named"), [(None, 1, 1), (4, 1, 1), (7, 1, 0), (None, 5, 0), (None, 6, 0)]
)
def test_a_leader_below_an_epoch_that_was_only_reserved_is_the_groups(
    cluster: Cluster, driver: DriverTwin, asked_epoch: int | None, led_epoch: int, named: int
) -> None:
    """A promotion was given up before it decided. Who leads on was never written down, and the next one took a typed loss: but
    where someone was asked to lead in a newer epoch, or did, that one is.
    """
    with ScriptedGroup.of(cluster).answering() as group:
        cluster_sample(cluster, driver)
        group[0].leads, group[1].leads = False, True
        group[0].epoch = group[1].epoch = 5
        leadership = GroupLeadership.objects.filter(group__cluster=cluster)
        leadership.update(epoch=9, led_epoch=led_epoch, asked_epoch=asked_epoch)
        cluster_sample(cluster, driver)
        row = leadership.get()
        assert row.leader is not None
        assert (row.epoch, row.leader.broker_id) == (9, named)
