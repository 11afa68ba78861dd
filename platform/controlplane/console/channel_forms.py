"""The form of a channel that alerts are sent to."""

from django import forms

from controlplane.alerts.channel_serializers import MADE_KINDS
from controlplane.alerts.outgoing import URL_CHARACTERS_MAX
from controlplane.common.sentences import say

_CODE_INPUT = {"autocapitalize": "none", "autocomplete": "off", "autocorrect": "off", "spellcheck": "false"}


class ChannelForm(forms.Form):
    """A new channel."""

    kind = forms.ChoiceField(label=say("Kind"), choices=MADE_KINDS)
    name = forms.CharField(label=say("Name"), max_length=100)
    address = forms.CharField(
        label=say("Address"),
        max_length=URL_CHARACTERS_MAX,
        help_text=say("The https:// URL that the receiver gave you. It is encrypted, and never shown again."),
        widget=forms.TextInput(attrs=_CODE_INPUT),
    )
    secret = forms.CharField(
        label=say("Secret"),
        required=False,
        max_length=200,
        help_text=say("DingTalk’s or Feishu’s signing secret, or a webhook’s; a webhook without one gets one."),
        widget=forms.TextInput(attrs=_CODE_INPUT),
    )
    critical_only = forms.BooleanField(label=say("Critical alerts only"), required=False)
