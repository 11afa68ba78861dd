"""Plans and their prices, subscriptions, usage, budgets with their alerts, invoices.

`billing_usage` is written by the Spark job `usage_billing`, through its staging table (migration 0002); everything else
by this app. Money is Decimal; times are UTC; ranges are [from, to), and to = NULL has no end.
"""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from controlplane.billing.money import to_cents
from controlplane.billing.periods import Month
from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel
from controlplane.common.sentences import SentenceField, SentencesField, say
from controlplane.tenants.models import Tenant
from mqwire.metering import OTHERS


def default_multipliers() -> dict[str, str]:
    """What a unit of each kind of message counts as, when no one says otherwise: once."""
    return {"normal": "1", "ordered": "1", "delayed": "1", "transactional": "1"}


class Plan(BaseModel):
    """What a tenant subscribes to. Its prices come in versions; all are of one currency."""

    slug = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=100)
    description = models.CharField(max_length=500, blank=True)
    currency = models.CharField(max_length=3, help_text="ISO 4217")
    is_default = models.BooleanField(default=False, help_text="tenants without a subscription get it")

    class Meta:
        db_table = "billing_plan"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["is_default"], condition=Q(is_default=True), name="plan_one_default")
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def path(self) -> str:
        """The plan's API path."""
        return f"/api/v1/operator/plans/{self.slug}/"


