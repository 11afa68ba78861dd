"""Budgets and their alerts: a row, a mail and a banner, each once in a month for one amount."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils import timezone
from django.utils.translation import gettext

from controlplane.accounts.actors import Actor
from controlplane.billing.models import Budget, BudgetAlert, Usage
from controlplane.billing.money import CURRENCIES, ZERO, percent_of, thresholds_reached, to_cents
from controlplane.billing.periods import Month
from controlplane.billing.selectors import tenant_counted
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import InvalidInput
from controlplane.common.mails import mail_each
from controlplane.common.sentences import in_words, say
from controlplane.tenants.models import Membership, Role, Tenant
from controlplane.tenants.rules import actor_require

MAIL_TASK = "billing.budget_alert_mail"
_AMOUNT_MAX = Decimal(1_000_000_000)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """A budget against what the current month cost so far. `spent` and `percent` are None when that was not counted.

    `not_counted` are the other currencies in which something was spent this month: the budget says nothing of that.
    """

    budget: Budget
    month: Month
    spent: Decimal | None
    percent: int | None
    alerts: list[BudgetAlert]
    counted_until: datetime | None
    not_counted: list[str]

    @property
    def highest(self) -> BudgetAlert | None:
        """The highest alert of the month, which the banner shows."""
        return max(self.alerts, key=lambda alert: alert.threshold_percent, default=None)


def budget_get(tenant: Tenant) -> Budget | None:
    """Return the tenant's budget; None when it has none."""
    return Budget.objects.filter(tenant=tenant).first()


def budget_status(tenant: Tenant, now: datetime | None = None) -> BudgetStatus | None:
    """Return how much of the budget is spent; None without a budget."""
    budget = budget_get(tenant)
    if budget is None:
        return None
    month = Month.of(now or timezone.now())
    known = tenant_counted(tenant)
    is_known = known.until is not None and known.until > month.start
    # What one cluster spent is known, and notified, though another one can't be read.
    spent = month_spent(tenant, month, budget.currency) or (ZERO if is_known else None)
    return BudgetStatus(
        budget=budget,
        month=month,
        spent=spent,
        percent=None if spent is None else percent_of(spent, budget.amount),
        alerts=list(_alerts(budget, month)),
        counted_until=known.until,
        not_counted=_other_currencies(budget, month),
    )


def _other_currencies(budget: Budget, month: Month) -> list[str]:
    rows = Usage.objects.filter(
        tenant=budget.tenant_id, hour__gte=month.start, hour__lt=month.end, price__isnull=False, amount__gt=0
    )
    found = rows.exclude(price__currency=budget.currency).values_list("price__currency", flat=True)
    return sorted(found.order_by().distinct())


def month_spent(tenant: Tenant, month: Month, currency: str) -> Decimal:
    """Return what the month's counted usage costs in the currency."""
    rows = Usage.objects.filter(
        tenant=tenant, hour__gte=month.start, hour__lt=month.end, price__currency=currency
    ).aggregate(amount=Sum("amount"))
    return rows["amount"] or ZERO


def budget_set(*, actor: Actor, tenant: Tenant, amount: Decimal, currency: str) -> Budget:
    """Set the budget of each month. Raises NotAllowed, InvalidInput."""
    actor_require(actor, "budget.manage", tenant)
    if currency not in CURRENCIES:
        raise InvalidInput.for_field(
            "currency", say("Use one of %(names)s.", names=", ".join(CURRENCIES)), "unknown_currency"
        )
    if not amount.is_finite() or not 0 < amount <= _AMOUNT_MAX or amount != to_cents(amount):
        raise InvalidInput.for_field(
            "amount", say("Use an amount above 0, with at most two decimals."), "invalid_amount"
        )
    with transaction.atomic():
        before = Budget.objects.select_for_update().filter(tenant=tenant).first()
        budget, _ = Budget.objects.update_or_create(tenant=tenant, defaults={"amount": amount, "currency": currency})
        after = _details(budget)
        _record(actor, "budget.set", tenant, {**after, "changes": changes_between(_details(before), after)})
    return budget


