"""The form of a masking rule. It checks shapes only; the rules are the service's."""

from typing import Any

from django import forms

from controlplane.common.sentences import say
from controlplane.console.acts import form_values
from controlplane.console.forms import CODE_INPUT
from controlplane.tenants.models import Role
from controlplane.topics.masking import PATH_MAX_CHARACTERS
from controlplane.topics.masking_rules import VISIBLE_FROM
from controlplane.topics.models import MaskedPart


class MaskingRuleForm(forms.Form):
    """What of messages is to be hidden, and from whom."""

    part = forms.ChoiceField(
        label=say("Of a message’s"), choices=MaskedPart.choices, initial=MaskedPart.BODY, widget=forms.RadioSelect
    )
    pattern = forms.CharField(
        max_length=PATH_MAX_CHARACTERS,
        label=say("Path or name"),
        help_text=say(
            "Of a JSON body: $.card.number, *.email for a member at any depth, or $ for all of it. Of a property: its name;"
            " KEYS and TAGS for keys and tags. * and ? may be in it."
        ),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    topic = forms.CharField(
        max_length=127,
        initial="*",
        label=say("Topic"),
        help_text=say("Its name in any cluster. * means all topics, orders-* those that begin so."),
        widget=forms.TextInput(attrs=CODE_INPUT),
    )
    visible_from = forms.ChoiceField(
        label=say("Seen by"),
        choices=[(role.value, role.label) for role in VISIBLE_FROM],
        initial=Role.ADMIN,
        help_text=say("The least role that sees it. Lower roles, and their tokens, see [masked] in its place."),
    )
    withholds = forms.BooleanField(
        required=False,
        initial=True,
        label=say("Withhold bodies that are not JSON"),
        help_text=say("Nothing can be found in them by a path. Without this they are shown as they are."),
    )

    def body(self) -> dict[str, Any]:
        """Return the API's request with what was typed so far, and an example's path before that."""
        return {"pattern": "$.card.number", **form_values(self)}
