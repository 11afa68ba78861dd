from django.db import migrations, models

import controlplane.common.sentences


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0008_labels"),
    ]

    operations = [
        migrations.AlterField(
            model_name="operation",
            name="metadata",
            field=controlplane.common.sentences.SentencesField(default=dict),
        ),
        migrations.AlterField(
            model_name="operation",
            name="state",
            field=models.CharField(
                choices=[
                    ("in_progress", "In Progress"),
                    ("completed", "Completed"),
                    ("failed", "Failed"),
                    ("cancelled", "Cancelled"),
                ],
                default="in_progress",
                max_length=16,
            ),
        ),
    ]
