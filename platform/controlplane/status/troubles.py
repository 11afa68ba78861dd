"""What is wrong now, over all tenants, for operators: each with since when, and where to act.

Alerts that fire are shown as the evaluation found them; beside them what no tenant has a rule for: daemons that are down or restart
over and over, operations that failed or do not go on, hosts that are full or silent, jobs that failed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.utils import timezone

from controlplane.alerts.models import Alert, AlertState
from controlplane.alerts.words import sentence
from controlplane.clusters.models import (
    LEADERSHIP,
    Cluster,
    ClusterState,
    Health,
    NameServer,
    Operation,
    OperationState,
)
from controlplane.common.sentences import say
from controlplane.insight.models import JobRun, JobRunState
from controlplane.provisioning.hosts import STALE_AFTER, Placement, latest_samples, placements, restarts
from controlplane.provisioning.leftovers import stuck_operations
from controlplane.provisioning.models import HostSample

# Alerts that are about the platform, not about what a tenant's programs do.
_KINDS = ("leader_missing", "daemon_down", "replica_behind", "disk_used", "quota_used", "certificate_old")
DISK_FULL_FROM = 0.85
MEMORY_FULL_FROM = 0.95
# For so long it is said that a change of a leader, or a drill, failed: nothing is left of it but what is shown by itself.
_LEADERSHIP_FAILED_FOR = timedelta(days=1)


class Act(StrEnum):
    """Where an operator goes on."""

    HOSTS = "hosts"
    MACHINE = "machine"
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong. `cluster` is None where it is about the platform; `about` names what `act` is done to."""

    kind: str
    severity: str
    what: str
    since: datetime | None
    cluster: Cluster | None
    act: Act
    about: str = ""


def troubles() -> list[Trouble]:
    """Return what is wrong now, what is critical and oldest first."""
    placed = placements()
    found = [*_alerts(), *_daemons(placed), *_operations(), *_hosts(), *_jobs()]
    now = timezone.now()
    return sorted(found, key=lambda one: (one.severity != "critical", one.since or now))


def _alerts() -> Iterator[Trouble]:
    firing = Alert.objects.filter(state=AlertState.FIRING, kind__in=_KINDS).select_related("cluster__tenant")
    for alert in firing.order_by("since"):
        what = sentence(alert.kind, alert.subject, alert.value, alert.detail)
        yield Trouble(alert.kind, alert.severity, what, alert.since, alert.cluster, Act.HOSTS, alert.cluster.slug)


def _daemons(placed: list[Placement]) -> Iterator[Trouble]:
    alerted = set(
        Alert.objects.filter(state=AlertState.FIRING, kind="daemon_down").values_list("cluster_id", flat=True)
    )
    repeated = restarts()
    for one in placed:
        if (
            one.cluster.state == ClusterState.RUNNING
            and one.row.health == Health.DOWN
            and one.cluster.pk not in alerted
        ):
            severity = "warning" if isinstance(one.row, NameServer) else "critical"
            yield Trouble(
                "daemon_down", severity, one.row.health_message, one.row.health_since, one.cluster, Act.HOSTS, one.host
            )
        if one.process in repeated:
            times, since = repeated[one.process]
            what = say("%(daemon)s restarted %(times)s times within the last hour.", daemon=one.title, times=times)
            yield Trouble("restarts", "critical", what, since, one.cluster, Act.HOSTS, one.host)


def _operations() -> Iterator[Trouble]:
    latest = Operation.objects.exclude(cluster=None).exclude(cluster__state=ClusterState.DELETED)
    latest = latest.order_by("cluster_id", "-created_at").distinct("cluster_id").select_related("cluster__tenant")
    passed = timezone.now() - _LEADERSHIP_FAILED_FOR
    for operation in latest:
        if operation.type in LEADERSHIP and operation.updated_at < passed:
            continue
        if operation.state == OperationState.FAILED and operation.cluster is not None:
            what = say("The operation %(type)s failed.", type=operation.type)
            yield Trouble(
                "operation_failed", "critical", what, operation.updated_at, operation.cluster, Act.HOSTS, operation.path
            )
    for stuck in stuck_operations():
        what = say("The operation %(type)s does not go on: %(step)s.", type=stuck.operation.type, step=stuck.step)
        yield Trouble(
            "operation_stuck", "critical", what, stuck.since, stuck.operation.cluster, Act.MACHINE, stuck.operation.path
        )


def _hosts() -> Iterator[Trouble]:
    now = timezone.now()
    fresh = latest_samples()
    for sample in fresh:
        disk = 1 - sample.disk_free_bytes / sample.disk_bytes
        if disk >= DISK_FULL_FROM:
            what = say("The disk of %(host)s is %(percent)s %% full.", host=sample.host, percent=round(100 * disk))
            severity = "critical" if disk >= 0.95 else "warning"
            yield Trouble("host_disk", severity, what, _since(sample, "disk"), None, Act.HOSTS, sample.host)
        memory = 1 - sample.memory_available_bytes / sample.memory_bytes
        if memory >= MEMORY_FULL_FROM:
            what = say("The memory of %(host)s is %(percent)s %% used.", host=sample.host, percent=round(100 * memory))
            yield Trouble("host_memory", "warning", what, _since(sample, "memory"), None, Act.HOSTS, sample.host)
    known = {sample.host for sample in fresh}
    for last in HostSample.objects.order_by("host", "-sampled_at").distinct("host"):
        if last.host not in known and last.sampled_at < now - STALE_AFTER:
            what = say("Nothing is known of %(host)s: its samples ended.", host=last.host)
            yield Trouble("host_silent", "critical", what, last.sampled_at, None, Act.HOSTS, last.host)


def _since(newest: HostSample, what: str) -> datetime:
    """Since when a host's disk or memory has been full without a break, as far back as samples go."""
    since = newest.sampled_at
    for sample in HostSample.objects.filter(host=newest.host).order_by("-sampled_at").defer("daemons"):
        used = (
            1 - sample.disk_free_bytes / sample.disk_bytes
            if what == "disk"
            else 1 - sample.memory_available_bytes / sample.memory_bytes
        )
        if used < (DISK_FULL_FROM if what == "disk" else MEMORY_FULL_FROM):
            break
        since = sample.sampled_at
    return since


def _jobs() -> Iterator[Trouble]:
    for run in JobRun.objects.filter(state=JobRunState.FAILED, acknowledged_at=None).order_by("created_at")[:50]:
        what = say("The job %(job)s failed.", job=run.job)
        yield Trouble("job_failed", "warning", what, run.updated_at, None, Act.JOB, str(run.pk))
