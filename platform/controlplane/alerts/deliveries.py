"""What is sent to channels: queued with the evaluation, tried by workers, kept as a log, sent again on request."""

import random
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from celery import current_app
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.alerts import outgoing
from controlplane.alerts.channels import allowed_networks, channel_lock, email_channels_ensure
from controlplane.alerts.kinds import Severity
from controlplane.alerts.messages import (
    answer_problem,
    budget_payload,
    mail_words,
    payload_of,
    request_of,
    storable,
    trial_payload,
)
from controlplane.alerts.models import (
    Alert,
    AlertChannel,
    AlertDelivery,
    AlertSilence,
    AlertState,
    ChannelKind,
    DeliveryState,
)
from controlplane.alerts.outgoing import TRY_S
from controlplane.alerts.silences import Silences
from controlplane.billing.models import BudgetAlert
from controlplane.clusters.secrets import SecretUnreadable, secret_decrypt
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import LimitReached, NotFound
from controlplane.common.logging import get_logger
from controlplane.common.mails import mail_each
from controlplane.common.models import AuditEvent
from controlplane.common.sentences import bounded, say
from controlplane.common.turns import turn
from controlplane.tenants.models import Membership, Role, Tenant
from controlplane.tenants.rules import actor_require

_log = get_logger("controlplane.alerts")

DELIVER_TASK = "alerts.deliver"
# After each try that failed; then it is given up.
PAUSES_S = (30, 120, 600, 3600)
# A turn begins no try after that; with its last try it is over before `common.turns` gives its place away.
_TURN_S = 20.0
TURN_MAX_S = TRY_S + 25
# A worker that died with a try: the next one may begin.
_LEASE_S = TURN_MAX_S + 10
# One that was reached earlier, before this was sent at all, is no news.
_BUDGET_NEWS = timedelta(hours=1)
_SPENT_PERCENT = 100
# By one tenant in a minute: tests and repetitions are requests to strangers that people can ask for.
ASKED_FOR_MAX = 10
_ASKED_FOR = ("alert_delivery.repeat", "alert_channel.test")


def notices_queue(now: datetime) -> int:
    """Queue a message to each channel of each tenant with alerts that began or ended; returns how many. Inside a transaction.

    An alert that is acknowledged before it is sent, or silenced, is not sent; one whose silence ends while it fires is sent
    then. Of what ended, only what had been sent is.
    """
    waiting = Alert.objects.filter(state=AlertState.FIRING, notified_at=None, acknowledged_at=None)
    ended = Alert.objects.filter(state=AlertState.RESOLVED, resolved_at=now).exclude(notified_at=None)
    fired: dict[uuid.UUID, list[Alert]] = defaultdict(list)
    resolved: dict[uuid.UUID, list[Alert]] = defaultdict(list)
    tenants: dict[uuid.UUID, Tenant] = {}
    for found, into in ((waiting, fired), (ended, resolved)):
        for alert in found.select_related("cluster__tenant").order_by("created_at"):
            tenants[alert.cluster.tenant_id] = alert.cluster.tenant
            into[alert.cluster.tenant_id].append(alert)
    if not tenants:
        return 0
    silences = Silences(AlertSilence.objects.filter(tenant__in=tenants, until__gt=now))
    email_channels_ensure(list(tenants))
    rows: list[AlertDelivery] = []
    sent: list[uuid.UUID] = []
    loud = {tenant: [one for one in alerts if not silences.fit(one)] for tenant, alerts in fired.items()}
    # Held until the end: a channel that is deleted meanwhile would undo the evaluation of all tenants.
    channels = AlertChannel.objects.select_for_update(no_key=True).filter(tenant__in=tenants, is_on=True)
    for channel in channels.order_by("pk"):
        tenant = tenants[channel.tenant_id]
        sent += [alert.pk for alert in loud.get(tenant.pk, ())]
        begins = [alert for alert in loud.get(tenant.pk, ()) if _wants(channel, alert)]
        ends = [alert for alert in resolved[tenant.pk] if _wants(channel, alert)]
        if begins or ends:
            payload = payload_of(tenant.slug, tenant.name, begins, ends, settings.HIGHWATER_PUBLIC_URL)
            rows.append(AlertDelivery(channel=channel, payload=payload, not_before=now))
    Alert.objects.filter(pk__in=sent).update(notified_at=now)
    return _queue(rows)


def _queue(rows: list[AlertDelivery]) -> int:
    AlertDelivery.objects.bulk_create(rows)
    for tenant_id in {row.channel.tenant_id for row in rows}:
        _enqueue(tenant_id)
    return len(rows)


