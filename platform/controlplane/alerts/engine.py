"""The evaluation: reads the facts of all clusters, decides, and writes what changed."""

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from controlplane.alerts.deliveries import budget_notices_queue, notices_queue
from controlplane.alerts.evaluation import Act, Change, Key, OpenAlert, evaluate
from controlplane.alerts.facts import facts_now, groups_gone, topics_gone
from controlplane.alerts.kinds import KINDS, Rule
from controlplane.alerts.models import OPEN_STATES, Alert, AlertDelivery, AlertRule, AlertSilence, AlertState
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.common.logging import get_logger
from controlplane.common.sentences import bounded, to_stored

_log = get_logger("controlplane.alerts")

# PostgreSQL's advisory locks: one evaluation at a time, wherever the workers are.
_LOCK = 0x48_57_41_4C
KEPT_FOR = timedelta(days=90)
# Of one cluster, and of one channel.
ENDED_MAX = 10_000
DELIVERIES_MAX = 1000
# In one run; the next one goes on.
_EXPIRED_MAX = 20_000
_BATCH = 500
# The columns that an evaluation writes, with their types.
_WRITTEN = (
    ("id", "uuid"),
    ("state", "text"),
    ("value", "float8"),
    ("threshold", "float8"),
    ("detail", "text"),
    ("known_at", "timestamptz"),
    ("clear_since", "timestamptz"),
    ("fired_at", "timestamptz"),
    ("resolved_at", "timestamptz"),
    ("resolved_because", "text"),
    ("updated_at", "timestamptz"),
)


def alerts_evaluate(now: datetime | None = None) -> int | None:
    """Bring the open alerts in line with what is known; returns how many changed their state, None when another worker is at it."""
    at = now or timezone.now()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("select pg_try_advisory_xact_lock(%s)", [_LOCK])
            row = cursor.fetchone()
        if row is None or not row[0]:
            return None
        rows = {alert.pk: alert for alert in Alert.objects.filter(state__in=OPEN_STATES)}
        open_alerts = [_open(alert) for alert in rows.values()]
        rules = _rules()

        def rule_of(cluster_id: uuid.UUID, kind: str) -> Rule:
            return rules.get((cluster_id, kind)) or Rule.default(KINDS[kind])

        running = set(Cluster.objects.filter(state=ClusterState.RUNNING).values_list("pk", flat=True))
        changes = evaluate(
            facts_now(at, open_alerts),
            rule_of,
            open_alerts,
            at,
            running=running,
            gone=groups_gone(open_alerts),
            without_topic=topics_gone(at, open_alerts),
        )
        states = _write(changes, rows, at)
        notices_queue(at)
        budget_notices_queue(at)
        return states


def alerts_expire(now: datetime | None = None) -> int:
    """Delete alerts that ended, silences that were over and messages that were sent more than 90 days ago; returns how many.

    Of a cluster's ended alerts and a channel's messages the newest stay, up to a bound: a tenant can have some at every look.
    """
    before = (now or timezone.now()) - KEPT_FOR
    ended = Alert.objects.filter(state=AlertState.RESOLVED)
    alerts, _ = ended.filter(resolved_at__lt=before).delete()
    silences, _ = AlertSilence.objects.filter(until__lt=before).delete()
    deliveries, _ = AlertDelivery.objects.filter(created_at__lt=before).delete()
    alerts += _delete_beyond(ended, "cluster_id", ENDED_MAX)
    deliveries += _delete_beyond(AlertDelivery.objects.all(), "channel_id", DELIVERIES_MAX)
    return alerts + silences + deliveries


def _delete_beyond(rows: QuerySet[Any], each: str, most: int) -> int:
    """Delete all but the newest of each; returns how many."""
    place = Window(RowNumber(), partition_by=each, order_by=F("created_at").desc())
    old = rows.order_by().annotate(place=place).filter(place__gt=most).values_list("pk", flat=True)
    deleted: int = rows.model._default_manager.filter(pk__in=list(old[:_EXPIRED_MAX])).delete()[0]
    return deleted


