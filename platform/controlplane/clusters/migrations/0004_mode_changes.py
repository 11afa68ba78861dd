from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0003_dledger"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="founded_mode",
            field=models.CharField(
                blank=True,
                db_default="",
                help_text="the mode at its creation, when it is another one by now",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="operation",
            name="type",
            field=models.CharField(
                choices=[
                    ("cluster.create", "Cluster Create"),
                    ("cluster.delete", "Cluster Delete"),
                    ("cluster.grow", "Cluster Grow"),
                    ("cluster.mode", "Cluster Mode"),
                    ("group.promote", "Group Promote"),
                    ("group.switchover", "Group Switchover"),
                    ("group.transfer", "Group Transfer"),
                    ("group.prefer", "Group Prefer"),
                    ("group.replace", "Group Replace"),
                    ("group.grow", "Group Grow"),
                    ("group.shrink", "Group Shrink"),
                ],
                max_length=32,
            ),
        ),
    ]
