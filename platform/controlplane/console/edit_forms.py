"""Forms of what several people may change at once."""

import json
from typing import Any

from django import forms


class EditForm(forms.Form):
    """Sends back what it showed, so that only what this person changed is changed: what someone else has changed since the page
    was shown stays, though the form still holds what was there before.
    """

    @property
    def shown_name(self) -> str:
        """The name of the hidden input that holds `shown`."""
        return self.add_prefix("shown")

    def shown(self) -> str:
        """Return, as JSON, the values by field that the page showed first."""
        if self.is_bound and self.shown_name in self.data:
            return str(self.data[self.shown_name])
        return json.dumps(self._initial_values())

    def changed(self) -> dict[str, Any]:
        """Return what is otherwise than it was shown, by field; call it on a valid form. All, where nothing says what that was."""
        try:
            shown = json.loads(str(self.data.get(self.shown_name, "")))
        except (ValueError, RecursionError):
            shown = None
        if not isinstance(shown, dict):
            return dict(self.cleaned_data)
        return {name: new for name, new in self.cleaned_data.items() if name not in shown or shown[name] != new}

    def _initial_values(self) -> dict[str, Any]:
        """Return the initial values as a valid form would give them; without those that a form refuses."""
        found = {}
        for name, field in self.fields.items():
            try:
                found[name] = field.clean(self.get_initial_for_field(field, name))
            except forms.ValidationError:
                continue
        return found
