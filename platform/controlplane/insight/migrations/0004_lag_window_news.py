from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("insight", "0003_alert_figures")]

    operations = [
        migrations.AddIndex(
            model_name="lagwindow",
            index=models.Index(
                fields=["window_start"],
                condition=Q(queue_id=-1)
                & (Q(stuck=True) | Q(lag_ms_last__gte=10_000) | Q(loses_data_at__isnull=False)),
                name="lag_window_news",
            ),
        ),
    ]
