import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0002_drills"),
        ("insight", "0004_lag_window_news"),
    ]

    operations = [
        migrations.CreateModel(
            name="ClusterGroups",
            fields=[
                (
                    "cluster",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="group_names",
                        serialize=False,
                        to="clusters.cluster",
                    ),
                ),
                ("names", models.JSONField()),
                ("sampled_at", models.DateTimeField()),
            ],
            options={
                "db_table": "insight_cluster_groups",
            },
        ),
        migrations.AddField(
            model_name="clusterfigures",
            name="groups_away_count",
            field=models.PositiveIntegerField(help_text="the most that one leader counts", null=True),
        ),
        migrations.AddField(
            model_name="clusterfigures",
            name="groups_away_known_to",
            field=models.CharField(
                help_text="of names past this one not all are known; null: all are", max_length=255, null=True
            ),
        ),
    ]
