import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("common", "0001_tables"),
    ]

    operations = [
        migrations.CreateModel(
            name="MailTaken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("mail", models.CharField(help_text="what the caller of `mail_each` named it", max_length=64)),
                ("language", models.CharField(max_length=16)),
                ("taken_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("mail", "language"), name="mail_taken_once")],
            },
        ),
    ]
