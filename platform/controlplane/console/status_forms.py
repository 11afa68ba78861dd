"""Forms of the operators' page of incidents and maintenance. They check shapes only; the rules are the service's."""

from typing import Any

from django import forms

from controlplane.common.sentences import say
from controlplane.console.billing_forms import UtcMoment
from controlplane.console.curl import form_values
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
    impact = forms.ChoiceField(choices=Impact.choices, label=say("Impact"))
    parts = _parts()

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far."""
        return form_values(self)


class IncidentUpdateForm(forms.Form):
    """What is new of an incident."""

    state = forms.ChoiceField(choices=IncidentState.choices, label=say("State"))
    text = forms.CharField(max_length=TEXT_LENGTH_MAX, widget=_TEXT, label=say("What is new"))

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far."""
        return form_values(self)


class MaintenanceForm(forms.Form):
    """A new window of planned work."""

    title = forms.CharField(max_length=TITLE_LENGTH_MAX, label=say("Title"))
    text = forms.CharField(max_length=TEXT_LENGTH_MAX, widget=_TEXT, label=say("What everyone should know"))
    parts = _parts()
    starts_at = UtcMoment(label=say("Starts"), help_text=say("In UTC."))
    ends_at = UtcMoment(label=say("Ends"), help_text=say("In UTC; at most a week later."))

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far."""
        values = form_values(self)
        return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in values.items()}
