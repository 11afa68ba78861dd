"""Writes: plans, versions of their prices, subscriptions. By the platform's operators only.

The database holds the rules by triggers, too (migration 0002); here they get their words.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor, SystemActor
from controlplane.accounts.operators import operator_require
from controlplane.billing.models import Plan, Price, Subscription, Usage
from controlplane.billing.money import CURRENCIES
from controlplane.billing.periods import hour_of, is_whole_hour
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import Conflict, InvalidInput
from controlplane.common.sentences import say
from controlplane.tenants.models import Tenant
from controlplane.tenants.services import slug_check

KINDS = ("normal", "ordered", "delayed", "transactional")
_RATE_MAX = Decimal(99_999_999)  # Spark prices usage in 18 digits, ten of them decimals
_MULTIPLIER_MAX = Decimal(1000)


@dataclass(frozen=True, slots=True)
class Rates:
    """What a version charges, in the plan's currency. `multipliers`: kind of message -> how often its units count."""

    per_million_units: Decimal
    per_million_units_out: Decimal
    per_gib_month_stored: Decimal
    multipliers: dict[str, Decimal]

    def check(self) -> None:
        """Raise InvalidInput for a rate that is negative, too high, or finer than ten decimals, and for an unknown kind."""
        for field in ("per_million_units", "per_million_units_out", "per_gib_month_stored"):
            _decimal_check(field, getattr(self, field), _RATE_MAX, places=10)
        unknown = sorted(set(self.multipliers) - set(KINDS))
        if unknown:
            raise InvalidInput.for_field(
                "multipliers",
                say("Use the kinds %(names)s; not %(unknown)s.", names=", ".join(KINDS), unknown=unknown[0]),
                "unknown_kind",
            )
        for kind, value in self.multipliers.items():
            _decimal_check(f"multipliers.{kind}", value, _MULTIPLIER_MAX, places=4)

    @property
    def multiplier_texts(self) -> dict[str, str]:
        """As they are stored: every kind, as a string, 1 where nothing was said."""
        return {kind: format(self.multipliers.get(kind, Decimal(1)).normalize(), "f") for kind in KINDS}


def plan_create(
    *, actor: Actor, slug: str, name: str, currency: str, description: str = "", is_default: bool = False
) -> Plan:
    """Create a plan without prices. Raises InvalidInput, Conflict when the slug is taken."""
    operator_require(actor)
    slug_check("slug", slug)
    if currency not in CURRENCIES:
        raise InvalidInput.for_field(
            "currency", say("Use one of %(names)s.", names=", ".join(CURRENCIES)), "unknown_currency"
        )
    try:
        with transaction.atomic():
            if is_default:
                Plan.objects.filter(is_default=True).update(is_default=False)
            plan = Plan.objects.create(
                slug=slug, name=name.strip() or slug, currency=currency, description=description, is_default=is_default
            )
            audit_event_record(actor=actor, action="plan.create", resource=plan.path, details={"currency": currency})
    except IntegrityError:
        raise Conflict(say("There is a plan `%(slug)s` already.", slug=slug), code="slug_taken") from None
    return plan


def plan_update(*, actor: Actor, plan: Plan, name: str, description: str, is_default: bool) -> Plan:
    """Change what a plan is called, and whether new tenants get it. Its currency stays."""
    operator_require(actor)
    with transaction.atomic():
        if is_default:
            Plan.objects.exclude(pk=plan.pk).filter(is_default=True).update(is_default=False)
        fields = ("name", "description", "is_default")
        before = Plan.objects.select_for_update().values(*fields).get(pk=plan.pk)
        plan.name, plan.description, plan.is_default = name.strip() or plan.slug, description, is_default
        plan.save(update_fields=[*fields, "updated_at"])
        changes = changes_between(before, {field: getattr(plan, field) for field in fields})
        audit_event_record(actor=actor, action="plan.update", resource=plan.path, details={"changes": changes})
    return plan


