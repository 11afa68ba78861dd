from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_account_token_issuers"),
    ]

    operations = [
        migrations.AddField(
            model_name="user",
            name="language",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="of what is mailed; empty: English", max_length=10
            ),
        ),
    ]