class Price(BaseModel):
    """One version of a plan's prices, valid in [valid_from, valid_to).

    Versions of a plan never overlap, and one that usage was priced with never changes: triggers of the database hold
    both (migration 0002), whatever writes.
    """

    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="prices")
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True)
    currency = models.CharField(max_length=3)
    per_million_units = models.DecimalField(max_digits=20, decimal_places=10, help_text="units in, after multipliers")
    per_million_units_out = models.DecimalField(max_digits=20, decimal_places=10)
    per_gib_month_stored = models.DecimalField(max_digits=20, decimal_places=10)
    multipliers = models.JSONField(default=default_multipliers, help_text="kind of message -> decimal as a string")

    class Meta:
        db_table = "billing_price"
        ordering: ClassVar = ["valid_from"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(valid_to=None) | Q(valid_to__gt=models.F("valid_from")), name="price_range_not_empty"
            ),
            models.CheckConstraint(
                condition=Q(per_million_units__gte=0, per_million_units_out__gte=0, per_gib_month_stored__gte=0),
                name="price_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.plan} from {self.valid_from:%Y-%m-%d %H:%M}"


class Subscription(BaseModel):
    """Which plan a tenant has in [valid_from, valid_to). A tenant's never overlap: a trigger holds that."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="subscriptions")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="subscriptions")
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True)

    class Meta:
        db_table = "billing_subscription"
        ordering: ClassVar = ["valid_from"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(valid_to=None) | Q(valid_to__gt=models.F("valid_from")), name="subscription_range_not_empty"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant} has {self.plan} from {self.valid_from:%Y-%m-%d %H:%M}"


class Direction(models.TextChoices):
    """IN: sent to the cluster. OUT: delivered to a group. STORAGE: held, in byte-hours."""

    IN = "in"
    OUT = "out"
    STORAGE = "storage"


class Usage(models.Model):
    """What one hour of one cluster counted. The keys are plain columns, as Spark writes them by JDBC."""

    id = models.BigAutoField(primary_key=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="usage", db_constraint=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="usage", db_constraint=False)
    hour = models.DateTimeField(help_text="the UTC hour's begin")
    direction = models.TextField(choices=Direction.choices)
    topic = models.TextField()
    consumer_group = models.TextField(default="", db_default="", blank=True)
    credential = models.TextField(default="", db_default="", blank=True, help_text="access key; empty when not known")
    kind = models.TextField(
        default="", db_default="", blank=True, help_text="normal, ordered, delayed or transactional; of IN only"
    )
    messages = models.BigIntegerField()
    bytes = models.BigIntegerField(help_text="of STORAGE: byte-hours")
    units = models.BigIntegerField()
    billed_units = models.DecimalField(max_digits=20, decimal_places=4, help_text="after the kind's multiplier")
    price = models.ForeignKey(Price, on_delete=models.PROTECT, related_name="usage", null=True, db_constraint=False)
    amount = models.DecimalField(max_digits=28, decimal_places=10, help_text="exact; null price: not priced, 0")
    run_id = models.UUIDField(help_text="insight_job_run that wrote it")
    updated_at = models.DateTimeField(default=timezone.now, db_default=Now())

    class Meta:
        db_table = "billing_usage"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "hour", "direction", "topic", "consumer_group", "credential", "kind"],
                name="usage_once",
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "hour"], name="usage_tenant_hour"),
            models.Index(fields=["price"], name="usage_price"),
        ]

    def __str__(self) -> str:
        return f"{self.direction} {self.topic} {self.hour:%Y-%m-%d %H:00}"

    @property
    def is_of_many(self) -> bool:
        """Whether it is what was delivered from many topics to many groups, counted together."""
        return self.consumer_group == OTHERS


class Budget(BaseModel):
    """What a tenant means to spend in a UTC month. Alerts come at 50, 80 and 100 %."""

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, related_name="budget")
    amount = models.DecimalField(max_digits=20, decimal_places=2)
    currency = models.CharField(max_length=3)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(amount__gt=0), name="budget_positive")]

    def __str__(self) -> str:
        return f"{self.tenant} {self.amount} {self.currency}"


class BudgetAlert(BaseModel):
    """A threshold of a budget was reached; once in a month for one amount. `mailed_at` is claimed by compare-and-set before the
    mail goes out.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="budget_alerts")
    month = models.DateField(help_text="the UTC month's first day")
    threshold_percent = models.PositiveSmallIntegerField()
    spent = models.DecimalField(max_digits=28, decimal_places=10, help_text="when it was seen")
    budget = models.DecimalField(max_digits=20, decimal_places=2)
    currency = models.CharField(max_length=3)
    mailed_at = models.DateTimeField(null=True)
    told_at = models.DateTimeField(
        null=True, help_text="when it was queued for the tenant's other channels (app alerts)"
    )

    class Meta:
        ordering: ClassVar = ["-month", "-threshold_percent"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "month", "threshold_percent", "budget", "currency"], name="budget_alert_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.month:%Y-%m} {self.threshold_percent} %"

    @property
    def sentence(self) -> str:
        """The alert in a sentence, as the banner and the mail say it."""
        return say(
            "%(percent)s %% of the budget for %(month)s is reached: %(spent)s of %(budget)s %(currency)s.",
            percent=self.threshold_percent,
            month=Month.of_date(self.month).words,
            spent=str(to_cents(self.spent)),
            budget=str(self.budget),
            currency=self.currency,
        )


class InvoiceSeries(models.Model):
    """The next invoice number. Its one row is locked while an invoice is written: so no number is left out."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    next_number = models.PositiveIntegerField(default=1)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="invoice_series_one_row")]

    def __str__(self) -> str:
        return f"next {self.next_number}"


class InvoiceState(models.TextChoices):
    """A draft changes with its month's usage; what is issued does not."""

    DRAFT = "draft"
    ISSUED = "issued"


class Rounding(models.TextChoices):
    """Where an invoice was rounded to the cent, half up. INVOICE: once, its total. LINE: each line, as invoices were until 2026."""

    LINE = "line"
    INVOICE = "invoice"


