"""The form of a cluster's broker configuration, made of the table of keys."""

from collections.abc import Mapping
from typing import Any

from django import forms

from controlplane.clusters.broker_keys import SUBJECTS, Kind, Subject, Value
from controlplane.clusters.configuration import Configuration, KeyState
from controlplane.common.sentences import say, say_all


class ConfigurationForm(forms.Form):
    """Every key with its wanted value. `version` is the newest change that was shown."""

    version = forms.IntegerField(widget=forms.HiddenInput)
    put_back = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, configuration: Configuration, **kwargs: Any) -> None:
        states = configuration.keys
        kwargs["initial"] = {"version": configuration.version, **{one.key.name: one.wanted for one in states}}
        super().__init__(*args, **kwargs)
        self.states = {state.key.name: state for state in states}
        self.fields.update({state.key.name: _field_of(state) for state in states})

    def subjects(self) -> list[tuple[str, list[tuple[KeyState, forms.BoundField]]]]:
        """Return the keys with their fields, by subject; subjects without a key are left out."""
        grouped: dict[Subject, list[tuple[KeyState, forms.BoundField]]] = {subject: [] for subject in SUBJECTS}
        for name, state in self.states.items():
            grouped[state.key.subject].append((state, self[name]))
        return [(SUBJECTS[subject], keys) for subject, keys in grouped.items() if keys]

    def values(self) -> dict[str, Value]:
        """Return what was typed, by key; call it on a valid form."""
        return {name: self.cleaned_data[name] for name in self.states}

    def changes(self) -> Mapping[str, Any]:
        """Return what is otherwise than wanted now, as the API's `values`; a wrong value as it was typed."""
        if not self.is_bound:
            return {}
        self.is_valid()
        typed = {name: self.cleaned_data.get(name, self[name].data) for name in self.states}
        return {name: value for name, value in typed.items() if value != self.states[name].wanted}


def _field_of(state: KeyState) -> forms.Field:
    key = state.key
    shared: dict[str, Any] = {"label": key.title, "help_text": _help_of(state)}
    if key.kind == Kind.BOOLEAN:
        return forms.BooleanField(required=False, **shared)
    if key.kind == Kind.CHOICE:
        return forms.ChoiceField(choices=key.choices, **shared)
    return forms.IntegerField(min_value=key.least, max_value=key.most, **shared)


def _help_of(state: KeyState) -> str:
    key = state.key
    if key.kind == Kind.INTEGER:
        allowed = say(
            "From %(least)s to %(most)s; default %(default)s.",
            least=f"{key.least:,}",
            most=f"{key.most:,}",
            default=state.default_shown,
        )
    else:
        allowed = say("Default: %(default)s.", default=state.default_shown)
    return say_all(key.help, allowed)
