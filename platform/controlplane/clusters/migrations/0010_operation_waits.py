from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0009_cancelled_operations"),
    ]

    operations = [
        migrations.AddField(
            model_name="operation",
            name="waits",
            field=models.BooleanField(
                default=False, help_text="for other operations of its tenant; nothing of it has begun"
            ),
        ),
    ]
