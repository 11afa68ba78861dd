from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0011_credential_rotation"),
    ]

    operations = [
        migrations.AddField(
            model_name="cluster",
            name="tls_next_key_encrypted",
            field=models.BinaryField(help_text="of the CA that will sign, while there is one", null=True),
        ),
        migrations.AlterField(
            model_name="cluster",
            name="tls_ca",
            field=models.TextField(
                blank=True,
                db_default="",
                help_text="PEM of the CA that signs the daemons' certificates, and of its successor or predecessor; empty: no TLS",
            ),
        ),
    ]
