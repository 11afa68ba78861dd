"""Shapes of the billing API. Amounts are decimals as strings, 64-bit numbers strings, unknown is null."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.billing.closing import WaitFor
from controlplane.billing.invoices import InvoiceView, corrections
from controlplane.billing.models import Direction, InvoiceState, ReproductionState, Rounding
from controlplane.billing.money import exact_text, to_cents
from controlplane.billing.plan_services import KINDS
from controlplane.billing.selectors import BREAKDOWN_LIMIT_MAX, By, DayUsage, MonthUsage, Sums
from controlplane.common.strictness import Shape
from controlplane.failover.promotion.serializers import Offset

_RATE: dict[str, Any] = {"max_digits": 20, "decimal_places": 10, "min_value": 0, "normalize_output": True}


class Exact(serializers.CharField):
    """A Decimal as a string, all of its digits and no exponent."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)

    def to_representation(self, value: Any) -> str:
        return format(value, "f")


class Amount(Exact):
    """An amount of money as a string: the digits that count, and at least the cents."""

    def to_representation(self, value: Any) -> str:
        return exact_text(value)


class Multipliers(serializers.DictField):
    """Kind of message -> how often its units count. Kinds that aren't named count once."""

    child = serializers.DecimalField(max_digits=8, decimal_places=4, min_value=0)

    def __init__(self, **options: Any) -> None:
        super().__init__(help_text=f"kinds: {', '.join(KINDS)}", **options)


class SumsSerializer(Shape):
    """What was counted. Bytes are bodies' as stored; `byte_hours` is what was stored, times the hours it was."""

    messages_in = Offset()
    bytes_in = Offset()
    billed_units_in = Exact()
    messages_out = Offset()
    bytes_out = Offset()
    billed_units_out = Exact()
    byte_hours = Offset()
    amounts = serializers.SerializerMethodField(help_text="currency -> exact amount")
    unpriced = serializers.BooleanField(help_text="some of it has no price")

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_amounts(self, sums: Sums) -> dict[str, str]:
        """Return the exact amounts as strings."""
        return {currency: format(amount, "f") for currency, amount in sorted(sums.amounts.items())}


class UsageQuerySerializer(Shape):
    """Which month; by default the current one in UTC."""

    month = serializers.RegexField(r"^2\d{3}-(0[1-9]|1[0-2])$", required=False, help_text="such as 2026-11")


class PdfQuerySerializer(Shape):
    """In which language an invoice is printed."""

    language = serializers.ChoiceField(
        choices=[code for code, _ in settings.LANGUAGES],
        default=settings.LANGUAGE_CODE,
        help_text="of its words; names and reasons stand as they were typed",
    )


class BreakdownQuerySerializer(UsageQuerySerializer):
    """What to group by."""

    by = serializers.ChoiceField(choices=[by.value for by in By])
    limit = serializers.IntegerField(min_value=1, max_value=BREAKDOWN_LIMIT_MAX, default=100)


class UsageRecordQuerySerializer(UsageQuerySerializer):
    """Which rows. An empty `consumer_group`, `credential` or `kind` asks for rows without."""

    cluster_id = serializers.UUIDField(required=False)
    direction = serializers.ChoiceField(choices=Direction.choices, required=False)
    topic = serializers.CharField(required=False, max_length=255)
    consumer_group = serializers.CharField(required=False, max_length=255, allow_blank=True)
    credential = serializers.CharField(required=False, max_length=255, allow_blank=True)
    kind = serializers.CharField(required=False, max_length=32, allow_blank=True)
    price_id = serializers.UUIDField(required=False)


class ForecastSerializer(Shape):
    """To the month's end. `amount` is null when it can't be said; `method` says why, or how it was found."""

    amount = serializers.SerializerMethodField()
    method = serializers.CharField()

    @extend_schema_field({"type": ["string", "null"]})
    def get_amount(self, found: Any) -> str | None:
        """Return the amount to the cent."""
        return None if found.amount is None else str(to_cents(found.amount))


class DayUsageSerializer(Shape):
    """A day of the tenant's zone, as far as it lies in the UTC month. `usage` is null while it was not counted."""

    date = serializers.DateField(source="day.date")
    start = serializers.DateTimeField(source="day.start")
    end = serializers.DateTimeField(source="day.end")
    complete = serializers.BooleanField()
    usage = serializers.SerializerMethodField()

    @extend_schema_field(SumsSerializer(allow_null=True))
    def get_usage(self, day: DayUsage) -> Any:
        """Return the sums, None for unknown."""
        return None if day.sums is None else SumsSerializer(day.sums).data


class MonthUsageSerializer(Shape):
    """A UTC month: what was counted, by day, and the forecast. `counted_until` is the age of the numbers."""

    month = serializers.CharField()
    time_zone = serializers.CharField(source="zone.key")
    counted_from = serializers.DateTimeField(source="counted.since", allow_null=True)
    counted_until = serializers.DateTimeField(source="counted.until", allow_null=True)
    currency = serializers.CharField(allow_null=True)
    total = serializers.SerializerMethodField()
    forecast = ForecastSerializer()
    days = DayUsageSerializer(many=True)

    @extend_schema_field(SumsSerializer(allow_null=True))
    def get_total(self, usage: MonthUsage) -> Any:
        """Return the sums, None for unknown."""
        return None if usage.total is None else SumsSerializer(usage.total).data