def budget_remove(*, actor: Actor, tenant: Tenant) -> None:
    """Remove the budget; alerts that were given stay. Twice is harmless."""
    actor_require(actor, "budget.manage", tenant)
    with transaction.atomic():
        before = Budget.objects.select_for_update().filter(tenant=tenant).first()
        if before is not None:
            before.delete()
            _record(actor, "budget.remove", tenant, _details(before))


def budgets_check(now: datetime | None = None) -> int:
    """Look at every budget, and alert where a threshold was reached; returns how many alerts are new."""
    made = 0
    for budget in Budget.objects.select_related("tenant").iterator():
        made += len(budget_check(budget.tenant, now))
    for alert in BudgetAlert.objects.filter(mailed_at=None):
        _enqueue(alert)
    return made


def budget_check(tenant: Tenant, now: datetime | None = None) -> list[BudgetAlert]:
    """Return the alerts that are new: of the present month and amount, each threshold once, whatever happens at the same time."""
    status = budget_status(tenant, now)
    if status is None or status.spent is None:
        return []
    new = []
    for percent in thresholds_reached(status.spent, status.budget.amount):
        alert, created = BudgetAlert.objects.get_or_create(
            tenant=tenant,
            month=status.month.first_day,
            threshold_percent=percent,
            budget=status.budget.amount,
            currency=status.budget.currency,
            defaults={"spent": status.spent},
        )
        if created:
            new.append(alert)
    for alert in new:
        _enqueue(alert)
    return new


def budget_alert_now(tenant: Tenant) -> BudgetAlert | None:
    """Return the highest alert of the present month and budget, which the banner shows."""
    budget = budget_get(tenant)
    return None if budget is None else _alerts(budget, Month.of(timezone.now())).first()


def _alerts(budget: Budget, month: Month) -> QuerySet[BudgetAlert]:
    """Return those of the budget as it is now, the highest threshold first."""
    found = BudgetAlert.objects.filter(
        tenant=budget.tenant_id, month=month.first_day, budget=budget.amount, currency=budget.currency
    )
    return found.order_by("-threshold_percent")


def budget_alert_mail(alert_id: uuid.UUID) -> bool:
    """Mail one alert to the tenant's owners, admins, operators and who looks after billing, once; returns whether this call did."""
    now = timezone.now()
    if BudgetAlert.objects.filter(pk=alert_id, mailed_at=None).update(mailed_at=now) != 1:
        return False
    alert = BudgetAlert.objects.select_related("tenant").get(pk=alert_id)
    addresses = dict(
        Membership.objects.filter(
            tenant=alert.tenant, role__in=(Role.OWNER, Role.ADMIN, Role.OPERATOR, Role.BILLING), user__is_active=True
        ).values_list("user__email", "user__language")
    )
    if not addresses:
        return False
    try:
        mail_each(f"budget {alert.pk}", addresses, lambda: (alert_title(alert), _mail_text(alert)))
    except OSError:  # no mail server now: the next check tries again
        BudgetAlert.objects.filter(pk=alert_id).update(mailed_at=None)
        raise
    return True


def alert_title(alert: BudgetAlert) -> str:
    """Return the alert in a line, in the present language."""
    values = {"name": alert.tenant.name, "percent": alert.threshold_percent}
    return f"[Highwater] {gettext('%(name)s has reached %(percent)s %% of its budget') % values}"


def _mail_text(alert: BudgetAlert) -> str:
    url = f"{settings.HIGHWATER_PUBLIC_URL}/t/{alert.tenant.slug}/usage/"
    paragraphs = (
        in_words(alert.sentence),
        gettext("See what it was spent on: %(url)s") % {"url": url},
        gettext("A budget only notifies: nothing is stopped when it is reached."),
    )
    return "\n\n".join(paragraphs) + "\n"


def _enqueue(alert: BudgetAlert) -> None:
    transaction.on_commit(lambda: current_app.send_task(MAIL_TASK, args=(str(alert.pk),), expires=60), robust=True)


def _details(budget: Budget | None) -> dict[str, str]:
    return {} if budget is None else {"amount": format(budget.amount, ".2f"), "currency": budget.currency}


def _record(actor: Actor, action: str, tenant: Tenant, details: Mapping[str, object]) -> None:
    audit_event_record(actor=actor, action=action, resource=tenant.path, tenant_id=tenant.pk, details=dict(details))