class Invoice(BaseModel):
    """A tenant's issued invoice for a UTC month, frozen. Drafts are computed, never stored."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices")
    number = models.PositiveIntegerField(unique=True)
    month = models.DateField(help_text="the UTC month's first day")
    currency = models.CharField(max_length=3)
    total = models.DecimalField(max_digits=20, decimal_places=2, help_text="the sum of the lines, to the cent")
    rounding = models.CharField(max_length=8, choices=Rounding.choices, default=Rounding.INVOICE)
    tenant_name = models.CharField(max_length=100, help_text="as it was when the invoice was issued")
    issued_at = models.DateTimeField()
    counted_until = models.DateTimeField(help_text="how far usage was counted when it was issued")
    snapshot_id = models.TextField(
        default="", blank=True, help_text="the lake's snapshot that its usage was counted from"
    )
    agreed_ends = models.JSONField(
        default=list, help_text="clusters billed to an end that an operator stated: [{cluster, until, reason}]"
    )

    class Meta:
        ordering: ClassVar = ["-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "month", "currency"], name="invoice_tenant_month_currency")
        ]

    def __str__(self) -> str:
        return self.number_text

    @property
    def number_text(self) -> str:
        """The number as people read it."""
        return f"HW-{self.number:07d}"

    @property
    def path(self) -> str:
        """The invoice's API path."""
        return f"{self.tenant.path}invoices/{self.number_text}/"


class InvoiceLine(models.Model):
    """One line. What it was made of is found in `billing_usage` by its cluster, direction, topic, price and month.

    An adjustment `corrects` an earlier invoice: its figures are differences, below 0 for a credit, of that invoice's month.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    cluster_name = models.CharField(max_length=100)
    direction = models.CharField(max_length=8, choices=Direction.choices)
    topic = models.TextField()
    price = models.ForeignKey(Price, on_delete=models.PROTECT, related_name="+")
    messages = models.DecimalField(max_digits=30, decimal_places=0)
    bytes = models.DecimalField(max_digits=30, decimal_places=0, help_text="of STORAGE: byte-hours")
    billed_units = models.DecimalField(max_digits=30, decimal_places=4)
    exact_amount = models.DecimalField(max_digits=38, decimal_places=10, help_text="the sum of the usage rows")
    amount = models.DecimalField(
        max_digits=38,
        decimal_places=10,
        help_text="what it adds to the total: exact, but to the cent with Rounding.LINE",
    )
    corrects = models.ForeignKey(
        Invoice,
        on_delete=models.PROTECT,
        null=True,
        related_name="corrections",
        help_text="the issued invoice whose month was counted again; null: usage of this invoice's own month",
    )

    class Meta:
        ordering: ClassVar = ["position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["invoice", "position"], name="invoice_line_position"),
            models.UniqueConstraint(
                fields=["invoice", "cluster", "direction", "topic", "price"],
                condition=Q(corrects=None),
                name="invoice_line_once",
            ),
            models.UniqueConstraint(
                fields=["invoice", "corrects", "cluster", "direction", "topic", "price"], name="invoice_adjustment_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.invoice} line {self.position}"


class ReproductionState(models.TextChoices):
    """queued -> running -> completed or failed."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class InvoiceReproduction(BaseModel):
    """One attempt to make an issued invoice's bill again from its snapshot. `differences` are sentences; none: it is equal."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="reproductions")
    state = models.TextField(choices=ReproductionState.choices, default=ReproductionState.QUEUED)
    requested_by = models.TextField()
    finished_at = models.DateTimeField(null=True)
    total = models.DecimalField(max_digits=20, decimal_places=2, null=True, help_text="of the bill made again")
    differences = SentencesField(default=list)
    error = SentenceField(default="", blank=True)

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.invoice} {self.state}"

    @property
    def is_equal(self) -> bool | None:
        """Whether the bill made again is the invoice; None before that is known."""
        return None if self.state != ReproductionState.COMPLETED else not self.differences


class ChangedMonth(models.Model):
    """A month whose usage changed after an invoice for it was issued. Triggers of the database write it (migration 0003)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="changed_months")
    month = models.DateField(help_text="the UTC month's first day")
    changed_at = models.DateTimeField(help_text="when its usage last changed")

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["tenant", "month"], name="changed_month_once")]

    def __str__(self) -> str:
        return f"{self.tenant} {self.month:%Y-%m}"
