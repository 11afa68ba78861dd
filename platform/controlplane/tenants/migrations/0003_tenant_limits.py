from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0002_tenant_time_zone"),
    ]

    operations = [
        migrations.AddField(
            model_name="tenant",
            name="limits",
            field=models.JSONField(
                db_default={}, default=dict, help_text="what differs from HIGHWATER_LIMITS, by name"
            ),
        ),
    ]
