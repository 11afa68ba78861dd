"""Operations may be failover drills."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0001_tables"),
    ]

    operations = [
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
                    ("group.drill", "Group Drill"),
                    ("group.transfer", "Group Transfer"),
                    ("group.prefer", "Group Prefer"),
                    ("group.replace", "Group Replace"),
                    ("group.grow", "Group Grow"),
                    ("group.shrink", "Group Shrink"),
                    ("group.recover", "Group Recover"),
                ],
                max_length=32,
            ),
        ),
    ]
