"""Reads. Each starts from a tenant or a cluster."""

import uuid
from collections.abc import Iterable

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.alerts.engine import rule_from
from controlplane.alerts.kinds import KINDS, Rule
from controlplane.alerts.models import Alert, AlertRule, AlertSilence, AlertState
from controlplane.alerts.silences import Silences
from controlplane.clusters.models import Cluster
from controlplane.common.errors import NotFound
from controlplane.common.sentences import say
from controlplane.tenants.models import Tenant


def alert_list(tenant: Tenant, *, state: str = "", cluster: str = "") -> QuerySet[Alert]:
    """Return the tenant's alerts that were sent or would have been, newest first; of one state or one cluster."""
    found = (
        Alert.objects.filter(cluster__tenant=tenant)
        .exclude(state=AlertState.PENDING)
        .select_related("cluster__tenant")
        .order_by("-created_at", "-id")
    )
    if state:
        found = found.filter(state=state)
    return found.filter(cluster__slug=cluster) if cluster else found


def alert_get(tenant: Tenant, alert_id: uuid.UUID) -> Alert:
    """Return one alert; raises NotFound."""
    alert = alert_list(tenant).filter(pk=alert_id).first()
    if alert is None:
        raise NotFound(say("There is no such alert."))
    return alert


def firing_count(tenant: Tenant) -> int:
    """Return how many alerts fire that no one has acknowledged and that are not silenced."""
    firing = Alert.objects.filter(cluster__tenant=tenant, state=AlertState.FIRING, acknowledged_at=None)
    silences = Silences(silence_list(tenant))
    if not silences:
        return firing.count()
    return sum(not silences.fit(alert) for alert in firing.select_related("cluster"))


def firing_in(cluster: Cluster) -> int:
    """Return how many alerts fire in the cluster that no one has acknowledged, silenced ones too."""
    return Alert.objects.filter(cluster=cluster, state=AlertState.FIRING, acknowledged_at=None).count()


def rules_of(cluster: Cluster) -> list[Rule]:
    """Return what holds for each kind, in the table's order."""
    rows = {row.kind: rule_from(row) for row in AlertRule.objects.filter(cluster=cluster, kind__in=KINDS)}
    return [rows.get(name) or Rule.default(kind) for name, kind in KINDS.items()]


def rule_get(cluster: Cluster, kind: str) -> Rule:
    """Return what holds for a kind; raises NotFound for one that isn't in the table."""
    if kind not in KINDS:
        raise NotFound(say("There is no such kind of alert."), hint=f"One of: {', '.join(KINDS)}.")
    return next(rule for rule in rules_of(cluster) if rule.kind.name == kind)


def silence_list(tenant: Tenant) -> QuerySet[AlertSilence]:
    """Return the silences that are not over."""
    return AlertSilence.objects.filter(tenant=tenant, until__gt=timezone.now()).select_related("cluster", "tenant")


def silence_get(tenant: Tenant, silence_id: uuid.UUID) -> AlertSilence:
    """Return a silence that is not over; raises NotFound."""
    silence = silence_list(tenant).filter(pk=silence_id).first()
    if silence is None:
        raise NotFound(say("There is no such silence, or it is over."))
    return silence


def silenced(tenant: Tenant, alerts: Iterable[Alert]) -> set[uuid.UUID]:
    """Return which of these alerts are sent to no one now."""
    silences = Silences(silence_list(tenant))
    return {alert.pk for alert in alerts if silences.fit(alert)}
