"""Forms of messages that a failover set aside."""

from collections.abc import Sequence
from typing import Any

from django import forms

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say
from controlplane.console.acts import form_values
from controlplane.console.forms import Choice
from controlplane.consumers.paced import RATE_MAX
from controlplane.failover.diverged.resends import ResendWish

_POSITION_DIGITS_MAX = 18


class CutResendForm(forms.Form):
    """How messages of a saved cut are sent again. Which ones stands in the boxes of their table."""

    which = forms.ChoiceField(
        label=say("Send again"),
        widget=forms.RadioSelect,
        initial="selected",
        choices=[
            ("selected", Choice(say("The selected ones"), say("Tick them in the table."))),
            ("all", Choice(say("All messages of this file"), say("Those that the cluster has are skipped."))),
        ],
    )
    rate_per_second = forms.IntegerField(
        label=say("Messages per second"),
        initial=10,
        min_value=1,
        max_value=RATE_MAX,
        help_text=say("At most %(most)s.", most=RATE_MAX),
    )
    stop_after_failures = forms.IntegerField(
        label=say("Stop after failed sends"), initial=10, min_value=0, max_value=10**6, help_text=say("0: never.")
    )

    def wish(self, chosen: Sequence[str]) -> ResendWish:
        """Return what a valid form asks for; raises InvalidInput."""
        values = self.cleaned_data
        return ResendWish(
            rate_per_second=values["rate_per_second"],
            stop_after_failures=values["stop_after_failures"],
            positions=None if values["which"] == "all" else _positions(chosen),
        )

    def body_sent(self, chosen: Sequence[str]) -> dict[str, Any]:
        """Return what the API would be sent for what was typed so far."""
        body = form_values(self)
        if body.pop("which", "selected") != "all":
            body["positions"] = [int(one) for one in chosen if _is_position(one)] or [0]
        return body


class CutDoneForm(forms.Form):
    """What someone notes who has dealt with a saved cut."""

    note = forms.CharField(label=say("Note"), max_length=500, required=False)

    def note_typed(self) -> str:
        """Return the note; empty for one that is too long."""
        return str(self.cleaned_data.get("note", "")) if self.is_valid() else ""


def _is_position(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _POSITION_DIGITS_MAX


def _positions(chosen: Sequence[str]) -> tuple[int, ...]:
    if not all(map(_is_position, chosen)):
        raise InvalidInput.for_field("positions", say("A position is a number."), "invalid")
    return tuple(int(one) for one in chosen)
