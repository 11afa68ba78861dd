"""Celery's side of provisioning. Tasks fetch, call one service, and leave the rest to the rows."""

import uuid

from celery import shared_task
from django.utils import timezone

from controlplane.clusters.lifecycle import clusters_purge
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.operations import STEP_TASK, operations_resume, step_at_once
from controlplane.clusters.remoting import slow_cluster_logged
from controlplane.common.turns import interleaved, turn
from controlplane.provisioning import health
from controlplane.provisioning.certificate_files import certificates_renew
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.hosts import hosts_sample
from controlplane.provisioning.runner import Outcome, operation_step_run


@shared_task(name=STEP_TASK)
def operation_step_run_task(step_id: str) -> str:
    """Run one step if it is this worker's to run; returns the outcome for the worker's log."""
    step, driver = uuid.UUID(step_id), get_driver()
    outcome = operation_step_run(step, driver)
    while outcome == Outcome.COMPLETED and (following := step_at_once(step)) is not None:
        step, outcome = following, operation_step_run(following, driver)
    return outcome


@shared_task(name="provisioning.operations_resume")
def operations_resume_task() -> int:
    """Pick up what a dead worker or an emptied queue left behind."""
    return operations_resume()


@shared_task(name="provisioning.clusters_purge")
def clusters_purge_task() -> int:
    """Begin to remove clusters whose deletion can't be taken back any more."""
    return clusters_purge()


@shared_task(name="provisioning.hosts_sample", ignore_result=True)
def hosts_sample_task() -> None:
    """Note what each host has and what its daemons have used."""
    hosts_sample(get_driver())


@shared_task(name="provisioning.certificates_renew")
def certificates_renew_task() -> int:
    """Give daemons fresh certificates in time."""
    return certificates_renew(get_driver(), timezone.now())


@shared_task(name="provisioning.clusters_sample_health")
def clusters_sample_health_task() -> None:
    """Enqueue one sample for each running cluster; an old sample that still waits is dropped."""
    running = Cluster.objects.filter(state=ClusterState.RUNNING).values_list("tenant_id", "pk")
    for cluster_id in interleaved((tenant, pk) for tenant, pk in running):
        cluster_sample_health_task.apply_async(args=(str(cluster_id),), expires=10)


@shared_task(name="provisioning.cluster_sample_health", ignore_result=True, soft_time_limit=30, time_limit=40)
def cluster_sample_health_task(cluster_id: str) -> None:
    """Sample one cluster."""
    cluster = Cluster.objects.filter(pk=uuid.UUID(cluster_id)).first()
    if cluster is None:
        return
    with turn("health", cluster.tenant_id, cluster.pk) as mine:
        if mine:
            with slow_cluster_logged():
                health.cluster_sample_health(cluster.pk, get_driver())
