"""Forms of stored messages."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from controlplane.common.sentences import say
from controlplane.console.forms import CODE_INPUT, Choice, LongSelect, properties_of
from controlplane.consumers.selectors import Member
from controlplane.topics.bodies import Masking
from controlplane.topics.copies import RESEND_OF, Edit
from controlplane.topics.gateway import BrowsedMessage
from controlplane.topics.tail import FILTER_MAX_CHARACTERS
from highwater.copies import own_properties

KEEP, TEXT, BASE64 = "keep", "text", "base64"


class TailForm(forms.Form):
    """Which messages of a topic are shown as they come. Empty fields want all."""

    tag = forms.CharField(
        label=say("Tag"), max_length=FILTER_MAX_CHARACTERS, required=False, widget=forms.TextInput(attrs=CODE_INPUT)
    )
    key = forms.CharField(
        label=say("Message key"),
        max_length=FILTER_MAX_CHARACTERS,
        required=False,
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    text = forms.CharField(
        label=say("Text in the body"),
        help_text=say("In its beginning, as the table shows it."),
        max_length=FILTER_MAX_CHARACTERS,
        required=False,
    )


class ConsumeForm(forms.Form):
    """Who is to handle a message: a member of the group that was chosen before."""

    group = forms.CharField(max_length=255, widget=forms.HiddenInput)
    client_id = forms.ChoiceField(widget=forms.RadioSelect)

    def __init__(self, data: Any = None, *, group: str, members: Sequence[Member]) -> None:
        super().__init__(data, initial={"group": group, "client_id": members[0].client_id if members else ""})
        self.fields["client_id"] = forms.ChoiceField(
            label=_("Member"),
            widget=forms.RadioSelect,
            choices=[(one.client_id, Choice(one.client_id, f"{one.address}, {one.language}")) for one in members],
        )


class ResendForm(forms.Form):
    """A stored message as it is to be sent again. What is left as it is shown is sent exactly as it was."""

    topic = forms.ChoiceField()
    body_as = forms.ChoiceField(widget=forms.RadioSelect, required=False)
    body = forms.CharField(strip=False, required=False, widget=forms.Textarea(attrs={"rows": 8, **CODE_INPUT}))
    tags = forms.CharField(max_length=255, required=False, widget=forms.TextInput(attrs=CODE_INPUT))
    keys = forms.CharField(max_length=1024, required=False, widget=forms.TextInput(attrs=CODE_INPUT))
    properties = forms.CharField(required=False, strip=False, widget=forms.Textarea(attrs={"rows": 4, **CODE_INPUT}))
    again = forms.BooleanField(required=False)

    def __init__(
        self, data: Any = None, *, message: BrowsedMessage, topic: str, topics: Sequence[str], sent_before: bool
    ) -> None:
        is_text = (
            message.body.encoding == "utf-8" and not message.body.truncated and message.body.masking is Masking.NONE
        )
        self.own_properties = {
            name: value for name, value in own_properties(message.properties).items() if name != RESEND_OF
        }
        shown = {
            "topic": topic,
            "body_as": TEXT if is_text else KEEP,
            "body": _lines(message.body.text) if is_text else "",
            "tags": message.tags,
            "keys": " ".join(message.keys),
            "properties": "\n".join(f"{name}={value}" for name, value in self.own_properties.items()),
        }
        super().__init__(data, initial=shown)
        self.shown = shown
        self.fields["topic"] = forms.ChoiceField(
            label=_("Topic"), choices=[(name, name) for name in topics], widget=LongSelect
        )
        self.fields["body_as"] = forms.ChoiceField(
            label=_("Body"),
            required=False,
            widget=forms.RadioSelect,
            choices=[(KEEP, _("As it is")), (TEXT, _("Text, as UTF-8")), (BASE64, _("Bytes, as base64"))],
        )
        self.fields["body"].label = _("New body")
        self.fields["body"].help_text = _("Not used for “As it is”.")
        self.fields["tags"].label = _("Tag")
        self.fields["keys"].label = _("Keys")
        self.fields["keys"].help_text = _("Separated by blanks.")
        self.fields["properties"].label = _("Properties")
        self.fields["properties"].help_text = _("One per line, as name=value. Delay and retry properties are left out.")
        self.fields["again"].label = _("Send it once more, though it was sent again before")
        if not sent_before:
            del self.fields["again"]

    def clean_properties(self) -> dict[str, str] | None:
        """Return the properties by name, None where they are as shown."""
        typed = str(self.cleaned_data["properties"])
        return None if self._is_shown("properties", typed) else properties_of(typed)

    def clean(self) -> dict[str, Any]:
        """Put the new body's bytes into `bytes`, None where it stays."""
        cleaned: dict[str, Any] = super().clean() or {}
        typed, kind = str(cleaned.get("body", "")), cleaned.get("body_as") or KEEP
        cleaned["bytes"] = None
        if kind == TEXT and not (self.shown["body_as"] == TEXT and self._is_shown("body", typed)):
            cleaned["bytes"] = _lines(typed).encode("utf-8")
        elif kind == BASE64:
            try:
                cleaned["bytes"] = base64.b64decode("".join(typed.split()), validate=True)
            except (binascii.Error, ValueError):
                self.add_error("body", _("This is not base64."))
        return cleaned

    def edit(self) -> Edit:
        """Return what was changed; call it on a valid form."""
        data: Mapping[str, Any] = self.cleaned_data
        return Edit(
            topic=None if self._is_shown("topic", data["topic"]) else data["topic"],
            body=data["bytes"],
            tags=None if self._is_shown("tags", data["tags"]) else data["tags"].strip(),
            keys=None if self._is_shown("keys", data["keys"]) else tuple(data["keys"].split()),
            properties=data["properties"],
        )

    def body_sent(self) -> dict[str, Any]:
        """Return what was changed so far as the API's request."""
        if not self.is_bound or not self.is_valid():
            return {}
        edit = self.edit()
        body: dict[str, Any] = {"topic": edit.topic, "tags": edit.tags, "properties": edit.properties}
        body["keys"] = None if edit.keys is None else list(edit.keys)
        if edit.body is not None and self.cleaned_data["body_as"] == TEXT:
            body["body"] = edit.body.decode("utf-8")
        elif edit.body is not None:
            body["body_base64"] = base64.b64encode(edit.body).decode("ascii")
        body["again"] = self.cleaned_data.get("again") or None
        return {name: value for name, value in body.items() if value is not None}

    def _is_shown(self, name: str, typed: str) -> bool:
        return (
            _lines(typed).strip() == _lines(self.shown[name]).strip()
            if name != "body"
            else _lines(typed) == self.shown[name]
        )


def _lines(text: str) -> str:
    """Browsers send line ends as CRLF, whatever they were."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