def price_add(*, actor: Actor, plan: Plan, valid_from: datetime, rates: Rates) -> Price:
    """Add a version that is valid from a full UTC hour on, until the next one that is planned.

    The version before it ends there. Raises InvalidInput for a time that is not on the hour, or that is past while the
    plan has prices, or charged for already by a clock that is ahead: what was charged stays as it was.
    """
    operator_require(actor)
    rates.check()
    _on_the_hour(valid_from)
    with transaction.atomic():
        prices = list(_locked(plan))
        charged = Usage.objects.filter(price__in=prices, hour__gte=valid_from)
        if prices and (valid_from <= timezone.now() or charged.exists()):
            raise InvalidInput.for_field(
                "valid_from", say("Use a time in the future: prices that were charged don't change."), "past"
            )
        if any(price.valid_from == valid_from for price in prices):
            raise InvalidInput.for_field(
                "valid_from", say("A version begins at this time already: change that one."), "taken"
            )
        before = max((price for price in prices if price.valid_from < valid_from), key=_begin, default=None)
        after = min((price for price in prices if price.valid_from > valid_from), key=_begin, default=None)
        if before is not None:
            _move_end(before, valid_from)
        price = Price.objects.create(
            plan=plan,
            valid_from=valid_from,
            valid_to=None if after is None else after.valid_from,
            currency=plan.currency,
            **_columns(rates),
        )
        _record(actor, "price.add", price)
    return price


def price_update(*, actor: Actor, price: Price, rates: Rates) -> Price:
    """Change a version that has not begun. Raises Conflict for one that has: a new version takes its place."""
    operator_require(actor)
    rates.check()
    with transaction.atomic():
        _locked(price.plan)
        _require_unused(price)
        after = _columns(rates)
        before = Price.objects.values(*after).get(pk=price.pk)
        for column, value in after.items():
            setattr(price, column, value)
        price.save(update_fields=[*after, "updated_at"])
        _record(actor, "price.update", price, changes=_texts(changes_between(before, after)))
    return price


def price_remove(*, actor: Actor, price: Price) -> None:
    """Remove a version that has not begun; the one before it is valid until the next again. Raises Conflict, also for the first
    one where tenants have the plan before the next begins.
    """
    operator_require(actor)
    with transaction.atomic():
        prices = list(_locked(price.plan))
        _require_unused(price)
        before = max((other for other in prices if other.valid_from < price.valid_from), key=_begin, default=None)
        if before is None and _is_subscribed(price):
            raise Conflict(
                say("Tenants have this plan when the version begins, and no other version is valid then."),
                code="price_needed",
                hint=say("Change the version instead."),
            )
        _record(actor, "price.remove", price)
        price.delete()
        if before is not None:
            _move_end(before, price.valid_to)


def subscription_set(*, actor: Actor, tenant: Tenant, plan: Plan | None, valid_from: datetime) -> Subscription | None:
    """Give the tenant a plan from a full UTC hour on; None ends the present one. What was planned after that is dropped.

    Raises InvalidInput for a time that is not on the hour, or past while the tenant has a subscription, Conflict when
    the plan has no price then.
    """
    operator_require(actor)
    return _subscribe(actor, tenant, plan, valid_from)


def _subscribe(actor: Actor, tenant: Tenant, plan: Plan | None, valid_from: datetime) -> Subscription | None:
    _on_the_hour(valid_from)
    with transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)
        present = list(Subscription.objects.filter(tenant=tenant).select_related("plan"))
        if present and valid_from <= timezone.now():
            raise InvalidInput.for_field("valid_from", say("Use a time in the future: what was charged stays."), "past")
        if plan is not None and not _has_price(plan, valid_from):
            raise Conflict(
                say("The plan `%(slug)s` has no price at that time.", slug=plan.slug),
                code="no_price",
                hint=say("Add one first."),
            )
        before = next((one.plan.slug for one in present if _is_valid_at(one, valid_from)), None)
        dropped = [one.plan.slug for one in present if one.valid_from > valid_from]
        for subscription in present:
            if subscription.valid_from >= valid_from:
                subscription.delete()
            elif subscription.valid_to is None or subscription.valid_to > valid_from:
                Subscription.objects.filter(pk=subscription.pk).update(valid_to=valid_from)
        made = None if plan is None else Subscription.objects.create(tenant=tenant, plan=plan, valid_from=valid_from)
        audit_event_record(
            actor=actor,
            action="subscription.set",
            resource=tenant.path,
            tenant_id=tenant.pk,
            details={
                "valid_from": valid_from.isoformat(),
                "changes": {"plan": [before, None if plan is None else plan.slug]},
                **({"dropped": dropped} if dropped else {}),
            },
        )
    return made


