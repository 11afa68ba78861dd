from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0002_deliveries")]

    operations = [
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(fields=["state", "resolved_at"], name="alert_ended"),
        ),
    ]
