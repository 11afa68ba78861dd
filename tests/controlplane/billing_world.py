"""Rows of billing and lag, as operators make them and as Spark's jobs write them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from controlplane.billing.models import Plan, Price, Subscription, Usage
from controlplane.billing.periods import hour_of
from controlplane.clusters.models import Cluster
from controlplane.insight.models import ClusterProgress, Job, JobRun, JobRunState, LagWindow
from controlplane.tenants.models import Tenant

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def make_plan(slug: str = "standard", currency: str = "EUR", **rates: str) -> Plan:
    """A plan with one price since long ago: 40 for a million units sent, 20 delivered, 0.10 for a GiB-month."""
    plan = Plan.objects.create(slug=slug, name=slug.capitalize(), currency=currency)
    values = {"per_million_units": "40", "per_million_units_out": "20", "per_gib_month_stored": "0.1", **rates}
    Price.objects.create(plan=plan, valid_from=LONG_AGO, currency=currency, **values)
    return plan


def subscribe(tenant: Tenant, plan: Plan, valid_from: datetime = LONG_AGO) -> Subscription:
    return Subscription.objects.create(tenant=tenant, plan=plan, valid_from=valid_from)


def make_run(
    state: JobRunState = JobRunState.COMPLETED,
    job: Job = Job.USAGE_BILLING,
    until: datetime | None = None,
    since: datetime = LONG_AGO,
    **values: Any,
) -> JobRun:
    """A run that has ended; one that completed has counted [since, until), of which all was ingested and checked."""
    until = until or datetime.now(UTC)
    is_done = state == JobRunState.COMPLETED
    if is_done and job == Job.USAGE_BILLING:
        for cluster in Cluster.objects.all():
            make_progress(cluster, until)
    return JobRun.objects.create(
        job=job,
        state=state,
        **{
            "requested_by": "schedule",
            "range_from": since if is_done else None,
            "range_to": until if is_done else None,
            "started_at": until,
            "finished_at": until + timedelta(seconds=5),
            "rows_in": 1200 if is_done else None,
            "rows_out": 34 if is_done else None,
            "rows_quarantined": 0 if is_done else None,
            "error": "" if is_done else "The lake can't be read: no such directory.",
            **values,
        },
    )


def make_progress(cluster: Cluster, until: datetime | None, **values: Any) -> ClusterProgress:
    """The cluster's metering is ingested and checked so far, without a finding."""
    values = {"ingested_until": until, "checked_until": until, "check_error": "", "ingest_error": "", **values}
    return ClusterProgress.objects.update_or_create(cluster=cluster, defaults=values)[0]


def use(
    cluster: Cluster,
    hour: datetime,
    amount: str = "0",
    *,
    direction: str = "in",
    topic: str = "payments",
    group: str = "",
    credential: str = "",
    kind: str = "",
    messages: int = 1000,
    size: int = 4_096_000,
    price: Price | None = None,
) -> Usage:
    """One row as the job writes it. Without a price it costs nothing."""
    stored = direction == "storage"
    units = 0 if stored else messages
    return Usage.objects.create(
        tenant_id=cluster.tenant_id,
        cluster=cluster,
        hour=hour_of(hour),
        direction=direction,
        topic=topic,
        consumer_group=group,
        credential=credential,
        kind=kind or ("normal" if direction == "in" else ""),
        messages=0 if stored else messages,
        bytes=size,
        units=units,
        billed_units=units,
        price=price,
        amount=Decimal(amount),
        run_id=uuid.uuid4(),
    )


def lag_window(cluster: Cluster, start: datetime, **values: Any) -> LagWindow:
    """A window of five minutes in which nothing waited, but for what `values` say."""
    lag = values.pop("lag", 0)
    lag_ms = values.pop("lag_ms", 0)
    return LagWindow.objects.create(
        **{
            "cluster": cluster,
            "consumer_group": "billing",
            "topic": "payments",
            "queue_id": -1,
            "window_start": start,
            "window_seconds": 300,
            "samples": 5,
            **{f"lag_messages_{name}": lag for name in ("p50", "p95", "p99", "max", "last")},
            **{f"lag_ms_{name}": lag_ms for name in ("p50", "p95", "p99", "max", "last")},
            "trend_per_second": 0.0,
            "drain_state": "drained" if lag == 0 else "unknown",
            "stuck": False,
            "run_id": uuid.uuid4(),
            **values,
        }
    )
