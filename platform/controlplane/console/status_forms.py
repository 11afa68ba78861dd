"""Forms of the operators' page of incidents and maintenance. They check shapes only; the rules are the service's."""

from datetime import timedelta
from typing import Any

from django import forms
from django.utils import timezone

from controlplane.common.sentences import say
from controlplane.console.acts import form_values
from controlplane.console.billing_forms import UtcMoment
from controlplane.status.models import Impact, IncidentState, Part
from controlplane.status.services import TEXT_LENGTH_MAX, TITLE_LENGTH_MAX

_TEXT = forms.Textarea(attrs={"rows": 4})


def _parts() -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(
        choices=Part.choices, widget=forms.CheckboxSelectMultiple, label=say("Affected parts")
    )


class IncidentForm(forms.Form):
    """A new incident."""

    title = forms.CharField(max_length=TITLE_LENGTH_MAX, label=say("Title"))
    text = forms.CharField(
        max_length=TEXT_LENGTH_MAX,
        widget=_TEXT,
        label=say("What everyone should know"),
        help_text=say("Shown to strangers, too: name no tenant."),
    )
    impact = forms.ChoiceField(choices=Impact.choices, initial=Impact.DEGRADED, label=say("Impact"))
    parts = _parts()

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example's values before that."""
        return {"title": "The API is slow", "text": "We look into it.", "parts": [Part.API.value], **form_values(self)}


class IncidentUpdateForm(forms.Form):
    """What is new of an incident."""

    state = forms.ChoiceField(choices=IncidentState.choices, label=say("State"))
    text = forms.CharField(max_length=TEXT_LENGTH_MAX, widget=_TEXT, label=say("What is new"))

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example's text before that."""
        return {"text": "A fix is out.", **form_values(self)}


class MaintenanceForm(forms.Form):
    """A new window of planned work."""

    title = forms.CharField(max_length=TITLE_LENGTH_MAX, label=say("Title"))
    text = forms.CharField(max_length=TEXT_LENGTH_MAX, widget=_TEXT, label=say("What everyone should know"))
    parts = _parts()
    starts_at = UtcMoment(label=say("Starts"), help_text=say("In UTC."))
    ends_at = UtcMoment(label=say("Ends"), help_text=say("In UTC; at most a week later."))

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example's values before that."""
        begin = timezone.now().replace(minute=0, second=0, microsecond=0) + timedelta(days=7)
        example = {
            "title": "New disks",
            "text": "Short breaks of each cluster.",
            "parts": [Part.NAME_SERVERS.value],
            "starts_at": begin,
            "ends_at": begin + timedelta(hours=2),
        }
        values = {**example, **form_values(self)}
        return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in values.items()}
