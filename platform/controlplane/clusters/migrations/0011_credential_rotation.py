import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0010_operation_waits"),
    ]

    operations = [
        migrations.AddField(
            model_name="credential",
            name="ends_at",
            field=models.DateTimeField(help_text="refused everywhere from then on, and deleted", null=True),
        ),
        migrations.AddField(
            model_name="credential",
            name="replaced_by",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="replaces",
                to="clusters.credential",
            ),
        ),
    ]
