"""Forms of changes of groups that elect their leader. Only shapes are checked here; the plan says what can't be done."""

from collections.abc import Sequence

from django import forms

from controlplane.clusters.models import ClusterMode
from controlplane.clusters.services import VOTERS
from controlplane.console.forms import Choice

_NOBODY = "nobody"


class WhichReplicaForm(forms.Form):
    """One of a group's replicas."""

    replica = forms.ChoiceField(widget=forms.RadioSelect)

    def __init__(
        self, *args: object, label: str, choices: Sequence[tuple[int, Choice]], nobody: Choice | None, **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        offered = [(str(replica_id), choice) for replica_id, choice in choices]
        if nobody is not None:
            offered.append((_NOBODY, nobody))
        self.fields["replica"] = forms.ChoiceField(label=label, widget=forms.RadioSelect, choices=offered)

    def replica_id(self) -> int | None:
        """Return which one was chosen, None for nobody; call it on a valid form."""
        chosen = str(self.cleaned_data["replica"])
        return None if chosen == _NOBODY else int(chosen)


class ResizeForm(forms.Form):
    """How many replicas the group is to have."""

    replicas = forms.TypedChoiceField(
        label="Replicas",
        coerce=int,
        widget=forms.RadioSelect,
        choices=[
            (VOTERS[0], Choice("Three", "One may be lost. Two hold each message before it is acknowledged.")),
            (VOTERS[1], Choice("Five", "Two may be lost at the same time. Three hold each message.")),
        ],
    )


class ModeForm(forms.Form):
    """The mode in which the cluster is to be: one that it is not in."""

    mode = forms.ChoiceField(label="New mode", widget=forms.RadioSelect)

    def __init__(self, *args: object, present: str, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as they came
        choices = [(mode, choice) for mode, choice in _MODES if mode != present]
        self.fields["mode"] = forms.ChoiceField(label="New mode", widget=forms.RadioSelect, choices=choices)


_MODES = [
    (ClusterMode.ASYNC, Choice("Asynchronous replication", "Sends don’t wait for a slave. An operator promotes.")),
    (ClusterMode.SYNC, Choice("Synchronous replication", "SEND_OK means that a slave holds the message, too.")),
    (ClusterMode.DLEDGER, Choice("DLedger", "A majority holds each message, and the replicas elect their leader.")),
]