def _is_valid_at(subscription: Subscription, moment: datetime) -> bool:
    return subscription.valid_from <= moment and (subscription.valid_to is None or subscription.valid_to > moment)


def _locked(plan: Plan) -> list[Price]:
    """The plan's versions, while no one else may change them."""
    Plan.objects.select_for_update().get(pk=plan.pk)
    return list(Price.objects.filter(plan=plan))


def _move_end(price: Price, valid_to: datetime | None) -> None:
    Price.objects.filter(pk=price.pk).update(valid_to=valid_to, updated_at=timezone.now())


def _require_unused(price: Price) -> None:
    if price.valid_from <= timezone.now() or Usage.objects.filter(price=price).exists():
        raise Conflict(
            say("This version has begun: what was charged doesn't change."),
            code="price_used",
            hint=say("Add a version that begins later."),
        )


def _is_subscribed(price: Price) -> bool:
    """Whether a tenant has the plan at a time at which the version is valid."""
    found = Subscription.objects.filter(plan=price.plan).exclude(valid_to__lte=price.valid_from)
    if price.valid_to is not None:
        found = found.filter(valid_from__lt=price.valid_to)
    return found.exists()


def _has_price(plan: Plan, moment: datetime) -> bool:
    prices = Price.objects.filter(plan=plan, valid_from__lte=moment)
    return any(price.valid_to is None or price.valid_to > moment for price in prices)


def _on_the_hour(moment: datetime) -> None:
    if not is_whole_hour(moment):
        raise InvalidInput.for_field(
            "valid_from", say("Use a full hour in UTC: usage is counted by the hour."), "not_on_the_hour"
        )


def _columns(rates: Rates) -> dict[str, Decimal | dict[str, str]]:
    return {
        "per_million_units": rates.per_million_units,
        "per_million_units_out": rates.per_million_units_out,
        "per_gib_month_stored": rates.per_gib_month_stored,
        "multipliers": rates.multiplier_texts,
    }


def _begin(price: Price) -> datetime:
    return price.valid_from


def _decimal_check(field: str, value: Decimal, most: Decimal, *, places: int) -> None:
    exponent = value.as_tuple().exponent
    if not value.is_finite() or not isinstance(exponent, int) or not 0 <= value <= most:
        raise InvalidInput.for_field(field, say("Use a number from 0 to %(most)s.", most=f"{most:f}"), "out_of_range")
    if -exponent > places:
        raise InvalidInput.for_field(field, say("Use at most %(places)s decimals.", places=places), "too_fine")


def _texts(changes: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Decimals as text, as JSON can keep them."""
    return {
        name: [f"{value.normalize():f}" if isinstance(value, Decimal) else value for value in values]
        for name, values in changes.items()
    }


def _record(actor: Actor, action: str, price: Price, **details: Any) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=price.plan.path,
        details={"valid_from": price.valid_from.isoformat(), "price": str(price.pk), **details},
    )


def subscriptions_default() -> int:
    """Subscribe tenants that never had a plan to the default one, from their first hour on; returns how many.

    From the plan's first price on, where that is later. Without a default plan nothing happens.
    """
    plan = Plan.objects.filter(is_default=True).first()
    first = None if plan is None else Price.objects.filter(plan=plan).order_by("valid_from").first()
    if plan is None or first is None:
        return 0
    tenants = list(Tenant.objects.filter(subscriptions=None))
    for tenant in tenants:
        _subscribe(SystemActor("billing"), tenant, plan, max(hour_of(tenant.created_at), first.valid_from))
    return len(tenants)
