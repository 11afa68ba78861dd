"""Forms of consumer groups."""

from collections.abc import Sequence
from typing import Any

from django import forms

from controlplane.common.sentences import say
from controlplane.console.acts import form_values
from controlplane.console.billing_forms import UtcMoment
from controlplane.console.forms import Choice
from controlplane.consumers.models import ReplayTarget, ResetTarget
from controlplane.consumers.paced import RATE_MAX
from controlplane.consumers.replays import ReplayWish, places_of
from controlplane.consumers.services import SHIFT_MAX, Target

EXACT_MAX = 64


class OffsetResetForm(forms.Form):
    """Where a group is to go on in one of its topics."""

    topic = forms.ChoiceField(label=say("Topic"))
    target = forms.ChoiceField(
        label=say("Go on"),
        widget=forms.RadioSelect,
        choices=[
            (
                ResetTarget.EARLIEST,
                Choice(say("From the beginning"), say("All messages that are still stored come again.")),
            ),
            (ResetTarget.LATEST, Choice(say("At the end"), say("What waits now is skipped."))),
            (ResetTarget.TIME, Choice(say("At a time"), say("With the first message stored then or later."))),
            (ResetTarget.SHIFT, Choice(say("By a number of messages"), say("In each queue, on or back."))),
            (ResetTarget.GROUP, Choice(say("Where another group is"), say("Queue by queue."))),
            (
                ResetTarget.OFFSETS,
                Choice(say("At exact offsets"), say("Queues that are not named stay where they are.")),
            ),
        ],
    )
    at = UtcMoment(label=say("Time (UTC)"), help_text=say("For “At a time”."), required=False)
    shift = forms.IntegerField(
        label=say("Messages"),
        required=False,
        min_value=-SHIFT_MAX,
        max_value=SHIFT_MAX,
        help_text=say("For “By a number of messages”: below 0 for back."),
    )
    source_group = forms.CharField(
        label=say("Other group"), required=False, max_length=255, help_text=say("For “Where another group is”.")
    )
    offsets = forms.CharField(
        label=say("Offsets"),
        required=False,
        max_length=EXACT_MAX * 40,
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "placeholder": "broker-a:0:1234"}),
        help_text=say(
            "For “At exact offsets”: a line broker:queue:offset for each queue, at most %(most)s here; the API takes more.",
            most=EXACT_MAX,
        ),
    )

    def __init__(self, *args: Any, topics: Sequence[str], offsets: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["topic"] = forms.ChoiceField(label=say("Topic"), choices=[(name, name) for name in topics])
        if len(offsets) <= EXACT_MAX:
            self.fields["offsets"].initial = "\n".join(offsets)

    def clean_offsets(self) -> str:
        """Bound the lines: they travel in the page's address."""
        text = str(self.cleaned_data["offsets"])
        if len(text.split()) > EXACT_MAX:
            raise forms.ValidationError(say("At most %(most)s.", most=EXACT_MAX))
        return text

    def wanted(self) -> Target:
        """Return the target of a valid form."""
        values = self.cleaned_data
        return Target(
            ResetTarget(values["target"]),
            values["at"],
            values["shift"],
            values["source_group"],
            tuple(values["offsets"].split()),
        )


class ReplayForm(forms.Form):
    """How dead letters are sent again. Which ones stands in the boxes of their table."""

    which = forms.ChoiceField(
        label=say("Replay"),
        widget=forms.RadioSelect,
        initial="selected",
        choices=[
            ("selected", Choice(say("The selected ones"), say("Tick them in the table."))),
            ("all", Choice(say("All that are stored now"), say("Also those that the table doesn’t show."))),
        ],
    )
    target = forms.ChoiceField(
        label=say("Send them to"),
        widget=forms.RadioSelect,
        initial=ReplayTarget.RETRY_TOPIC,
        choices=[
            (
                ReplayTarget.RETRY_TOPIC,
                Choice(say("This group’s retry topic"), say("Only this group gets them again.")),
            ),
            (
                ReplayTarget.ORIGINAL_TOPIC,
                Choice(say("Their original topics"), say("Every group that consumes those gets them again.")),
            ),
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
    stop_after_new_dead = forms.IntegerField(
        label=say("Stop after new dead letters"), initial=100, min_value=0, max_value=10**6, help_text=say("0: never.")
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
