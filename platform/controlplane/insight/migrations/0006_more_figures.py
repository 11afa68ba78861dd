from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("insight", "0005_groups_known"),
    ]

    operations = [
        migrations.AddField(
            model_name="clusterfigures",
            name="connections",
            field=models.PositiveIntegerField(
                help_text="that producers and consumers have open at the leaders", null=True
            ),
        ),
        migrations.AddField(
            model_name="clusterfigures",
            name="answer_ms",
            field=models.FloatField(help_text="what the slowest leader took to answer a small request", null=True),
        ),
        migrations.AddField(
            model_name="clusterfigures",
            name="replica_gap_bytes",
            field=models.BigIntegerField(help_text="the most that a replica lacks of its leader's log", null=True),
        ),
    ]
