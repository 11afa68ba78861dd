import uuid

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [
        ("clusters", "0001_initial"),
        ("clusters", "0002_failover"),
        ("clusters", "0003_dledger"),
        ("clusters", "0004_mode_changes"),
        ("clusters", "0005_accounts_reach_every_daemon"),
        ("clusters", "0006_tls"),
        ("clusters", "0007_recovery"),
    ]

    initial = True

    dependencies = [
        ("tenants", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="Cluster",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("slug", models.SlugField(max_length=40)),
                ("name", models.CharField(max_length=100)),
                (
                    "mode",
                    models.CharField(
                        choices=[
                            ("single", "Single"),
                            ("multi", "Multi"),
                            ("async", "Async"),
                            ("sync", "Sync"),
                            ("dledger", "DLedger"),
                        ],
                        default="single",
                        max_length=16,
                    ),
                ),
                (
                    "founded_mode",
                    models.CharField(
                        blank=True,
                        db_default="",
                        help_text="the mode at its creation, when it is another one by now",
                        max_length=16,
                    ),
                ),
                (
                    "flush_disk_type",
                    models.CharField(
                        choices=[("ASYNC_FLUSH", "Async Flush"), ("SYNC_FLUSH", "Sync Flush")],
                        default="ASYNC_FLUSH",
                        max_length=16,
                    ),
                ),
                (
                    "failover_policy",
                    models.CharField(
                        choices=[("manual", "Manual"), ("automatic_when_lossless", "Automatic When Lossless")],
                        db_default="manual",
                        default="manual",
                        max_length=32,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("requested", "Requested"),
                            ("provisioning", "Provisioning"),
                            ("running", "Running"),
                            ("failed", "Failed"),
                            ("deleting", "Deleting"),
                            ("deleted", "Deleted"),
                        ],
                        default="requested",
                        max_length=16,
                    ),
                ),
                ("error", models.JSONField(help_text="{cause, hint} of the last failure", null=True)),
                (
                    "tls_ca",
                    models.TextField(
                        blank=True,
                        db_default="",
                        help_text="PEM of the CA that signs the daemons' certificates; empty: no TLS",
                    ),
                ),
                ("tls_ca_key_encrypted", models.BinaryField(null=True)),
                ("tls_renew_at", models.DateTimeField(help_text="when the daemons get fresh certificates", null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="clusters", to="tenants.tenant"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="BrokerGroup",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("name", models.CharField(max_length=64)),
                (
                    "founding_peers",
                    models.CharField(
                        blank=True,
                        db_default="",
                        help_text="dLegerPeers at its foundation; later ones restart no replica",
                        max_length=1024,
                    ),
                ),
                ("preferred_leader", models.PositiveIntegerField(help_text="replica id, as last asked for", null=True)),
                (
                    "replica_ids_used",
                    models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="ids below this one were given out: an id is never a second replica's",
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="broker_groups", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Credential",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("name", models.CharField(max_length=100)),
                ("access_key", models.CharField(max_length=64)),
                ("secret_encrypted", models.BinaryField()),
                ("role", models.CharField(choices=[("admin", "Admin"), ("app", "App")], default="app", max_length=16)),
                ("is_control", models.BooleanField(default=False)),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("active", "Active"), ("deleting", "Deleting")],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("default_topic_perm", models.CharField(default="PUB|SUB", max_length=16)),
                ("default_group_perm", models.CharField(default="SUB", max_length=16)),
                ("topic_perms", models.JSONField(default=dict, help_text="topic -> DENY | PUB | SUB | PUB|SUB")),
                ("group_perms", models.JSONField(default=dict, help_text="group -> DENY | SUB")),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="credentials", to="clusters.cluster"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="NameServer",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("host", models.CharField(max_length=253)),
                ("port", models.PositiveIntegerField(help_text="listenPort; null until allocated", null=True)),
                ("data_dir", models.CharField(blank=True, max_length=1024)),
                (
                    "health",
                    models.CharField(
                        choices=[("unknown", "Unknown"), ("healthy", "Healthy"), ("down", "Down")],
                        default="unknown",
                        max_length=16,
                    ),
                ),
                ("health_message", models.CharField(blank=True, max_length=1024)),
                ("health_since", models.DateTimeField(help_text="when `health` took its present value", null=True)),
                ("sampled_at", models.DateTimeField(null=True)),
                ("process_state", models.CharField(blank=True, help_text="the supervisor's word", max_length=32)),
                ("process_started_at", models.DateTimeField(null=True)),
                ("position", models.PositiveSmallIntegerField()),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="name_servers", to="clusters.cluster"
                    ),
                ),
            ],
            options={
                "ordering": ["position"],
            },
        ),
        migrations.CreateModel(
            name="Operation",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "type",
                    models.CharField(
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
                            ("group.recover", "Group Recover"),
                        ],
                        max_length=32,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("in_progress", "In Progress"), ("completed", "Completed"), ("failed", "Failed")],
                        default="in_progress",
                        max_length=16,
                    ),
                ),
                ("resource", models.CharField(help_text="API path of what is being changed", max_length=512)),
                ("requested_by", models.CharField(max_length=254)),
                ("metadata", models.JSONField(default=dict)),
                ("error", models.JSONField(help_text="{cause, hint, step}", null=True)),
                ("started_at", models.DateTimeField(auto_now_add=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="operations", to="clusters.cluster"
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="operations", to="tenants.tenant"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OperationStep",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("position", models.PositiveSmallIntegerField()),
                ("name", models.CharField(max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("claim", models.UUIDField(null=True)),
                ("lease_until", models.DateTimeField(null=True)),
                ("not_before", models.DateTimeField(help_text="a waiting step looks again at this time", null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                (
                    "message",
                    models.CharField(blank=True, help_text="what it waits for, or how it ended", max_length=1024),
                ),
                (
                    "operation",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="steps", to="clusters.operation"
                    ),
                ),
            ],
            options={
                "ordering": ["position"],
            },
        ),
        migrations.CreateModel(
            name="Replica",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("host", models.CharField(max_length=253)),
                ("port", models.PositiveIntegerField(help_text="listenPort; null until allocated", null=True)),
                ("data_dir", models.CharField(blank=True, max_length=1024)),
                (
                    "health",
                    models.CharField(
                        choices=[("unknown", "Unknown"), ("healthy", "Healthy"), ("down", "Down")],
                        default="unknown",
                        max_length=16,
                    ),
                ),
                ("health_message", models.CharField(blank=True, max_length=1024)),
                ("health_since", models.DateTimeField(help_text="when `health` took its present value", null=True)),
                ("sampled_at", models.DateTimeField(null=True)),
                ("process_state", models.CharField(blank=True, help_text="the supervisor's word", max_length=32)),
                ("process_started_at", models.DateTimeField(null=True)),
                ("broker_id", models.PositiveIntegerField(default=0)),
                ("broker_role", models.CharField(blank=True, default="ASYNC_MASTER", max_length=16)),
                (
                    "registered",
                    models.BooleanField(help_text="known to every name server; null when not sampled", null=True),
                ),
                (
                    "fenced",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="a failover stopped it: no one starts it until that is done",
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="replicas", to="clusters.brokergroup"
                    ),
                ),
            ],
            options={
                "ordering": ["broker_id"],
            },
        ),
        migrations.AddConstraint(
            model_name="cluster",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "deleted"), _negated=True),
                fields=("tenant", "slug"),
                name="cluster_tenant_slug",
            ),
        ),
        migrations.AddConstraint(
            model_name="brokergroup",
            constraint=models.UniqueConstraint(fields=("cluster", "name"), name="broker_group_cluster_name"),
        ),
        migrations.AddConstraint(
            model_name="credential",
            constraint=models.UniqueConstraint(fields=("cluster", "access_key"), name="credential_cluster_access_key"),
        ),
        migrations.AddConstraint(
            model_name="credential",
            constraint=models.UniqueConstraint(
                condition=models.Q(("is_control", True)), fields=("cluster",), name="credential_one_control"
            ),
        ),
        migrations.AddConstraint(
            model_name="nameserver",
            constraint=models.UniqueConstraint(fields=("cluster", "position"), name="name_server_cluster_position"),
        ),
        migrations.AddConstraint(
            model_name="nameserver",
            constraint=models.UniqueConstraint(fields=("host", "port"), name="name_server_host_port"),
        ),
        migrations.AddConstraint(
            model_name="operation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "in_progress")), fields=("cluster",), name="operation_one_at_a_time"
            ),
        ),
        migrations.AddConstraint(
            model_name="operationstep",
            constraint=models.UniqueConstraint(fields=("operation", "position"), name="operation_step_position"),
        ),
        migrations.AddConstraint(
            model_name="replica",
            constraint=models.UniqueConstraint(fields=("group", "broker_id"), name="replica_group_broker_id"),
        ),
        migrations.AddConstraint(
            model_name="replica",
            constraint=models.UniqueConstraint(fields=("host", "port"), name="replica_host_port"),
        ),
    ]
