"""Parts of sentences about replicas. Pure."""

from collections.abc import Sequence
from datetime import datetime

from controlplane.common.sentences import say


def listed(words: Sequence[str], *, comma: bool = False) -> str:
    """Return `a and b and c`, with `comma` `a, b, c`; empty for nothing."""
    text = words[-1] if words else ""
    for word in reversed(words[:-1]):
        if comma:
            text = say("%(first)s, %(second)s", first=word, second=text)
        else:
            text = say("%(first)s and %(second)s", first=word, second=text)
    return text


def replica_names(replica_ids: Sequence[int]) -> str:
    """Return `replica 1`, or `replicas 1 and 2`."""
    ids = listed([str(replica_id) for replica_id in replica_ids])
    return say("replica %(ids)s", ids=ids) if len(replica_ids) == 1 else say("replicas %(ids)s", ids=ids)


def clock(time: datetime | None) -> str:
    """Return the time of day, in UTC."""
    return say("an unknown time") if time is None else f"{time:%H:%M:%S} UTC"
