"""A drill may cut the leader off."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("failover", "0003_drill_faults"),
    ]

    operations = [
        migrations.AlterField(
            model_name="drill",
            name="fault",
            field=models.CharField(
                choices=[("kill", "Killed"), ("hang", "Hangs"), ("cut", "Cut off")], default="kill", max_length=16
            ),
        ),
    ]
