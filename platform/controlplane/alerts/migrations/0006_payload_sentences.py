from django.db import migrations

import controlplane.common.sentences


class Migration(migrations.Migration):
    """What is in the rows is plain English, which both fields read as it is."""

    dependencies = [
        ("alerts", "0005_channel_makers"),
    ]

    operations = [
        migrations.AlterField(
            model_name="alertdelivery",
            name="payload",
            field=controlplane.common.sentences.SentencesField(
                help_text="what a webhook gets; other kinds get the same as text, e-mail in its readers' languages"
            ),
        ),
        migrations.AlterField(
            model_name="alertdelivery",
            name="error",
            field=controlplane.common.sentences.SentenceField(blank=True),
        ),
    ]