def budget_notices_queue(now: datetime) -> int:
    """Queue a message for each budget's threshold that was just reached; returns how many. Inside a transaction.

    Not by e-mail: `billing.budgets` mails it, also to those who look after billing. A spent budget is critical.
    """
    reached = list(BudgetAlert.objects.filter(told_at=None, created_at__gt=now - _BUDGET_NEWS).select_related("tenant"))
    channels = AlertChannel.objects.filter(tenant__in={one.tenant_id for one in reached}, is_on=True)
    by_tenant: dict[uuid.UUID, list[AlertChannel]] = defaultdict(list)
    for channel in channels.exclude(kind=ChannelKind.EMAIL):
        by_tenant[channel.tenant_id].append(channel)
    rows = []
    for one in reached:
        payload = budget_payload(
            one.tenant.slug, one.tenant.name, one.sentence, one.threshold_percent, settings.HIGHWATER_PUBLIC_URL
        )
        for channel in by_tenant[one.tenant_id]:
            if one.threshold_percent >= _SPENT_PERCENT or not channel.critical_only:
                rows.append(AlertDelivery(channel=channel, payload=payload, not_before=now))
    BudgetAlert.objects.filter(pk__in=[one.pk for one in reached]).update(told_at=now)
    return _queue(rows)


def deliveries_resume(now: datetime | None = None) -> int:
    """Enqueue the tenants that have messages whose next try is due, in any order; returns how many tenants."""
    at = now or timezone.now()
    due = AlertDelivery.objects.filter(state=DeliveryState.QUEUED, not_before__lte=at)
    tenants = list(due.order_by().values_list("channel__tenant_id", flat=True).distinct())
    random.shuffle(tenants)
    for tenant_id in tenants:
        current_app.send_task(DELIVER_TASK, args=(str(tenant_id),), expires=15)
    return len(tenants)


def tenant_deliver(
    tenant_id: uuid.UUID, now: datetime | None = None, monotonic: Callable[[], float] = time.monotonic
) -> int:
    """Try the tenant's messages that are due, one after the other; returns how many.

    A tenant has one worker at most, however many receivers it has, and a slow one rests: see `common.turns`. A channel whose
    try failed has no second one in the turn, and e-mail comes first: a dead receiver does not keep the others waiting.
    """
    tried: set[uuid.UUID] = set()
    failed: set[uuid.UUID] = set()
    with turn("alerts", tenant_id, tenant_id) as mine:
        began = monotonic()
        while mine and monotonic() - began < _TURN_S:
            row = _next(tenant_id, now or timezone.now(), tried, failed)
            if row is None:
                break
            tried.add(row.pk)
            if delivery_try(row.pk, now) != DeliveryState.DELIVERED:
                failed.add(row.channel_id)
    return len(tried)


def _next(
    tenant_id: uuid.UUID, now: datetime, tried: Collection[uuid.UUID], failed: Collection[uuid.UUID]
) -> AlertDelivery | None:
    """Return what is tried next: e-mail, then channels that took what they got, each channel's oldest first."""
    waiting = AlertDelivery.objects.filter(channel=OuterRef("channel"), state=DeliveryState.QUEUED, attempts__gt=0)
    return (
        AlertDelivery.objects.filter(channel__tenant=tenant_id, state=DeliveryState.QUEUED, not_before__lte=now)
        .exclude(pk__in=tried)
        .exclude(channel__in=failed)
        .alias(is_mail=Q(channel__kind=ChannelKind.EMAIL), fails=Exists(waiting))
        .order_by("-is_mail", "fails", "not_before")
        .first()
    )


def delivery_try(delivery_id: uuid.UUID, now: datetime | None = None) -> str | None:
    """Try a message that is due; returns its state afterwards, None when another worker has it or it is not due."""
    at = now or timezone.now()
    row = AlertDelivery.objects.select_related("channel__tenant").filter(pk=delivery_id).first()
    if row is None or row.state != DeliveryState.QUEUED or row.not_before > at:
        return None
    won = AlertDelivery.objects.filter(
        pk=row.pk, state=DeliveryState.QUEUED, attempts=row.attempts, not_before=row.not_before
    ).update(attempts=row.attempts + 1, not_before=at + timedelta(seconds=_LEASE_S), updated_at=at)
    if won != 1:
        return None
    status: int | None = None
    problem: str
    try:
        if row.attempts > len(PAUSES_S):  # the last try has been begun, and no one noted how it went
            problem = say("Each try was cut off.")
        else:
            status, problem = _send(row, at)
    except SoftTimeLimitExceeded:
        problem = say("It did not answer within %(seconds)s s.", seconds=TRY_S)
    except Exception:
        # Noted as a try, so that a message that can't be sent is given up like others, and not tried for ever.
        _log.exception("an alert is not delivered", delivery=str(row.pk), kind=row.channel.kind)
        problem = say("The platform failed to send it. Its operator finds the reason in the log.")
    return _note(row, row.attempts + 1, status, problem, at)


def delivery_list(tenant: Tenant) -> QuerySet[AlertDelivery]:
    """Return what was sent, newest first."""
    return (
        AlertDelivery.objects.filter(channel__tenant=tenant)
        .select_related("channel__tenant")
        .order_by("-created_at", "-id")
    )


