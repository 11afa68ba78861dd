from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0002_staging_and_triggers"),
    ]

    operations = [
        migrations.AddField(
            model_name="budgetalert",
            name="told_at",
            field=models.DateTimeField(
                help_text="when it was queued for the tenant's other channels (app alerts)", null=True
            ),
        ),
    ]
