"""Lines that correct an issued invoice, and the months whose usage changed after their invoice was issued.

Triggers note those months, whoever writes usage: rows that a recount removes leave no other trace. `_issue` locks the usage table
against writers, so a change is either on the invoice or noted.
"""

import django.db.models.deletion
from django.db import migrations, models

CHANGES = """
create function billing_usage_note_changes() returns trigger language plpgsql as $$
begin
    insert into billing_changedmonth (tenant_id, month, changed_at)
    select touched.tenant_id, touched.month, clock_timestamp()
    from (select distinct tenant_id, date_trunc('month', hour at time zone 'UTC')::date as month from changed) touched
    where exists (
        select from billing_invoice invoice where invoice.tenant_id = touched.tenant_id and invoice.month = touched.month
    )
    order by touched.tenant_id, touched.month
    on conflict (tenant_id, month) do update set changed_at = excluded.changed_at;
    return null;
end $$;
create trigger billing_usage_note_inserted after insert on billing_usage
    referencing new table as changed for each statement execute function billing_usage_note_changes();
create trigger billing_usage_note_updated after update on billing_usage
    referencing new table as changed for each statement execute function billing_usage_note_changes();
create trigger billing_usage_note_deleted after delete on billing_usage
    referencing old table as changed for each statement execute function billing_usage_note_changes();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0002_staging_and_triggers")]

    operations = [
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
        migrations.AddField(
            model_name="invoiceline",
            name="corrects",
            field=models.ForeignKey(
                help_text="the issued invoice whose month was counted again; null: usage of this invoice's own month",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="corrections",
                to="billing.invoice",
            ),
        ),
        migrations.RemoveConstraint(model_name="invoiceline", name="invoice_line_once"),
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
        migrations.RunSQL(CHANGES, "drop function billing_usage_note_changes() cascade"),
    ]
