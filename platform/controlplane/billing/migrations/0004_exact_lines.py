"""Lines keep all of their digits; an invoice is rounded once. Those issued before were rounded line by line, and stay so."""

from django.db import migrations, models

ROUNDINGS = [("line", "Line"), ("invoice", "Invoice")]


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_adjustments")]

    operations = [
        migrations.AddField(
            model_name="invoice",
            name="agreed_ends",
            field=models.JSONField(
                default=list,
                help_text="clusters billed to an end that an operator stated: [{cluster, until, reason}]",
            ),
        ),
        # The default of the rows that are there; what follows is the model's.
        migrations.AddField(
            model_name="invoice",
            name="rounding",
            field=models.CharField(choices=ROUNDINGS, default="line", max_length=8),
        ),
        migrations.AlterField(
            model_name="invoice",
            name="rounding",
            field=models.CharField(choices=ROUNDINGS, default="invoice", max_length=8),
        ),
        migrations.AddField(
            model_name="invoice",
            name="snapshot_id",
            field=models.TextField(
                blank=True, default="", help_text="the lake's snapshot that its usage was counted from"
            ),
        ),
        migrations.AlterField(
            model_name="invoice",
            name="total",
            field=models.DecimalField(decimal_places=2, help_text="the sum of the lines, to the cent", max_digits=20),
        ),
        migrations.AlterField(
            model_name="invoiceline",
            name="amount",
            field=models.DecimalField(
                decimal_places=10,
                help_text="what it adds to the total: exact, but to the cent with Rounding.LINE",
                max_digits=38,
            ),
        ),
    ]
