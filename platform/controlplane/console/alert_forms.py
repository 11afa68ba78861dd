"""Forms of alerts: who looks after one, silences, and the rules of a cluster."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms

from controlplane.alerts.kinds import DURATION_MAX_S, KIND_CHOICES, MEBIBYTE, Kind, Rule, figure
from controlplane.alerts.services import SILENCE_MAX
from controlplane.common.sentences import say, say_as
from controlplane.console.edit_forms import EditForm

# What people type, for each unit that the API counts in.
_TYPED_AS = {"bytes": ("MiB", MEBIBYTE), "percent": ("%", 1)}
_LENGTHS = [
    ("1", say("1 hour")),
    ("4", say("4 hours")),
    ("24", say("1 day")),
    ("168", say("7 days")),
    (str(SILENCE_MAX.days * 24), say("30 days")),
]


class AcknowledgeForm(forms.Form):
    """Someone looks after an alert."""

    note = forms.CharField(
        label=say("Note"),
        required=False,
        max_length=500,
        help_text=say("What others should know: who does what, until when."),
    )


class SilenceForm(forms.Form):
    """Notify no one of an alert for a time."""

    hours = forms.ChoiceField(label=say("For"), choices=_LENGTHS)
    reason = forms.CharField(label=say("Why"), max_length=500)

    def until(self, now: datetime) -> datetime:
        """Return when it ends; a minute early, so that the longest is not refused for the time that sending it takes."""
        return now + timedelta(hours=int(self.cleaned_data["hours"])) - timedelta(minutes=1)


class TenantSilenceForm(SilenceForm):
    """The same for clusters and kinds that are chosen."""

    cluster = forms.ChoiceField(label=say("Cluster"), required=False)
    kind = forms.ChoiceField(label=say("Kind"), required=False, choices=[("", say("Every kind")), *KIND_CHOICES])

    field_order = ("cluster", "kind", "hours", "reason")

    def __init__(self, *args: Any, clusters: list[tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", say("Every cluster")), *clusters]


class RuleForm(EditForm):
    """The rule of one kind in one cluster."""

    is_on = forms.BooleanField(label=say("Watch it"), required=False)
    threshold = forms.FloatField()
    duration_s = forms.IntegerField(
        label=say("For how long, in seconds"),
        min_value=0,
        max_value=DURATION_MAX_S,
        help_text=say("It has to be wrong for so long before anyone is notified."),
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, rule: Rule) -> None:
        self._kind = rule.kind
        initial = {
            "is_on": rule.is_on,
            "threshold": figure(rule.threshold / typed_as(rule.kind)[1]),
            "duration_s": rule.duration_s,
        }
        super().__init__(data, initial=initial)
        unit, size = typed_as(rule.kind)
        if not rule.kind.has_threshold:
            del self.fields["threshold"]
            return
        field = self.fields["threshold"]
        if rule.kind.is_floor:
            field.label = say("Wrong from here and below, in %(unit)s", unit=unit_words(unit))
        else:
            field.label = say("Wrong from here on, in %(unit)s", unit=unit_words(unit))
        field.help_text = say(
            "%(least)s to %(most)s. The default is %(default)s.",
            least=figure(rule.kind.least / size),
            most=figure(rule.kind.most / size),
            default=figure(rule.kind.threshold / size),
        )

    def changes(self) -> dict[str, Any]:
        """Return what was typed, in the units of the API; what is shown while nothing was typed, too."""
        values = self.cleaned_data if self.is_bound else {name: self[name].initial for name in self.fields}
        return self._in_units({name: value for name, value in values.items() if value is not None})

    def changed(self) -> dict[str, Any]:
        """Return the same of what is otherwise than it was shown."""
        return self._in_units(super().changed())

    def _in_units(self, values: dict[str, Any]) -> dict[str, Any]:
        if "threshold" not in values:
            return values
        return {**values, "threshold": float(values["threshold"]) * typed_as(self._kind)[1]}


_UNITS = {
    "seconds": say("seconds"),
    "messages": say_as("unit", "messages"),
    "hours": say("hours"),
    "days": say("days"),
}


def unit_words(unit: str) -> str:
    """Return a unit as a page says it; what is the same in every language as it is."""
    return _UNITS.get(unit, unit)


def typed_as(kind: Kind) -> tuple[str, float]:
    """Return the unit in which people type a threshold, and how many of the API's units that is."""
    return _TYPED_AS.get(kind.unit, (kind.unit, 1))
