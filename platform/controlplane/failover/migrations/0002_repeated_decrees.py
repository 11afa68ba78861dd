from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("failover", "0001_failover"),
    ]

    operations = [
        migrations.AddField(
            model_name="groupleadership",
            name="led_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="groupleadership",
            name="led_epoch",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="groupleadership",
            name="led_to_offset",
            field=models.BigIntegerField(help_text="where its log ended", null=True),
        ),
        migrations.AddField(
            model_name="replicasample",
            name="claims",
            field=models.BooleanField(
                help_text="it led when it stopped, and waits for every other replica's agreement to lead again",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="failover",
            name="kind",
            field=models.CharField(
                choices=[
                    ("promote", "Promote"),
                    ("switchover", "Switchover"),
                    ("automatic", "Automatic"),
                    ("repeat", "Promotion repeated"),
                ],
                max_length=16,
            ),
        ),
    ]
