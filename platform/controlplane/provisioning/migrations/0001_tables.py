import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    # `replaces`: databases that were made by earlier migrations have these tables and are not touched.
    replaces = [("provisioning", "0001_initial")]

    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="PortLease",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("host", models.CharField(max_length=253)),
                ("port", models.PositiveIntegerField()),
                ("cluster_id", models.UUIDField(db_index=True)),
                ("holder", models.UUIDField(help_text="id of the NameServer or Replica")),
                ("purpose", models.CharField(help_text="listenPort, haListenPort, ...", max_length=32)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("host", "port"), name="port_lease_host_port")],
            },
        ),
    ]