class PartSerializer(Shape):
    """What one topic, group or credential used. An empty `name`: what none is known for, such as stored bytes. `(others)`: what was
    delivered from many topics to many groups, counted together.
    """

    cluster_id = serializers.UUIDField()
    cluster = serializers.CharField(source="cluster_name")
    name = serializers.CharField(allow_blank=True)
    title = serializers.CharField(allow_blank=True, help_text="of a credential, with the name that it was given")
    usage = SumsSerializer(source="sums")


class BreakdownSerializer(Shape):
    """The parts with the highest amounts first; together with `others` they add up to the month."""

    month = serializers.CharField()
    by = serializers.ChoiceField(choices=[by.value for by in By])
    counted_until = serializers.DateTimeField(allow_null=True)
    results = PartSerializer(many=True)
    others = SumsSerializer(allow_null=True)
    others_count = serializers.IntegerField()


class UsageRecordSerializer(Shape):
    """One hour of one topic. `amount` is exact; null `price_id`: it has no price. `(others)` as topic and group: what was delivered
    from many topics to many groups, counted together.
    """

    hour = serializers.DateTimeField()
    cluster_id = serializers.UUIDField()
    direction = serializers.ChoiceField(choices=Direction.choices)
    topic = serializers.CharField()
    consumer_group = serializers.CharField(allow_blank=True)
    credential = serializers.CharField(allow_blank=True)
    kind = serializers.CharField(allow_blank=True)
    messages = Offset()
    bytes = Offset()
    units = Offset()
    billed_units = Exact()
    price_id = serializers.UUIDField(allow_null=True)
    amount = Exact()
    updated_at = serializers.DateTimeField()


class BudgetAlertSerializer(Shape):
    """A threshold that was reached."""

    month = serializers.SerializerMethodField()
    threshold_percent = serializers.IntegerField()
    spent = Exact()
    budget = Exact()
    currency = serializers.CharField()
    created_at = serializers.DateTimeField()
    mailed_at = serializers.DateTimeField(allow_null=True)

    def get_month(self, alert: Any) -> str:
        """Return the month as 2026-11."""
        return f"{alert.month:%Y-%m}"


class BudgetSerializer(Shape):
    """The budget against what the current month cost so far; `spent` is null while that was not counted. `not_counted` are the
    other currencies in which something was spent this month.
    """

    amount = Exact(source="budget.amount")
    currency = serializers.CharField(source="budget.currency")
    month = serializers.CharField()
    spent = Exact()
    percent = serializers.IntegerField(allow_null=True)
    counted_until = serializers.DateTimeField(allow_null=True)
    alerts = BudgetAlertSerializer(many=True)
    not_counted = serializers.ListField(child=serializers.CharField())


class BudgetSetSerializer(Shape):
    """What may be spent in a month."""

    amount = serializers.DecimalField(max_digits=20, decimal_places=2)
    currency = serializers.CharField(max_length=3)


class InvoiceHeadSerializer(Shape):
    """An invoice without its lines. `number` is null for a draft."""

    name = serializers.CharField()
    path = serializers.CharField()
    number = serializers.CharField(allow_null=True)
    state = serializers.ChoiceField(choices=InvoiceState.choices)
    month = serializers.CharField()
    currency = serializers.CharField()
    total = Exact()
    issued_at = serializers.DateTimeField(allow_null=True)
    counted_until = serializers.DateTimeField(allow_null=True)


class InvoiceListSerializer(Shape):
    """Drafts first, then what was issued, newest first."""

    results = InvoiceHeadSerializer(many=True)
    next = serializers.CharField(allow_null=True)
    previous = serializers.CharField(allow_null=True)


class CorrectedSerializer(Shape):
    """The issued invoice that an adjustment corrects, and its month."""

    number = serializers.CharField(source="number_text")
    path = serializers.CharField()
    month = serializers.SerializerMethodField()

    def get_month(self, invoice: Any) -> str:
        """Return the month as 2026-11."""
        return f"{invoice.month:%Y-%m}"


class InvoiceLineSerializer(Shape):
    """A line: the exact sum of its usage rows. Of an adjustment, which `corrects` an earlier invoice, all figures are
    differences: below 0 for a credit.
    """

    position = serializers.IntegerField()
    cluster_id = serializers.UUIDField()
    cluster = serializers.CharField(source="cluster_name")
    direction = serializers.ChoiceField(choices=Direction.choices)
    topic = serializers.CharField()
    price_id = serializers.UUIDField(source="price.pk")
    rate = Exact()
    messages = Offset()
    bytes = Offset()
    billed_units = Exact()
    exact_amount = Exact()
    amount = Amount(help_text="what it adds to the total: exact, but to the cent where `rounding` is `line`")
    corrects = CorrectedSerializer(allow_null=True)


