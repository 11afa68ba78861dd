"""Whom a promotion asked to lead, be it answered or not."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0012_next_authority"),
        ("failover", "0007_drill_windows"),
    ]

    operations = [
        migrations.AddField(
            model_name="groupleadership",
            name="asked",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="clusters.replica"
            ),
        ),
        migrations.AddField(
            model_name="groupleadership",
            name="asked_epoch",
            field=models.BigIntegerField(null=True),
        ),
    ]
