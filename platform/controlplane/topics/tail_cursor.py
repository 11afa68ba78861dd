"""Where a tail of a topic goes on: the next offset of each queue, as one word that a client hands back. Pure."""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

from controlplane.common.errors import InvalidInput
from controlplane.common.sentences import say

CURSOR_MAX_CHARACTERS = 8192
# Of one that was unfolded: a few KiB of zeros may say anything.
_UNFOLDED_MAX_BYTES = 64 * 1024
_OFFSET_MAX = 2**63 - 1

# (broker name, queue id) -> the offset that its next message has.
Places = Mapping[tuple[str, int], int]


def cursor_of(places: Places) -> str:
    """Return the places as a cursor."""
    brokers: dict[str, list[list[int]]] = {}
    for (broker_name, queue_id), offset in sorted(places.items()):
        brokers.setdefault(broker_name, []).append([queue_id, offset])
    packed = zlib.compress(json.dumps(brokers, separators=(",", ":")).encode("utf-8"), 9)
    return base64.urlsafe_b64encode(packed).decode("ascii").rstrip("=")


def places_of_cursor(cursor: str) -> dict[tuple[str, int], int]:
    """Return the places; raises InvalidInput for what `cursor_of` did not make."""
    refusal = InvalidInput.for_field("cursor", say("This is no cursor of this list."), "invalid")
    if len(cursor) > CURSOR_MAX_CHARACTERS:
        raise refusal
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        unfolding = zlib.decompressobj()
        text = unfolding.decompress(packed, _UNFOLDED_MAX_BYTES)
        if not unfolding.eof:
            raise refusal
        return dict(_places(json.loads(text)))
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise refusal from error


def _places(brokers: Any) -> list[tuple[tuple[str, int], int]]:
    """Raises ValueError for another shape."""
    found: list[tuple[tuple[str, int], int]] = []
    if not isinstance(brokers, dict):
        raise ValueError("not a table of brokers")
    for broker_name, queues in brokers.items():
        if not isinstance(queues, list):
            raise ValueError("not a list of queues")
        for queue in queues:
            match queue:
                case [int(queue_id), int(offset)] if 0 <= offset <= _OFFSET_MAX:
                    found.append(((broker_name, queue_id), offset))
                case _:
                    raise ValueError("not a queue and an offset")
    return found
