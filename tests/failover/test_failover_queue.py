"""A promotion waits for no other operation, and no operation for the receivers of alerts: each has a queue of its own."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from celery import current_app
from django.conf import settings

from controlplane.alerts.deliveries import DELIVER_TASK
from controlplane.clusters.models import Cluster, OperationStep, OperationType
from controlplane.clusters.operations import operation_start, step_enqueue
from controlplane.failover import tasks
from controlplane.failover.models import FailoverKind
from controlplane.failover.sampling import cluster_sample
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World
from tests.failover.promotions import operation_of, start
from tests.failover.replicated import make_replicated
from tests.failover.scripted_group import ScriptedGroup


def queue_of(step: OperationStep, run_commits: object) -> object:
    with patch.object(current_app, "send_task") as sent, run_commits(execute=True):  # type: ignore[operator]  # a fixture
        step_enqueue(step.pk)
    return sent.call_args.kwargs["queue"]


def test_a_switchovers_steps_go_to_the_failovers_queue_and_a_clusters_creation_does_not(
    world: World, driver: DriverTwin, django_capture_on_commit_callbacks: object
) -> None:
    cluster = make_replicated(world.acme, "pair", "sync")
    with ScriptedGroup.of(cluster).answering():
        cluster_sample(cluster, driver)
        switchover = operation_of(start(cluster, driver, FailoverKind.SWITCHOVER)).steps.earliest("position")
    creation = Cluster.objects.get(pk=cluster.pk).operations.earliest("started_at").steps.earliest("position")
    assert queue_of(switchover, django_capture_on_commit_callbacks) == "failovers"
    assert queue_of(creation, django_capture_on_commit_callbacks) is None


def test_a_rolling_restart_hurries_only_while_a_change_of_a_leader_is_under_way(
    world: World, django_capture_on_commit_callbacks: object
) -> None:
    cluster = make_replicated(world.acme, "trio", "sync", replicas=3)
    operation = operation_start(actor=SYSTEM, cluster=cluster, operation_type=OperationType.CLUSTER_RESTART)
    step = operation.steps.get(name="roll_leaders")
    assert queue_of(step, django_capture_on_commit_callbacks) is None
    operation.metadata["sends_wait"] = True
    operation.save()
    assert queue_of(step, django_capture_on_commit_callbacks) == "failovers"


@pytest.mark.parametrize("task", ["failover.clusters_sample", "failover.cluster_sample"])
def test_the_look_at_each_group_goes_there_too(task: str) -> None:
    assert settings.CELERY_TASK_ROUTES[task] == {"queue": settings.FAILOVER_QUEUE}


def test_the_steps_of_promotions_come_before_the_looks_that_wait(world: World) -> None:
    make_replicated(world.acme, "pair", "sync")
    with patch.object(tasks.cluster_sample_task, "apply_async") as sent:
        tasks.clusters_sample_task()
    assert sent.call_args.kwargs["priority"] > 0, "by Redis, 0 is first"


def test_a_worker_that_is_busy_takes_nothing_that_another_could_begin() -> None:
    assert settings.CELERY_WORKER_DISABLE_PREFETCH


def test_alerts_are_sent_by_workers_that_run_no_operation() -> None:
    assert settings.CELERY_TASK_ROUTES[DELIVER_TASK] == {"queue": "deliveries"}
