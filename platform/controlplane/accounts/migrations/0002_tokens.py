import django.db.models.deletion
import django.db.models.functions.text
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [("accounts", "0002_initial"), ("accounts", "0003_api_token_issuer")]

    initial = True

    dependencies = [
        ("accounts", "0001_tables"),
        ("tenants", "0001_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="api_tokens", to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="apitoken",
            name="user",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="api_tokens",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                name="user_email_lower_case",
            ),
        ),
    ]
