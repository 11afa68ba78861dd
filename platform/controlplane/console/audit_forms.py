"""The search of the audit trail."""

from django import forms

from controlplane.common.sentences import say
from controlplane.console.billing_forms import UtcMoment


class AuditSearchForm(forms.Form):
    """Part of an actor, action or resource, and a span of time."""

    search = forms.CharField(
        label=say("Who or what"),
        required=False,
        max_length=255,
        help_text=say("Part of an address, an action or a path."),
    )
    since = UtcMoment(label=say("From (UTC)"), help_text=say("Such as 2026-12-01 00:00."), required=False)
    until = UtcMoment(label=say("To (UTC)"), help_text=say("The whole of this minute is meant."), required=False)
