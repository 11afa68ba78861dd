from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("insight", "0002_staging")]

    operations = [
        migrations.AlterField(
            model_name="jobrun",
            name="job",
            field=models.TextField(
                choices=[
                    ("ingest", "Ingest"),
                    ("usage_billing", "Usage Billing"),
                    ("lag_analytics", "Lag Analytics"),
                    ("billing_check", "Billing Check"),
                    ("compaction", "Compaction"),
                ]
            ),
        ),
    ]
