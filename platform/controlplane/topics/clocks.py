"""What a message's two times say of the clocks: its sender wrote when it was born, its broker when it stored it. Pure.

A wrong clock is a usual reason why a search by time or by an id that holds a time misses a message, and why its age looks odd.
"""

from controlplane.common.sentences import say
from highwater import ReceivedMessage
from highwater.message_trace import is_copy
from mqwire.names import PROPERTY_DELAY_TIME_LEVEL

# Clocks kept by NTP differ by milliseconds; a message can not be stored before it is born.
AHEAD_MIN_MS = 2_000
# A send with all its retries takes seconds; so much longer is no network.
BEHIND_MIN_MS = 60_000


def clock_note(message: ReceivedMessage) -> str:
    """Return in words that the sender's clock and the broker's differ, or may; empty where nothing speaks for it."""
    took_ms = message.store_timestamp_ms - message.born_timestamp_ms
    if took_ms <= -AHEAD_MIN_MS:
        return say(
            "Its sender's clock is ahead of the broker's by at least %(span)s: it says that the message was born after it was"
            " stored. Searches and ages go by the broker's time.",
            span=_span(-took_ms),
        )
    # What waited for a delay or a retry was stored again, long after its birth.
    waited = message.reconsume_times > 0 or is_copy(message) or PROPERTY_DELAY_TIME_LEVEL in message.properties
    if took_ms >= BEHIND_MIN_MS and not waited:
        return say(
            "It was stored %(span)s after its sender says that it was born: the sender's clock is slow, or the send was held up."
            " Searches and ages go by the broker's time.",
            span=_span(took_ms),
        )
    return ""


def _span(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    if seconds < 120:
        return say("%(count)s seconds", count=seconds)
    if seconds < 120 * 60:
        return say("%(count)s minutes", count=seconds // 60)
    return say("%(count)s hours", count=seconds // 3600)