def rule_from(row: AlertRule) -> Rule:
    """Return what a tenant set as a rule."""
    return Rule(KINDS[row.kind], row.is_on, row.threshold, row.duration_s, is_default=False)


def _rules() -> dict[tuple[uuid.UUID, str], Rule]:
    return {(row.cluster_id, row.kind): rule_from(row) for row in AlertRule.objects.filter(kind__in=KINDS)}


def _open(alert: Alert) -> OpenAlert:
    return OpenAlert(
        id=alert.pk,
        key=Key(alert.cluster_id, alert.kind, alert.subject),
        since=alert.since,
        known_at=alert.known_at,
        fired_at=alert.fired_at,
        clear_since=alert.clear_since,
    )


def _write(changes: list[Change], rows: dict[uuid.UUID, Alert], now: datetime) -> int:
    begun: list[Alert] = []
    updated: list[Alert] = []
    dropped: list[uuid.UUID] = []
    states = 0
    for change in changes:
        if change.alert is None:
            begun.append(_begun(change, now))
            continue
        alert = rows[change.alert.id]
        if change.act is Act.DROP:
            dropped.append(alert.pk)
            continue
        _apply(change, alert, now)
        updated.append(alert)
        if change.act in (Act.FIRE, Act.RESOLVE):
            states += 1
            _log.info(
                "alert", act=str(change.act), kind=alert.kind, subject=alert.subject, cluster=str(alert.cluster_id)
            )
    # First: one that begins again is the same subject's.
    Alert.objects.filter(pk__in=dropped).delete()
    Alert.objects.bulk_create(begun, batch_size=_BATCH)
    _update(updated)
    return states


def _update(alerts: list[Alert]) -> None:
    """Write what the evaluation writes, and no more: someone may acknowledge one at this moment.

    By arrays: Django's bulk_update takes 2 ms for each alert, every 15 s.
    """
    if not alerts:
        return
    columns = [[_stored(getattr(alert, name)) for alert in alerts] for name, _ in _WRITTEN]
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in _WRITTEN)
    names = [name for name, _ in _WRITTEN]
    changes = ", ".join(f"{name} = new.{name}" for name in names[1:])
    with connection.cursor() as cursor:
        cursor.execute(
            f"update {Alert._meta.db_table} alert set {changes} from unnest({arrays}) as new({', '.join(names)})"  # noqa: S608  # nosec B608  # made of constants
            " where alert.id = new.id",
            columns,
        )


def _stored(value: object) -> object:
    return to_stored(value) if isinstance(value, str) else value


def _begun(change: Change, now: datetime) -> Alert:
    assert change.value is not None
    assert change.threshold is not None
    return Alert(
        cluster_id=change.key.cluster_id,
        kind=change.key.kind,
        subject=change.key.subject,
        value=change.value,
        threshold=change.threshold,
        detail=bounded(change.detail, 1024),
        since=now,
        known_at=now,
    )


def _apply(change: Change, alert: Alert, now: datetime) -> None:
    alert.updated_at = now
    match change.act:
        case Act.SEEN | Act.FIRE:
            assert change.value is not None
            assert change.threshold is not None
            # Floats, as what is read: an array of both can't be written.
            alert.value, alert.threshold, alert.detail = (
                float(change.value),
                float(change.threshold),
                bounded(change.detail, 1024),
            )
            alert.known_at, alert.clear_since = now, None
            if change.act is Act.FIRE:
                alert.state, alert.fired_at = AlertState.FIRING.value, now
        case Act.CLEARING:
            alert.clear_since = alert.clear_since or now
        case Act.RESOLVE:
            alert.state, alert.resolved_at, alert.resolved_because = AlertState.RESOLVED.value, now, change.reason
