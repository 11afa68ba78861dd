"""The form of a topic's schema. It checks shapes only; what a schema is, is the service's."""

import base64
from typing import Any

from django import forms
from django.utils.translation import gettext

from controlplane.common.schema import EXAMPLES
from controlplane.common.sentences import say
from controlplane.console.forms import CODE_INPUT
from controlplane.topics.models import TopicSchema
from controlplane.topics.protobuf_bodies import MESSAGE_NAME_MAX_CHARACTERS, SCHEMA_MAX_BYTES

_EXAMPLE = EXAMPLES["TopicSchemaSetRequest"]


class SchemaForm(forms.Form):
    """A compiled schema, and which of its messages the bodies are. Without a file the set that is `given` stays."""

    message = forms.CharField(
        max_length=MESSAGE_NAME_MAX_CHARACTERS,
        label=say("Protobuf message"),
        help_text=say("Its full name with the package, such as shop.Order."),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    descriptor_set = forms.FileField(label=say("Compiled schema"))

    def __init__(self, data: Any = None, files: Any = None, *, given: TopicSchema | None) -> None:
        super().__init__(data, files, initial={"message": given.message if given else ""})
        self.given = given
        field = self.fields["descriptor_set"]
        field.required = given is None
        field.help_text = (
            say("A file of at most %(most)s KiB.", most=SCHEMA_MAX_BYTES // 1024)
            if given is None
            else say(
                "A file of at most %(most)s KiB. Without one the file from before stays.", most=SCHEMA_MAX_BYTES // 1024
            )
        )

    def clean_descriptor_set(self) -> bytes | None:
        """Return the file's bytes; None without a file."""
        file = self.cleaned_data["descriptor_set"]
        if file is None:
            return None
        if file.size > SCHEMA_MAX_BYTES:
            raise forms.ValidationError(gettext("At most %(most)s KiB.") % {"most": SCHEMA_MAX_BYTES // 1024})
        found: bytes = file.read()
        return found

    def values(self) -> dict[str, Any]:
        """Return what the service takes; call it on a valid form."""
        chosen = self.cleaned_data["descriptor_set"]
        kept = b"" if self.given is None else bytes(self.given.descriptor_set)
        return {"message": self.cleaned_data["message"], "descriptor_set": kept if chosen is None else chosen}

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example before that and for a file that is not chosen."""
        if not self.is_bound:
            return dict(_EXAMPLE)
        self.is_valid()  # reads what was typed
        chosen = self.cleaned_data.get("descriptor_set")
        encoded = _EXAMPLE["descriptor_set"] if chosen is None else base64.b64encode(chosen).decode("ascii")
        return {"message": self["message"].data or _EXAMPLE["message"], "descriptor_set": encoded}
