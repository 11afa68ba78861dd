"""Parts of sentences about replicas. Pure."""

import re
from collections.abc import Sequence
from datetime import datetime

from controlplane.common.sentences import say


def gettext_noop(message: str) -> str:
    """Mark a message for the catalogue. Django's own reads the settings, which the simulation does without."""
    return message


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


def told(text: str) -> str:
    """Return what the promotion's rules or a broker said in English as a sentence for pages; other text as it is."""
    for message, pattern in _PATTERNS:
        if (found := pattern.fullmatch(text)) is not None:
            return say(message, **{name: told(value) for name, value in found.groupdict().items()})
    return text


# The sentences of highwater/promotion.py, which knows no pages, and why a broker refuses.
_MESSAGES = (
    gettext_noop("%(name)s holds everything that was acknowledged."),
    gettext_noop("%(name)s does not answer, so that no one knows what it holds."),
    gettext_noop("%(best)s holds more than %(name)s does (to %(best_place)s, not %(place)s)."),
    gettext_noop(
        "%(name)s holds everything that was acknowledged, but %(who)s may have shown consumers what no other replica holds:"
        " too few were in sync with it, or no one knows when it ended (minInSyncReplicas lets it go on). Those would be"
        " passed over: their offsets are given to other messages. %(known)s"
    ),
    gettext_noop("None is known of from when it was last asked; no one knows how many came after that."),
    gettext_noop("When it was last asked there were %(number)s bytes; consumers may have read all of them."),
    gettext_noop("When it was last asked there were %(number)s message; consumers may have read all of them."),
    gettext_noop("When it was last asked there were %(number)s messages; consumers may have read all of them."),
    gettext_noop(
        "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
        " answers."
    ),
    gettext_noop(
        "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
        " answer."
    ),
    gettext_noop(
        "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
        " answers (the disk of %(names)s is new, and says nothing)."
    ),
    gettext_noop(
        "what the old master acknowledged may be lost; to rule that out takes %(who)s, and %(count)s of %(all)s replicas"
        " answer (the disk of %(names)s is new, and says nothing)."
    ),
    gettext_noop("%(name)s must not lead by now."),
    gettext_noop(
        "every replica answers, and none holds more than %(name)s; what a failed disk or a power cut has taken from all of"
        " them no one can tell."
    ),
    gettext_noop(
        "the disk of %(name)s is new, and has not held what the group had confirmed: what it lacks no one knows."
    ),
    gettext_noop(
        "%(name)s may have lost the end of its log: its disk failed, or its machine went down, and it has not caught up."
    ),
    gettext_noop(
        "%(name)s had told of a log to %(before)s when it led, and holds it to %(now)s only: what its machine had not"
        " flushed is gone from it."
    ),
    gettext_noop(
        "%(names)s answers with the disks that counted, a majority of %(all)s voters: they elect a leader by themselves."
    ),
    gettext_noop(
        "%(names)s answer with the disks that counted, a majority of %(all)s voters: they elect a leader by themselves."
    ),
    gettext_noop("%(name)s does not answer, or is no voter whose disk counted."),
    gettext_noop("%(best)s holds more than %(name)s does: recover with that one."),
    gettext_noop("%(name)s says that it must not lead."),
    gettext_noop(
        "%(names)s of %(all)s voters is given up for good. Whatever was acknowledged and is not in the log of %(name)s, which"
        " ends at %(place)s, is lost, and no one can tell how much that is. A replica that was given up must never run again"
        " with its old disk: it could lead a group of its own."
    ),
    gettext_noop(
        "%(names)s of %(all)s voters are given up for good. Whatever was acknowledged and is not in the log of %(name)s, which"
        " ends at %(place)s, is lost, and no one can tell how much that is. A replica that was given up must never run again"
        " with its old disk: it could lead a group of its own."
    ),
    gettext_noop("the old master's answer"),
    gettext_noop("the old master"),
    gettext_noop("answers of %(count)s replicas"),
    gettext_noop("offset %(offset)s of epoch %(epoch)s"),
    gettext_noop("replica %(ids)s"),
    gettext_noop("Replica %(ids)s"),
    gettext_noop("replicas %(ids)s"),
    gettext_noop("Replicas %(ids)s"),
)
# Numbers and their lists stand where ids, counts and places do; a name is all up to the words after it.
_SHAPES = {
    "ids": r"\d+(?: and \d+)*",
    "all": r"\d+",
    "count": r"\d+",
    "number": r"\d+",
    "before": r"\d+",
    "now": r"\d+",
}


def _pattern(message: str) -> re.Pattern[str]:
    parts = re.split(r"%\((\w+)\)s", message)
    named = [
        f"(?P<{part}>{_SHAPES.get(part, '.+?')})" if place % 2 else re.escape(part) for place, part in enumerate(parts)
    ]
    return re.compile("".join(named))


_PATTERNS = [(message, _pattern(message)) for message in _MESSAGES]
