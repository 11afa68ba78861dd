"""Celery's side of insight. Jobs run in a queue of their own, `jobs`: a long one keeps no one else waiting."""

import uuid

from celery import shared_task
from django.conf import settings

from controlplane.clusters.models import Cluster, ClusterState
from controlplane.common.turns import interleaved, turn
from controlplane.insight import bounds, figures, services

BACKFILL_TIMEOUT_S = services.BACKFILL_DAYS_MAX * settings.HIGHWATER_JOB_TIMEOUT_PER_DAY_S


@shared_task(name="insight.jobs_dispatch")
def jobs_dispatch_task() -> int:
    """Mark lost runs, add due ones, enqueue what waits."""
    return services.jobs_dispatch()


@shared_task(
    name=services.RUN_TASK,
    # The process is ended before these, the longest backfill's too; they end a worker that could not do so.
    soft_time_limit=settings.HIGHWATER_JOB_TIMEOUT_S + BACKFILL_TIMEOUT_S + 60,
    time_limit=settings.HIGHWATER_JOB_TIMEOUT_S + BACKFILL_TIMEOUT_S + 120,
)
def job_run_task(run_id: str) -> str:
    """Run a job as a process of its own."""
    return services.job_run_execute(uuid.UUID(run_id))


@shared_task(name=services.ALERT_TASK)
def job_run_alert_task(run_id: str) -> bool:
    """Mail the operators that a run failed."""
    return services.job_run_alert(uuid.UUID(run_id))


@shared_task(name="insight.lag_windows_expire")
def lag_windows_expire_task() -> int:
    """Delete old lag windows."""
    return services.lag_windows_expire()


@shared_task(name="insight.job_runs_expire")
def job_runs_expire_task() -> int:
    """Delete old runs."""
    return services.job_runs_expire()


@shared_task(name="insight.log_samples_take")
def log_samples_take_task() -> int:
    """Write down where each broker group's log ends."""
    return bounds.log_samples_take()


@shared_task(name="insight.log_samples_expire")
def log_samples_expire_task() -> int:
    """Delete old samples of logs."""
    return bounds.log_samples_expire()


@shared_task(name="insight.figures_sample")
def figures_sample_task() -> None:
    """Enqueue one sample for each running cluster; one that still waits is dropped."""
    running = Cluster.objects.filter(state=ClusterState.RUNNING).values_list("tenant_id", "pk")
    for cluster_id in interleaved((tenant, pk) for tenant, pk in running):
        cluster_figures_sample_task.apply_async(args=(str(cluster_id),), expires=figures.SAMPLE_EVERY_S)


@shared_task(name="insight.cluster_figures_sample", ignore_result=True, soft_time_limit=30, time_limit=40)
def cluster_figures_sample_task(cluster_id: str) -> bool:
    """Sample what flows through one cluster."""
    cluster = Cluster.objects.filter(pk=uuid.UUID(cluster_id)).first()
    if cluster is None:
        return False
    with turn("figures", cluster.tenant_id, cluster.pk) as mine:
        return mine and figures.cluster_figures_sample(cluster.pk)


@shared_task(name="insight.figures_expire")
def figures_expire_task() -> int:
    """Delete old samples."""
    return figures.figures_expire()
