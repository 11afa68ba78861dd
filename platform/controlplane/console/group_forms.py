"""Forms of consumer groups."""

from collections.abc import Sequence
from typing import Any

from django import forms

from controlplane.console.billing_forms import UtcMoment
from controlplane.console.curl import form_values
from controlplane.console.forms import Choice
from controlplane.consumers.models import ReplayTarget, ResetTarget
from controlplane.consumers.replays import RATE_MAX, ReplayWish, places_of
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


class ReplayForm(forms.Form):
    """How dead letters are sent again. Which ones stands in the boxes of their table."""

    which = forms.ChoiceField(
        label="Replay",
        widget=forms.RadioSelect,
        initial="selected",
        choices=[
            ("selected", Choice("The selected ones", "Tick them in the table.")),
            ("all", Choice("All that are stored now", "Also those that the table doesn’t show.")),
        ],
    )
    target = forms.ChoiceField(
        label="Send them to",
        widget=forms.RadioSelect,
        initial=ReplayTarget.RETRY_TOPIC,
        choices=[
            (ReplayTarget.RETRY_TOPIC, Choice("This group’s retry topic", "Only this group gets them again.")),
            (
                ReplayTarget.ORIGINAL_TOPIC,
                Choice("Their original topics", "Every group that consumes those gets them again."),
            ),
        ],
    )
    rate_per_second = forms.IntegerField(
        label="Messages per second", initial=10, min_value=1, max_value=RATE_MAX, help_text=f"At most {RATE_MAX}."
    )
    stop_after_failures = forms.IntegerField(
        label="Stop after failed sends", initial=10, min_value=0, max_value=10**6, help_text="0: never."
    )
    stop_after_new_dead = forms.IntegerField(
        label="Stop after new dead letters", initial=100, min_value=0, max_value=10**6, help_text="0: never."
    )

    def wish(self, chosen: Sequence[str]) -> ReplayWish:
        """Return what a valid form asks for."""
        values = self.cleaned_data
        return ReplayWish(
            target=ReplayTarget(values["target"]),
            rate_per_second=values["rate_per_second"],
            stop_after_failures=values["stop_after_failures"],
            stop_after_new_dead=values["stop_after_new_dead"],
            places=None if values["which"] == "all" else places_of(chosen),
        )

    def body_sent(self, chosen: Sequence[str]) -> dict[str, Any]:
        """Return what the API would be sent for what was typed so far."""
        body = form_values(self)
        if body.pop("which", "selected") != "all":
            body["places"] = list(chosen) or ["broker-a:0:0"]
        return body
