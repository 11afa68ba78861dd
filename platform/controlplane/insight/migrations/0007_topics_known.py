from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("insight", "0006_more_figures"),
    ]

    operations = [
        migrations.AddField(
            model_name="clustergroups",
            name="topics",
            field=models.JSONField(help_text="null: not known, a leader was away", null=True),
        ),
    ]
