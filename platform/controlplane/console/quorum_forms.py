"""Forms of changes of groups that elect their leader. Only shapes are checked here; the plan says what can't be done."""

from collections.abc import Sequence

from django import forms

from controlplane.clusters.models import ClusterMode
from controlplane.clusters.sizes import VOTERS
from controlplane.common.sentences import say
from controlplane.console.forms import Choice

_NONE = "none"


class WhichReplicaForm(forms.Form):
    """One of a group's replicas."""

    replica = forms.ChoiceField(widget=forms.RadioSelect)

    def __init__(
        self, *args: object, label: str, choices: Sequence[tuple[int, Choice]], no_one: Choice | None, **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        offered = [(str(replica_id), choice) for replica_id, choice in choices]
        if no_one is not None:
            offered.append((_NONE, no_one))
        self.fields["replica"] = forms.ChoiceField(label=label, widget=forms.RadioSelect, choices=offered)
        self.offers_none = not offered

    def replica_id(self) -> int | None:
        """Return which one was chosen, None for no one; call it on a valid form."""
        chosen = str(self.cleaned_data["replica"])
        return None if chosen == _NONE else int(chosen)


class ResizeForm(forms.Form):
    """How many replicas the group is to have."""

    replicas = forms.TypedChoiceField(
        label=say("Replicas"),
        coerce=int,
        widget=forms.RadioSelect,
        choices=[
            (VOTERS[0], Choice(say("Three"), say("One may be lost. Two hold each message before it is acknowledged."))),
            (VOTERS[1], Choice(say("Five"), say("Two may be lost at the same time. Three hold each message."))),
        ],
    )


class ModeForm(forms.Form):
    """The mode in which the cluster is to be, and with how many replicas of each group."""

    mode = forms.ChoiceField(label=say("New mode"), widget=forms.RadioSelect)
    replicas = forms.TypedChoiceField(
        label=say("Replicas of each group"),
        coerce=int,
        empty_value=None,
        required=False,
        help_text=say("Including the master. Surplus replicas are stopped and their copies deleted."),
        choices=[
            ("", say("As many as now, as far as the mode allows")),
            *[(count, str(count)) for count in (1, 2, 3, 5)],
        ],
    )

    def __init__(self, *args: object, present: str, groups: int, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        alone = ClusterMode.SINGLE if groups == 1 else ClusterMode.MULTI
        offered = [(alone, _ALONE), *_REPLICATED]
        choices = [
            (
                mode,
                Choice(
                    say("%(heading)s (now)", heading=choice.heading) if mode == present else choice.heading,
                    choice.detail,
                ),
            )
            for mode, choice in offered
            if mode != present or mode in (ClusterMode.ASYNC, ClusterMode.SYNC)
        ]
        self.fields["mode"] = forms.ChoiceField(label=say("New mode"), widget=forms.RadioSelect, choices=choices)
        self.order_fields(["mode", "replicas"])


_ALONE = Choice(
    say("No replication"), say("One broker holds each message. Cheapest; while it is down its messages wait for it.")
)
_REPLICATED = [
    (
        ClusterMode.ASYNC,
        Choice(say("Asynchronous replication"), say("Sends don’t wait for a slave. An operator promotes.")),
    ),
    (
        ClusterMode.SYNC,
        Choice(say("Synchronous replication"), say("SEND_OK means that a slave holds the message, too.")),
    ),
    (
        ClusterMode.DLEDGER,
        Choice("DLedger", say("A majority of three or five holds each message, and the replicas elect their leader.")),
    ),
]
