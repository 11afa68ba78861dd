import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_notices"),
        ("tenants", "0004_service_accounts"),
    ]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="service_account",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="tokens",
                to="tenants.serviceaccount",
            ),
        ),
    ]
