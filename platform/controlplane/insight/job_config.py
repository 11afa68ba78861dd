"""A job's configuration: where the lake, the database and the clusters are, and which range it is about."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Exists, F, OuterRef, Prefetch, Q
from django.utils import timezone

from controlplane.clusters.configuration import retention_hours
from controlplane.clusters.models import (
    BrokerGroup,
    Cluster,
    ClusterState,
    Credential,
    OperationState,
    OperationStep,
    StepState,
)
from controlplane.clusters.secrets import SecretUnreadable, secret_decrypt
from controlplane.common.logging import get_logger
from controlplane.insight.models import Job, JobRun
from controlplane.topics.models import Topic

_log = get_logger("controlplane.insight")

# A deleted cluster's last hours are still billed, and counted again on request.
_DELETED_FOR_MAX = timedelta(days=400)
_STOPPING = (ClusterState.SUSPENDING, ClusterState.DELETING)
_WITH_BROKERS = (ClusterState.RUNNING, ClusterState.RESUMING, *_STOPPING)


def config_of(run: JobRun) -> dict[str, Any]:
    """Return the configuration file's content. It holds secrets: write it where only the job can read it."""
    asked = None
    if run.is_backfill and run.range_from is not None and run.range_to is not None:
        asked = {"from": run.range_from.isoformat(), "to": run.range_to.isoformat()}
    database = connection.settings_dict
    return {
        "run_id": str(run.pk),
        "job": run.job,
        "master": settings.HIGHWATER_SPARK_MASTER,
        "lake": settings.HIGHWATER_LAKE,
        "checkpoints": settings.HIGHWATER_CHECKPOINTS,
        "database": {
            "host": database["HOST"] or "127.0.0.1",
            "port": int(database["PORT"] or 5432),
            "name": database["NAME"],
            "user": database["USER"],
            "password": database["PASSWORD"],
        },
        "range": asked,
        "late_window_hours": settings.HIGHWATER_LATE_WINDOW_HOURS,
        "spark": spark_conf(),
        "retention": {
            "lake_days": settings.HIGHWATER_LAKE_DAYS,
            "quarantine_days": settings.HIGHWATER_QUARANTINE_DAYS,
            "snapshot_hours": settings.HIGHWATER_LAKE_SNAPSHOT_HOURS,
            "orphan_hours": settings.HIGHWATER_LAKE_ORPHAN_HOURS,
        },
        "namespace": settings.HIGHWATER_LAKE_NAMESPACE,
        "clusters": [_cluster(cluster) for cluster in _clusters(run.job)],
    }


def spark_conf() -> dict[str, str | int | float | bool]:
    """Return Spark's settings: HIGHWATER_SPARK_CONF as JSON, or the JSON file that it names.

    Raises ValueError that says what is wrong.
    """
    given = settings.HIGHWATER_SPARK_CONF
    if isinstance(given, dict):
        return dict(given)
    text = given.strip()
    if not text:
        return {}
    if not text.startswith("{"):
        try:
            text = Path(text).read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ValueError(f"is neither a JSON object nor a file that can be read ({error})") from error
    try:
        values = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON ({error})") from error
    if not isinstance(values, dict):
        raise ValueError("is no JSON object")
    for name, value in values.items():
        if not name.startswith("spark.") or not isinstance(value, str | int | float | bool):
            raise ValueError(f"has the member {name!r}: names begin with spark., values are texts, numbers or booleans")
    return values


def spark_conf_problem() -> str:
    """Return why no job can run with HIGHWATER_SPARK_CONF, in a sentence; empty when one can."""
    try:
        spark_conf()
    except ValueError as error:
        return f'HIGHWATER_SPARK_CONF {error}. Write it as {{"spark.driver.memory": "1g"}}, or as the path of a file with that.'
    return ""


def _clusters(job: str) -> list[Cluster]:
    shorter = Prefetch("topics", Topic.objects.filter(retention_hours__isnull=False))
    clusters = Cluster.objects.prefetch_related("name_servers", "broker_groups__replicas", shorter).order_by(
        "created_at", "pk"
    )
    if job == Job.INGEST:
        # One that is being stopped is read to its last record, while its brokers are still there: until they have closed they
        # serve clients, however long that takes. And until its operation has seen that it was read: a run that began before they
        # had closed, and took longer, may have read past their end, and does not count.
        asking = OperationStep.objects.filter(
            operation__cluster=OuterRef("pk"), operation__state=OperationState.IN_PROGRESS, name="confirm_ingested"
        )
        leaving = Q(state__in=_STOPPING) & (
            Exists(asking.exclude(state=StepState.COMPLETED))
            | Q(progress__sealed_at=None)
            | Q(progress__ingested_until=None)
            | Q(progress__ingested_until__lt=F("progress__sealed_at"))
        )
        coming = Q(state=ClusterState.RESUMING, progress__sealed_at=None)
        return list(clusters.filter(Q(state=ClusterState.RUNNING) | leaving | coming))
    since = timezone.now() - _DELETED_FOR_MAX
    return list(clusters.exclude(state=ClusterState.DELETED, deleted_at__lt=since))


def _cluster(cluster: Cluster) -> dict[str, Any]:
    keys = _keys(cluster) if cluster.state in _WITH_BROKERS else None
    access_key, secret_key = keys or ("", "")
    return {
        "cluster_id": str(cluster.pk),
        "tenant_id": str(cluster.tenant_id),
        "cluster_name": cluster.slug,
        # Empty for a cluster that can't be asked: there is only what the lake has of it.
        "namesrv_addr": cluster.namesrv_addr if keys else "",
        "access_key": access_key,
        "secret_key": secret_key,
        "tls_ca": cluster.tls_ca,
        "retention_hours": retention_hours(cluster),
        "topic_retention_hours": {
            topic.name: topic.retention_hours for topic in cluster.topics.all() if topic.retention_hours is not None
        },
        # One that no broker has a port of has never run: the growth that adds it waits, or has failed. Nothing of it is to be read.
        "brokers": [group.name for group in cluster.broker_groups.all() if _is_placed(group)],
    }


def _is_placed(group: BrokerGroup) -> bool:
    return any(replica.port is not None for replica in group.replicas.all())


def _keys(cluster: Cluster) -> tuple[str, str] | None:
    """The control plane's own key pair; None when it can't be read. One cluster's trouble must not stop the others' job."""
    control = Credential.objects.filter(cluster=cluster, is_control=True).first()
    if control is None:
        return None
    try:
        return control.access_key, secret_decrypt(control.secret_encrypted)
    except SecretUnreadable:
        _log.error("a cluster is left out of the jobs: its control key can't be read", cluster=str(cluster.pk))
        return None
