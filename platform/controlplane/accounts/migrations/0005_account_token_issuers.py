from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def issuers_of_account_tokens(apps: StateApps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Note who issued the service accounts' tokens that there are: a person, or the issuer of the token that did."""
    alias = schema_editor.connection.alias
    token = apps.get_model("accounts", "ApiToken").objects.using(alias)
    users = {user.email: user.pk for user in apps.get_model("accounts", "User").objects.using(alias).all()}
    issuers = {one.public_id: one.issuer_id or one.user_id for one in token.all()}
    for one in token.filter(service_account__isnull=False, issuer=None).order_by("created_at"):
        # "token NAME (PUBLIC_ID)", as actors are labelled
        issuer = users.get(one.created_by) or issuers.get(one.created_by.rpartition("(")[2].rstrip(")"))
        if issuer is not None:
            token.filter(pk=one.pk).update(issuer_id=issuer)
            issuers[one.public_id] = issuer


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_service_accounts"),
    ]

    operations = [
        migrations.RunPython(issuers_of_account_tokens, migrations.RunPython.noop),
    ]
