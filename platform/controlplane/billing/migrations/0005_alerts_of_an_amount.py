from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0004_sentences"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="budgetalert",
            name="budget_alert_once",
        ),
        migrations.AddConstraint(
            model_name="budgetalert",
            constraint=models.UniqueConstraint(
                fields=("tenant", "month", "threshold_percent", "budget", "currency"), name="budget_alert_once"
            ),
        ),
    ]
