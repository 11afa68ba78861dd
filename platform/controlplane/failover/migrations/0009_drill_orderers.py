"""Who is asked again for the right to a drill when its window opens. Of earlier orders, people are known by their address."""

import django.db.models.deletion
from django.apps.registry import Apps
from django.conf import settings
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def people_find(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    """Note the person of each order that waits; a token's is to be made again."""
    users = apps.get_model("accounts", "User")
    for window in apps.get_model("failover", "DrillWindow").objects.filter(state="waiting"):
        window.orderer = users.objects.filter(email=window.requested_by).first()
        window.save(update_fields=["orderer"])


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("failover", "0008_asked_to_lead"),
    ]

    operations = [
        migrations.AddField(
            model_name="drillwindow",
            name="orderer",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="drillwindow",
            name="orderer_token",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="accounts.apitoken"
            ),
        ),
        migrations.AddField(
            model_name="drillwindow",
            name="by_platform",
            field=models.BooleanField(default=False),
        ),
        migrations.RunPython(people_find, migrations.RunPython.noop),
    ]
