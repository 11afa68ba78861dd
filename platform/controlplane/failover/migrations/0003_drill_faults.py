"""What a drill does to the leader, and when that ended."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("failover", "0002_drills"),
    ]

    operations = [
        migrations.AddField(
            model_name="drill",
            name="fault_ended_at",
            field=models.DateTimeField(
                help_text="when the process had surely been killed, or started again", null=True
            ),
        ),
        migrations.AlterField(
            model_name="drill",
            name="fault",
            field=models.CharField(choices=[("kill", "Killed"), ("hang", "Hangs")], default="kill", max_length=16),
        ),
    ]
