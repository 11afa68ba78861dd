"""Which replica missed a credential is no longer noted: each says which version of the accounts it has."""

from typing import ClassVar

from django.db import migrations


class Migration(migrations.Migration):
    dependencies: ClassVar = [("clusters", "0004_mode_changes")]

    operations: ClassVar = [migrations.RemoveField(model_name="replica", name="acl_stale")]
