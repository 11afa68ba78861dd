"""Forms of consumer groups."""

from collections.abc import Sequence
from typing import Any

from django import forms

from controlplane.console.billing_forms import UtcMoment
from controlplane.console.forms import Choice
from controlplane.consumers.models import ResetTarget
from controlplane.consumers.services import SHIFT_MAX, Target


class OffsetResetForm(forms.Form):
    """Where a group is to go on in one of its topics."""

    topic = forms.ChoiceField(label="Topic")
    target = forms.ChoiceField(
        label="Go on",
        widget=forms.RadioSelect,
        choices=[
            (ResetTarget.EARLIEST, Choice("From the beginning", "All messages that are still stored come again.")),
            (ResetTarget.LATEST, Choice("At the end", "What waits now is skipped.")),
            (ResetTarget.TIME, Choice("At a time", "With the first message stored then or later.")),
            (ResetTarget.SHIFT, Choice("By a number of messages", "In each queue, on or back.")),
            (ResetTarget.GROUP, Choice("Where another group is", "Queue by queue.")),
        ],
    )
    at = UtcMoment(label="Time (UTC)", help_text="For “At a time”.", required=False)
    shift = forms.IntegerField(
        label="Messages",
        required=False,
        min_value=-SHIFT_MAX,
        max_value=SHIFT_MAX,
        help_text="For “By a number of messages”: below 0 for back.",
    )
    source_group = forms.CharField(
        label="Other group", required=False, max_length=255, help_text="For “Where another group is”."
    )

    def __init__(self, *args: Any, topics: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["topic"] = forms.ChoiceField(label="Topic", choices=[(name, name) for name in topics])

    def wanted(self) -> Target:
        """Return the target of a valid form."""
        values = self.cleaned_data
        return Target(ResetTarget(values["target"]), values["at"], values["shift"], values["source_group"])
