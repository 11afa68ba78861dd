"""Writes that people ask for: rules, silences, who has seen an alert."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.alerts.kinds import DURATION_MAX_S, KINDS, Rule, threshold_problem
from controlplane.alerts.models import Alert, AlertRule, AlertSilence, AlertState
from controlplane.alerts.selectors import rule_get, silence_list
from controlplane.clusters.models import Cluster
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require

SILENCE_MAX = timedelta(days=30)
SILENCES_MAX = 100


def rule_set(
    *,
    actor: Actor,
    cluster: Cluster,
    kind: str,
    is_on: bool | None = None,
    threshold: float | None = None,
    duration_s: int | None = None,
) -> Rule:
    """Change a kind's rule in a cluster; what is None stays. Raises NotFound, InvalidInput."""
    actor_require(actor, "alert.manage", cluster.tenant)
    before = rule_get(cluster, kind)
    after = {
        "is_on": before.is_on if is_on is None else is_on,
        "threshold": before.threshold if threshold is None else threshold,
        "duration_s": before.duration_s if duration_s is None else duration_s,
    }
    if problem := threshold_problem(before.kind, float(after["threshold"])):
        raise InvalidInput.for_field("threshold", problem, "out_of_range")
    if not 0 <= int(after["duration_s"]) <= DURATION_MAX_S:
        raise InvalidInput.for_field(
            "duration_s",
            say("Use a number from 0 to %(duration_max_s)s.", duration_max_s=DURATION_MAX_S),
            "out_of_range",
        )
    with transaction.atomic():
        AlertRule.objects.update_or_create(cluster=cluster, kind=kind, defaults=after)
        changes = changes_between({name: getattr(before, name) for name in after}, after)
        details = {**after, "changes": changes}
        _record(actor, "alert_rule.set", f"{cluster.path}alert-rules/{kind}/", cluster.tenant, details)
    return rule_get(cluster, kind)


def rule_reset(*, actor: Actor, cluster: Cluster, kind: str) -> Rule:
    """Go back to the defaults; twice is harmless. Raises NotFound."""
    actor_require(actor, "alert.manage", cluster.tenant)
    rule_get(cluster, kind)
    with transaction.atomic():
        if AlertRule.objects.filter(cluster=cluster, kind=kind).delete()[0]:
            _record(actor, "alert_rule.reset", f"{cluster.path}alert-rules/{kind}/", cluster.tenant, {})
    return rule_get(cluster, kind)


def alert_acknowledge(*, actor: Actor, alert: Alert, note: str = "") -> Alert:
    """Say that someone has seen it; of two the first stands. Raises Conflict for one that has ended."""
    tenant = alert.cluster.tenant
    actor_require(actor, "alert.manage", tenant)
    with transaction.atomic():
        won = Alert.objects.filter(pk=alert.pk, state=AlertState.FIRING, acknowledged_at=None).update(
            acknowledged_at=timezone.now(), acknowledged_by=str(actor)[:254], note=note[:500], updated_at=timezone.now()
        )
        if won:
            _record(actor, "alert.acknowledge", alert.path, tenant, {"alert": str(alert), "note": note})
    alert.refresh_from_db()
    if not won and alert.acknowledged_at is None:
        raise Conflict(
            say("The alert has ended."), code="alert_ended", hint=say("There is nothing left to acknowledge.")
        )
    return alert


def silence_create(
    *,
    actor: Actor,
    tenant: Tenant,
    until: datetime,
    reason: str,
    cluster: Cluster | None = None,
    kind: str = "",
    subject: str = "",
) -> AlertSilence:
    """Notify no one of what fits until then. Raises InvalidInput, Conflict for too many."""
    actor_require(actor, "alert.manage", tenant)
    reason = name_check("reason", reason)
    now = timezone.now()
    if not now < until <= now + SILENCE_MAX:
        raise InvalidInput.for_field(
            "until", say("Use a time in the future, at most %(days)s days away.", days=SILENCE_MAX.days), "out_of_range"
        )
    if kind and kind not in KINDS:
        raise InvalidInput.for_field("kind", f"Use one of {', '.join(KINDS)}, or leave it out.", "unknown_kind")
    if subject and (cluster is None or not kind):
        raise InvalidInput.for_field("subject", say("Name the cluster and the kind, too."), "incomplete")
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)  # of two requests, one is the last that fits
        if silence_list(tenant).count() >= SILENCES_MAX:
            raise Conflict(
                say("There are %(silences_max)s silences.", silences_max=SILENCES_MAX),
                code="too_many",
                hint=say("End one that is not needed."),
            )
        silence = AlertSilence.objects.create(
            tenant=tenant,
            cluster=cluster,
            kind=kind,
            subject=subject,
            until=until,
            reason=reason,
            created_by=str(actor)[:254],
        )
        details = {
            "cluster": "" if cluster is None else cluster.slug,
            "kind": kind,
            "subject": subject,
            "until": until.isoformat(),
            "reason": reason,
        }
        _record(actor, "alert_silence.create", f"{tenant.path}alert-silences/{silence.pk}/", tenant, details)
    return silence


def silence_end(*, actor: Actor, silence: AlertSilence) -> None:
    """End it now; twice is harmless."""
    actor_require(actor, "alert.manage", silence.tenant)
    now = timezone.now()
    with transaction.atomic():
        if AlertSilence.objects.filter(pk=silence.pk, until__gt=now).update(until=now, updated_at=now):
            path = f"{silence.tenant.path}alert-silences/{silence.pk}/"
            _record(actor, "alert_silence.end", path, silence.tenant, {"kind": silence.kind})


def _record(actor: Actor, action: str, resource: str, tenant: Tenant, details: Mapping[str, object]) -> None:
    audit_event_record(actor=actor, action=action, resource=resource, tenant_id=tenant.pk, details=dict(details))
