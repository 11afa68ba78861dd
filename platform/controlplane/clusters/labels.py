"""Labels of clusters: `key=value`, to find them again by, and to tell costs apart."""

import re
from collections.abc import Iterable, Mapping

from django.db.models import QuerySet

from controlplane.clusters.models import Cluster
from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say

LABELS_MAX = 20
TEXT_CHARACTERS_MAX = 63
KEY_PATTERN = r"[a-z0-9]([a-z0-9._/-]{0,61}[a-z0-9])?"
VALUE_PATTERN = r"([A-Za-z0-9]([A-Za-z0-9._/@:-]{0,61}[A-Za-z0-9])?)?"


def labels_check(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels by their keys, in order; raises InvalidInput for what is no label, and for too many."""
    if len(labels) > LABELS_MAX:
        raise InvalidInput.for_field("labels", say("Use at most %(most)s labels.", most=LABELS_MAX), "too_many")
    for key, value in labels.items():
        if not re.fullmatch(KEY_PATTERN, key):
            words = say(
                "%(key)s is no key: use lower-case letters, digits and ._/- between them, 63 characters at most.",
                key=key,
            )
            raise InvalidInput.for_field("labels", words, "invalid_key")
        if not re.fullmatch(VALUE_PATTERN, value):
            words = say(
                "%(value)s is no value: use letters, digits and ._/@:- between them, 63 characters at most.",
                value=value,
            )
            raise InvalidInput.for_field("labels", words, "invalid_value")
    return dict(sorted(labels.items()))


def labels_parse(text: str) -> dict[str, str]:
    """Return the labels of lines or words `key=value`; raises InvalidInput for a key that is there twice, and as `labels_check`."""
    labels: dict[str, str] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        if key in labels:
            raise InvalidInput.for_field("labels", say("%(key)s is there twice.", key=key), "twice")
        labels[key] = value
    return labels_check(labels)


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as lines `key=value`."""
    return "\n".join(f"{key}={value}" for key, value in sorted(labels.items()))


def labelled(clusters: QuerySet[Cluster], wanted: Iterable[str]) -> QuerySet[Cluster]:
    """Return the clusters that have all of these: `key=value`, or a key alone for any value."""
    for one in wanted:
        key, has_value, value = one.partition("=")
        clusters = clusters.filter(labels__contains={key: value}) if has_value else clusters.filter(labels__has_key=key)
    return clusters
