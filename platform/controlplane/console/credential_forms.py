"""The form of a key pair's own quotas."""

from typing import Any

from django import forms

from controlplane.clusters.credential_quotas import quota_most
from controlplane.clusters.models import Credential
from controlplane.common.sentences import say
from controlplane.console.edit_forms import EditForm
from controlplane.console.forms import SizeField
from controlplane.console.templatetags.console import byte_size, number


class CredentialQuotasForm(EditForm):
    """What one key pair may take of each broker. Empty: as the tenant's limits say."""

    quota_messages_per_second = forms.IntegerField(required=False, label=say("Messages a second"))
    quota_bytes_per_second = SizeField(required=False, label=say("Bytes a second"))
    quota_connections = forms.IntegerField(required=False, label=say("Connections"))
    quota_held_pulls = forms.IntegerField(required=False, label=say("Pulls that wait for messages"))

    def __init__(self, *args: Any, credential: Credential, **kwargs: Any) -> None:
        kwargs["initial"] = credential.own_quotas
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            most = quota_most(credential.cluster.tenant, name)
            shown = byte_size(most) if isinstance(field, SizeField) else number(most)
            field.help_text = say("At most, and when left empty, the tenant’s limit: %(most)s.", most=shown)

    def body(self) -> dict[str, object]:
        """Return all four as the API's request; a wrong value as it was typed."""
        if not self.is_bound:
            return dict(self.initial)
        self.is_valid()  # reads what was typed
        return {name: self.cleaned_data.get(name, self[name].data) for name in self.fields}
