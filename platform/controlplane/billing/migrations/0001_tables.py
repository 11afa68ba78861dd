import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

import controlplane.billing.models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [
        ("billing", "0001_initial"),
        ("billing", "0003_adjustments"),
        ("billing", "0004_exact_lines"),
        ("billing", "0005_reproductions"),
    ]

    initial = True

    dependencies = [
        ("clusters", "0001_tables"),
        ("tenants", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Invoice",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("number", models.PositiveIntegerField(unique=True)),
                ("month", models.DateField(help_text="the UTC month's first day")),
                ("currency", models.CharField(max_length=3)),
                (
                    "total",
                    models.DecimalField(decimal_places=2, help_text="the sum of the lines, to the cent", max_digits=20),
                ),
                (
                    "rounding",
                    models.CharField(
                        choices=[("line", "Line"), ("invoice", "Invoice")], default="invoice", max_length=8
                    ),
                ),
                ("tenant_name", models.CharField(help_text="as it was when the invoice was issued", max_length=100)),
                ("issued_at", models.DateTimeField()),
                ("counted_until", models.DateTimeField(help_text="how far usage was counted when it was issued")),
                (
                    "snapshot_id",
                    models.TextField(
                        blank=True, default="", help_text="the lake's snapshot that its usage was counted from"
                    ),
                ),
                (
                    "agreed_ends",
                    models.JSONField(
                        default=list,
                        help_text="clusters billed to an end that an operator stated: [{cluster, until, reason}]",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="invoices", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "ordering": ["-number"],
            },
        ),
        migrations.CreateModel(
            name="InvoiceReproduction",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                        ],
                        default="queued",
                    ),
                ),
                ("requested_by", models.TextField()),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "total",
                    models.DecimalField(decimal_places=2, help_text="of the bill made again", max_digits=20, null=True),
                ),
                ("differences", models.JSONField(default=list)),
                ("error", models.TextField(blank=True, default="")),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="reproductions", to="billing.invoice"
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="InvoiceSeries",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("next_number", models.PositiveIntegerField(default=1)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="invoice_series_one_row")],
            },
        ),
        migrations.CreateModel(
            name="Plan",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("slug", models.SlugField(max_length=40, unique=True)),
                ("name", models.CharField(max_length=100)),
                ("description", models.CharField(blank=True, max_length=500)),
                ("currency", models.CharField(help_text="ISO 4217", max_length=3)),
                ("is_default", models.BooleanField(default=False, help_text="tenants without a subscription get it")),
            ],
            options={
                "db_table": "billing_plan",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("is_default", True)), fields=("is_default",), name="plan_one_default"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Price",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(null=True)),
                ("currency", models.CharField(max_length=3)),
                (
                    "per_million_units",
                    models.DecimalField(decimal_places=10, help_text="units in, after multipliers", max_digits=20),
                ),
                ("per_million_units_out", models.DecimalField(decimal_places=10, max_digits=20)),
                ("per_gib_month_stored", models.DecimalField(decimal_places=10, max_digits=20)),
                (
                    "multipliers",
                    models.JSONField(
                        default=controlplane.billing.models.default_multipliers,
                        help_text="kind of message -> decimal as a string",
                    ),
                ),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="prices", to="billing.plan"
                    ),
                ),
            ],
            options={
                "db_table": "billing_price",
                "ordering": ["valid_from"],
            },
        ),
        migrations.CreateModel(
            name="InvoiceLine",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("position", models.PositiveIntegerField()),
                ("cluster_name", models.CharField(max_length=100)),
                (
                    "direction",
                    models.CharField(choices=[("in", "In"), ("out", "Out"), ("storage", "Storage")], max_length=8),
                ),
                ("topic", models.TextField()),
                ("messages", models.DecimalField(decimal_places=0, max_digits=30)),
                ("bytes", models.DecimalField(decimal_places=0, help_text="of STORAGE: byte-hours", max_digits=30)),
                ("billed_units", models.DecimalField(decimal_places=4, max_digits=30)),
                (
                    "exact_amount",
                    models.DecimalField(decimal_places=10, help_text="the sum of the usage rows", max_digits=38),
                ),
                (
                    "amount",
                    models.DecimalField(
                        decimal_places=10,
                        help_text="what it adds to the total: exact, but to the cent with Rounding.LINE",
                        max_digits=38,
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "corrects",
                    models.ForeignKey(
                        help_text="the issued invoice whose month was counted again; null: usage of this invoice's own month",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="corrections",
                        to="billing.invoice",
                    ),
                ),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="lines", to="billing.invoice"
                    ),
                ),
                (
                    "price",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.price"
                    ),
                ),
            ],
            options={
                "ordering": ["position"],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("valid_from", models.DateTimeField()),
                ("valid_to", models.DateTimeField(null=True)),
                (
                    "plan",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="subscriptions", to="billing.plan"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="subscriptions", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "db_table": "billing_subscription",
                "ordering": ["valid_from"],
            },
        ),
        migrations.CreateModel(
            name="Usage",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hour", models.DateTimeField(help_text="the UTC hour's begin")),
                ("direction", models.TextField(choices=[("in", "In"), ("out", "Out"), ("storage", "Storage")])),
                ("topic", models.TextField()),
                ("consumer_group", models.TextField(blank=True, db_default="", default="")),
                (
                    "credential",
                    models.TextField(
                        blank=True, db_default="", default="", help_text="access key; empty when not known"
                    ),
                ),
                (
                    "kind",
                    models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="normal, ordered, delayed or transactional; of IN only",
                    ),
                ),
                ("messages", models.BigIntegerField()),
                ("bytes", models.BigIntegerField(help_text="of STORAGE: byte-hours")),
                ("units", models.BigIntegerField()),
                (
                    "billed_units",
                    models.DecimalField(decimal_places=4, help_text="after the kind's multiplier", max_digits=20),
                ),
                (
                    "amount",
                    models.DecimalField(decimal_places=10, help_text="exact; null price: not priced, 0", max_digits=28),
                ),
                ("run_id", models.UUIDField(help_text="insight_job_run that wrote it")),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), default=django.utils.timezone.now
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="usage",
                        to="clusters.cluster",
                    ),
                ),
                (
                    "price",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="usage",
                        to="billing.price",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="usage",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "billing_usage",
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("amount", models.DecimalField(decimal_places=2, max_digits=20)),
                ("currency", models.CharField(max_length=3)),
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="budget", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("amount__gt", 0)), name="budget_positive")],
            },
        ),
        migrations.CreateModel(
            name="BudgetAlert",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("month", models.DateField(help_text="the UTC month's first day")),
                ("threshold_percent", models.PositiveSmallIntegerField()),
                ("spent", models.DecimalField(decimal_places=10, help_text="when it was seen", max_digits=28)),
                ("budget", models.DecimalField(decimal_places=2, max_digits=20)),
                ("currency", models.CharField(max_length=3)),
                ("mailed_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="budget_alerts", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "ordering": ["-month", "-threshold_percent"],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "month", "threshold_percent"), name="budget_alert_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="ChangedMonth",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("month", models.DateField(help_text="the UTC month's first day")),
                ("changed_at", models.DateTimeField(help_text="when its usage last changed")),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="changed_months", to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("tenant", "month"), name="changed_month_once")],
            },
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                fields=("tenant", "month", "currency"), name="invoice_tenant_month_currency"
            ),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(("valid_to", None), ("valid_to__gt", models.F("valid_from")), _connector="OR"),
                name="price_range_not_empty",
            ),
        ),
        migrations.AddConstraint(
            model_name="price",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("per_gib_month_stored__gte", 0), ("per_million_units__gte", 0), ("per_million_units_out__gte", 0)
                ),
                name="price_not_negative",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoiceline",
            constraint=models.UniqueConstraint(fields=("invoice", "position"), name="invoice_line_position"),
        ),
        migrations.AddConstraint(
            model_name="invoiceline",
            constraint=models.UniqueConstraint(
                condition=models.Q(("corrects", None)),
                fields=("invoice", "cluster", "direction", "topic", "price"),
                name="invoice_line_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoiceline",
            constraint=models.UniqueConstraint(
                fields=("invoice", "corrects", "cluster", "direction", "topic", "price"), name="invoice_adjustment_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="subscription",
            constraint=models.CheckConstraint(
                condition=models.Q(("valid_to", None), ("valid_to__gt", models.F("valid_from")), _connector="OR"),
                name="subscription_range_not_empty",
            ),
        ),
        migrations.AddIndex(
            model_name="usage",
            index=models.Index(fields=["tenant", "hour"], name="usage_tenant_hour"),
        ),
        migrations.AddIndex(
            model_name="usage",
            index=models.Index(fields=["price"], name="usage_price"),
        ),
        migrations.AddConstraint(
            model_name="usage",
            constraint=models.UniqueConstraint(
                fields=("cluster", "hour", "direction", "topic", "consumer_group", "credential", "kind"),
                name="usage_once",
            ),
        ),
    ]
