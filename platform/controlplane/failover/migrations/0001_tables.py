import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [
        ("failover", "0001_failover"),
        ("failover", "0002_repeated_decrees"),
        ("failover", "0003_elections"),
        ("failover", "0004_promises"),
        ("failover", "0005_shown_below"),
    ]

    initial = True

    dependencies = [
        ("clusters", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Failover",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("group_name", models.CharField(max_length=64)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("promote", "Promote"),
                            ("switchover", "Switchover"),
                            ("automatic", "Automatic"),
                            ("repeat", "Promotion repeated"),
                            ("transfer", "Leadership transferred"),
                            ("election", "Election"),
                        ],
                        max_length=16,
                    ),
                ),
                ("requested_by", models.CharField(max_length=254)),
                ("candidate_id", models.PositiveIntegerField(help_text="replica id")),
                (
                    "old_master_id",
                    models.PositiveIntegerField(
                        help_text="replica id; null when no replica is known to have led", null=True
                    ),
                ),
                (
                    "expected_epoch",
                    models.BigIntegerField(help_text="the fence, which the replicas promise; reserved", null=True),
                ),
                (
                    "new_epoch",
                    models.BigIntegerField(
                        help_text="reserved for the promoted replica, by compare-and-set", null=True
                    ),
                ),
                (
                    "decided_id",
                    models.PositiveIntegerField(
                        help_text="replica id: who leads in new_epoch, decided once by the promises", null=True
                    ),
                ),
                ("confirmed_loss", models.BooleanField(default=False, help_text="an operator typed the group's name")),
                (
                    "lossless",
                    models.BooleanField(
                        help_text="nothing acknowledged is lost; null until the master is fenced", null=True
                    ),
                ),
                ("lossless_because", models.CharField(blank=True, max_length=512)),
                ("bytes_at_risk", models.BigIntegerField(null=True)),
                ("messages_at_risk", models.BigIntegerField(null=True)),
                (
                    "drained_offset",
                    models.BigIntegerField(help_text="where the master's log ended when sends were held", null=True),
                ),
                ("fence", models.CharField(blank=True, help_text="demoted, stopped, or none", max_length=16)),
                ("rejoined_at", models.DateTimeField(null=True)),
                (
                    "writes_stopped_at",
                    models.DateTimeField(help_text="when the master last took sends, as far as known", null=True),
                ),
                ("writes_back_at", models.DateTimeField(null=True)),
                (
                    "measured_how",
                    models.CharField(blank=True, db_default="", help_text="between which two moments", max_length=512),
                ),
                (
                    "superseded_at",
                    models.DateTimeField(help_text="another epoch began before anything was written", null=True),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="failovers", to="clusters.cluster"
                    ),
                ),
                (
                    "operation",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="failover",
                        to="clusters.operation",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
            },
        ),
        migrations.CreateModel(
            name="GroupLeadership",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("epoch", models.BigIntegerField(default=0)),
                ("led_at", models.DateTimeField(null=True)),
                ("led_epoch", models.BigIntegerField(null=True)),
                ("led_to_offset", models.BigIntegerField(help_text="where its log ended", null=True)),
                (
                    "group",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="leadership",
                        to="clusters.brokergroup",
                    ),
                ),
                (
                    "leader",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="clusters.replica"
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="ReplicaSample",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("sampled_at", models.DateTimeField()),
                ("last_seen_at", models.DateTimeField(null=True)),
                ("unreachable_since", models.DateTimeField(null=True)),
                ("error", models.CharField(blank=True, max_length=512)),
                (
                    "process_ended_at",
                    models.DateTimeField(help_text="when the supervisor saw it end, while it is away", null=True),
                ),
                (
                    "role",
                    models.CharField(
                        blank=True, help_text="master or slave; empty before it ever answered", max_length=16
                    ),
                ),
                ("epoch", models.BigIntegerField(null=True)),
                ("log_epoch", models.BigIntegerField(null=True)),
                ("end_offset", models.BigIntegerField(null=True)),
                ("durable_offset", models.BigIntegerField(null=True)),
                ("held_offset", models.BigIntegerField(null=True)),
                ("confirm_offset", models.BigIntegerField(null=True)),
                (
                    "gap_bytes",
                    models.BigIntegerField(
                        help_text="behind the master, as the master counts; null when unknown", null=True
                    ),
                ),
                ("gap_messages", models.BigIntegerField(null=True)),
                ("in_sync", models.BooleanField(null=True)),
                ("accepts_sends", models.BooleanField(null=True)),
                ("refusal", models.CharField(blank=True, max_length=512)),
                (
                    "claims",
                    models.BooleanField(
                        help_text="it led when it stopped, and waits for every other replica's agreement to lead again",
                        null=True,
                    ),
                ),
                ("promotable", models.BooleanField(null=True)),
                ("not_promotable_because", models.CharField(blank=True, max_length=512)),
                ("log_may_be_incomplete", models.BooleanField(db_default=False, default=False)),
                (
                    "shows_below",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="a leader shows readers what too few hold, while too few are in sync",
                    ),
                ),
                (
                    "in_sync_epoch",
                    models.BigIntegerField(
                        help_text="whose leader had shown nothing, until in_sync_until, that", null=True
                    ),
                ),
                ("in_sync_until", models.DateTimeField(help_text="this replica does not hold", null=True)),
                (
                    "disk",
                    models.CharField(
                        blank=True, db_default="", help_text="the last one whose word counted", max_length=32
                    ),
                ),
                (
                    "disk_is_new",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="another disk took its place, and has not caught up yet",
                    ),
                ),
                (
                    "diverged_files",
                    models.IntegerField(help_text="saved cuts of a log that parted from its leader's", null=True),
                ),
                (
                    "quorum",
                    models.JSONField(
                        help_text="mqwire's QuorumStatus: state, vote, voters, as it reported them", null=True
                    ),
                ),
                (
                    "last_pull_at",
                    models.DateTimeField(help_text="when it last pulled, as its leader counts", null=True),
                ),
                (
                    "replica",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE, related_name="sample", to="clusters.replica"
                    ),
                ),
            ],
            options={
                "abstract": False,
            },
        ),
        migrations.CreateModel(
            name="FailoverStep",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("name", models.CharField(max_length=32)),
                ("happened_at", models.DateTimeField()),
                ("detail", models.CharField(blank=True, max_length=1024)),
                (
                    "failover",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="timeline", to="failover.failover"
                    ),
                ),
            ],
            options={
                "ordering": ["happened_at", "created_at"],
                "constraints": [models.UniqueConstraint(fields=("failover", "name"), name="failover_step_once")],
            },
        ),
    ]