def delivery_get(tenant: Tenant, delivery_id: uuid.UUID) -> AlertDelivery:
    """Return one of them; raises NotFound."""
    row = delivery_list(tenant).filter(pk=delivery_id).first()
    if row is None:
        raise NotFound(say("There is no such delivery."))
    return row


def delivery_again(*, actor: Actor, delivery: AlertDelivery) -> AlertDelivery:
    """Send the same again, as a new delivery. Raises LimitReached, NotFound for a channel that was deleted meanwhile."""
    tenant = delivery.channel.tenant
    actor_require(actor, "alert.manage", tenant)
    return _asked_for(actor, "alert_delivery.repeat", delivery.channel, delivery.payload, delivery)


def channel_test(*, actor: Actor, channel: AlertChannel) -> AlertDelivery:
    """Send a message that only shows that messages arrive. Raises what `delivery_again` does."""
    actor_require(actor, "alert.manage", channel.tenant)
    payload = trial_payload(channel.tenant.slug, channel.tenant.name, settings.HIGHWATER_PUBLIC_URL)
    return _asked_for(actor, "alert_channel.test", channel, payload, None)


def _asked_for(
    actor: Actor, action: str, channel: AlertChannel, payload: dict[str, Any], again_of: AlertDelivery | None
) -> AlertDelivery:
    with transaction.atomic():
        # Of two requests, one is the last that fits.
        Tenant.objects.select_for_update(no_key=True).get(pk=channel.tenant_id)
        channel_lock(channel)
        now = timezone.now()
        # Counted in the audit trail: what a deleted channel was sent is in the log no more.
        recent = AuditEvent.objects.filter(
            tenant_id=channel.tenant_id, action__in=_ASKED_FOR, created_at__gt=now - timedelta(minutes=1)
        )
        if recent.count() >= ASKED_FOR_MAX:
            raise LimitReached(
                say("%(asked_for_max)s messages were asked for within a minute.", asked_for_max=ASKED_FOR_MAX),
                code="over_limit",
                hint=say("Wait a minute."),
            )
        row = AlertDelivery.objects.create(channel=channel, payload=payload, not_before=now, is_again_of=again_of)
        audit_event_record(
            actor=actor,
            action=action,
            resource=f"{channel.tenant.path}alert-deliveries/{row.pk}/",
            tenant_id=channel.tenant_id,
            details={"channel": channel.name},
        )
        _enqueue(channel.tenant_id)
    return row


def _wants(channel: AlertChannel, alert: Alert) -> bool:
    return not channel.critical_only or alert.severity is Severity.CRITICAL


def _send(row: AlertDelivery, now: datetime) -> tuple[int | None, str]:
    """Return the HTTP status, where there is one, and why it was not taken; empty when it was."""
    channel = row.channel
    if channel.kind == ChannelKind.EMAIL:
        return None, _mail(channel.tenant, row.pk, row.payload)
    try:
        address = secret_decrypt(channel.address_encrypted)
        secret = secret_decrypt(channel.secret_encrypted) if channel.secret_encrypted else ""
        request = request_of(channel.kind, address, secret, row.payload, str(row.pk), now)
        answer = outgoing.post(request.url, request.headers, request.body, allowed_networks())
    except outgoing.OutgoingError as error:
        return None, error.reason
    except SecretUnreadable as error:
        return None, error.message
    return answer.status, answer_problem(channel.kind, answer.status, answer.body)


def _mail(tenant: Tenant, delivery_id: uuid.UUID, payload: dict[str, Any]) -> str:
    receivers = dict(
        Membership.objects.filter(
            tenant=tenant, role__in=(Role.OWNER, Role.ADMIN, Role.OPERATOR), user__is_active=True
        ).values_list("user__email", "user__language")
    )
    if not receivers:
        return say("The tenant has no owner, admin or operator.")
    try:
        mail_each(f"alert {delivery_id}", receivers, lambda: mail_words(payload))
    except OSError as error:
        return say("The mail server did not take it: %(error)s", error=storable(str(error)))
    return ""


def _note(row: AlertDelivery, attempts: int, status: int | None, problem: str, now: datetime) -> str:
    if not problem:
        state, next_at = DeliveryState.DELIVERED, now
    elif attempts > len(PAUSES_S):
        state, next_at = DeliveryState.FAILED, now
    else:
        state, next_at = DeliveryState.QUEUED, now + timedelta(seconds=PAUSES_S[attempts - 1])
    AlertDelivery.objects.filter(pk=row.pk, attempts=attempts).update(
        state=state,
        not_before=next_at,
        http_status=status,
        error=bounded(problem, 500),
        delivered_at=now if state == DeliveryState.DELIVERED else None,
        updated_at=now,
    )
    return str(state)


def _enqueue(tenant_id: uuid.UUID) -> None:
    # A queue that is away: beat finds it.
    transaction.on_commit(lambda: current_app.send_task(DELIVER_TASK, args=(str(tenant_id),), expires=15), robust=True)
