"""When a cluster's metering was sealed. Of clusters that were deleted before, nothing is left to be ingested: they are billed
by what is known.
"""

from django.db import migrations, models

DELETED_BEFORE = """
insert into insight_cluster_progress (cluster_id, sealed_at, agreed_until, agreed_reason)
select id, deleted_at, deleted_at, 'The cluster was deleted before metering was sealed at a deletion.'
from clusters_cluster where state = 'deleted' and deleted_at is not null
on conflict (cluster_id) do nothing
"""


class Migration(migrations.Migration):
    dependencies = [("insight", "0004_cluster_progress")]

    operations = [
        migrations.AddField(
            model_name="clusterprogress",
            name="sealed_at",
            field=models.DateTimeField(help_text="metering was sealed here: no record follows", null=True),
        ),
        migrations.RunSQL(DELETED_BEFORE, migrations.RunSQL.noop),
    ]
