"""Members become developers; admin and billing are new."""

from django.db import migrations, models

_RENAMED = """
update tenants_membership set role = 'developer' where role = 'member';
update tenants_invitation set role = 'developer' where role = 'member';
update accounts_apitoken set role = 'developer' where role = 'member';
"""


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_tokens"),
        ("tenants", "0001_tables"),
    ]

    operations = [
        migrations.AlterField(
            model_name="invitation",
            name="role",
            field=models.CharField(
                choices=[
                    ("owner", "Owner"),
                    ("admin", "Admin"),
                    ("operator", "Operator"),
                    ("developer", "Developer"),
                    ("billing", "Billing"),
                    ("viewer", "Viewer"),
                ],
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="membership",
            name="role",
            field=models.CharField(
                choices=[
                    ("owner", "Owner"),
                    ("admin", "Admin"),
                    ("operator", "Operator"),
                    ("developer", "Developer"),
                    ("billing", "Billing"),
                    ("viewer", "Viewer"),
                ],
                default="developer",
                max_length=16,
            ),
        ),
        migrations.RunSQL(
            _RENAMED, _RENAMED.replace("'developer' where role = 'member'", "'member' where role = 'developer'")
        ),
    ]
