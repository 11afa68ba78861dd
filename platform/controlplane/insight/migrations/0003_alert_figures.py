from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("insight", "0002_staging"),
    ]

    operations = [
        migrations.AddField(
            model_name="clusterfigures",
            name="dead_letters",
            field=models.BigIntegerField(help_text="ever written, over all groups", null=True),
        ),
        migrations.AddField(
            model_name="clusterfigures",
            name="groups_away",
            field=models.JSONField(help_text="groups with a backlog and no member that is connected", null=True),
        ),
        migrations.AddField(
            model_name="clusterfigures",
            name="quota_used",
            field=models.FloatField(help_text="share of the quota that is used most and is no rate, 0 to 1", null=True),
        ),
    ]
