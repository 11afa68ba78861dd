"""How lag looks on a page."""

from datetime import datetime, timedelta
from typing import Literal

from django import template
from django.utils.safestring import SafeString

from controlplane.common.sentences import in_words, say
from controlplane.console.templatetags.console import unknown
from controlplane.insight.whereabouts import standing_next_at, traced_at
from controlplane.insight.words import length_words
from highwater.whereabouts import GroupStanding

register = template.Library()


@register.filter
def milliseconds(value: int | Literal[""] | None) -> str | SafeString:
    """Return a length of time: `0 s`, `12 s`, `2 h 5 min`; the mark of the unknown for None."""
    if value is None or value == "":
        return unknown()
    return (
        in_words(say("%(milliseconds)s ms", milliseconds=value))
        if 0 < value < 1000
        else length_words(timedelta(milliseconds=value))
    )


@register.filter
def moment_of(timestamp_ms: int | None) -> datetime | None:
    """Return the moment that a client reported in milliseconds; None for what no calendar has."""
    return traced_at(timestamp_ms)


@register.filter
def next_delivery(standing: GroupStanding) -> datetime | None:
    """Return when a group gets a message again; None when it doesn't, or no one knows."""
    return standing_next_at(standing)