class CorrectionSerializer(Shape):
    """Where a difference of this invoice's month was, or will be, invoiced."""

    invoice = serializers.CharField()
    path = serializers.CharField()
    state = serializers.ChoiceField(choices=InvoiceState.choices)
    position = serializers.IntegerField(source="line.position")
    amount = Amount(source="line.amount")


class AgreedEndSerializer(Shape):
    """A cluster that is billed to an end that an operator stated: what came later could not be read any more."""

    cluster = serializers.CharField()
    until = serializers.DateTimeField()
    reason = serializers.CharField()


class WaitSerializer(Shape):
    """One thing that a draft waits for before it is issued."""

    what = serializers.ChoiceField(choices=[one.value for one in WaitFor])
    sentence = serializers.CharField()
    cluster = serializers.CharField(source="cluster_name", allow_blank=True)


class InvoiceSerializer(InvoiceHeadSerializer):
    """An invoice; the total is the sum of the lines' amounts, rounded half up to the cent."""

    rounding = serializers.ChoiceField(choices=Rounding.choices, help_text="line: older invoices, rounded line by line")
    rounding_rule = serializers.CharField()
    exact_total = Exact(help_text="the total before it is rounded")
    snapshot_id = serializers.CharField(allow_blank=True, help_text="the lake's snapshot that it was made from")
    agreed_ends = AgreedEndSerializer(many=True)
    waits = WaitSerializer(many=True, help_text="of a draft: what it waits for")

    tenant = serializers.CharField(source="tenant_name")
    due_at = serializers.DateTimeField(help_text="when a draft is issued at the earliest")
    unpriced_rows = serializers.IntegerField(help_text="usage rows without a price, which are not invoiced")
    lines = InvoiceLineSerializer(many=True)
    corrected_by = serializers.SerializerMethodField(help_text="adjustments on later invoices, or on the draft")

    @extend_schema_field(CorrectionSerializer(many=True))
    def get_corrected_by(self, invoice: InvoiceView) -> Any:
        """Return them, oldest first."""
        return CorrectionSerializer(corrections(invoice), many=True).data


class PriceSerializer(Shape):
    """A version of a plan's prices, valid in [valid_from, valid_to)."""

    id = serializers.UUIDField()
    valid_from = serializers.DateTimeField()
    valid_to = serializers.DateTimeField(allow_null=True)
    currency = serializers.CharField()
    per_million_units = Exact()
    per_million_units_out = Exact()
    per_gib_month_stored = Exact()
    multipliers = serializers.DictField(child=serializers.CharField())


class RatesSerializer(Shape):
    """What a version charges, in the plan's currency."""

    per_million_units = serializers.DecimalField(**_RATE)
    per_million_units_out = serializers.DecimalField(**_RATE)
    per_gib_month_stored = serializers.DecimalField(**_RATE)
    multipliers = Multipliers(required=False, default=dict)


class PriceCreateSerializer(RatesSerializer):
    """A new version, and when it begins: a full UTC hour."""

    valid_from = serializers.DateTimeField()


class PlanSerializer(Shape):
    """A plan."""

    slug = serializers.CharField()
    path = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    currency = serializers.CharField()
    is_default = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class PlanCreateSerializer(Shape):
    """A new plan."""

    slug = serializers.CharField(max_length=39)
    name = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    description = serializers.CharField(max_length=500, required=False, default="", allow_blank=True)
    currency = serializers.CharField(max_length=3)
    is_default = serializers.BooleanField(required=False, default=False)


class PlanUpdateSerializer(Shape):
    """What can be changed of a plan."""

    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(max_length=500, required=False, allow_blank=True)
    is_default = serializers.BooleanField(required=False)


class SubscriptionSerializer(Shape):
    """Which plan a tenant has, and when."""

    id = serializers.UUIDField()
    tenant = serializers.CharField(source="tenant.slug")
    plan = serializers.CharField(source="plan.slug")
    valid_from = serializers.DateTimeField()
    valid_to = serializers.DateTimeField(allow_null=True)


class SubscriptionSetSerializer(Shape):
    """Give a tenant a plan from a full UTC hour on; a null plan ends the present one."""

    tenant = serializers.CharField(max_length=40)
    plan = serializers.CharField(max_length=40, allow_null=True)
    valid_from = serializers.DateTimeField()


class TenantPlanSerializer(Shape):
    """The plan that a tenant has now, and its price. Null without."""

    plan = PlanSerializer(allow_null=True)
    price = PriceSerializer(allow_null=True)


class InvoiceReproductionSerializer(Shape):
    """A bill made again. `is_equal` is null until it is known; `differences` says in sentences where it is not equal."""

    id = serializers.UUIDField()
    invoice = serializers.CharField(source="invoice.number_text")
    snapshot_id = serializers.CharField(source="invoice.snapshot_id")
    state = serializers.ChoiceField(choices=ReproductionState.choices)
    is_equal = serializers.BooleanField(allow_null=True)
    total = serializers.DecimalField(max_digits=20, decimal_places=2, allow_null=True)
    differences = serializers.ListField(child=serializers.CharField())
    error = serializers.CharField(allow_blank=True)
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
