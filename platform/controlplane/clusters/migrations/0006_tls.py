"""A certificate authority for each new cluster. Clusters that were made before have none, and no TLS."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("clusters", "0005_accounts_reach_every_daemon")]

    operations: ClassVar = [
        migrations.AddField(
            model_name="cluster",
            name="tls_ca",
            field=models.TextField(
                blank=True, db_default="", help_text="PEM of the CA that signs the daemons' certificates; empty: no TLS"
            ),
        ),
        migrations.AddField(model_name="cluster", name="tls_ca_key_encrypted", field=models.BinaryField(null=True)),
        migrations.AddField(
            model_name="cluster",
            name="tls_renew_at",
            field=models.DateTimeField(null=True, help_text="when the daemons get fresh certificates"),
        ),
    ]
