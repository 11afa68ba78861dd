"""What an operation's row remembers of a rolling restart: one entry for each daemon. It is the operation's result, too.

Written under the row's lock, and only by steps. A retried operation goes on with what is not done yet.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

from controlplane.clusters.models import Operation
from controlplane.clusters.operations import operation_metadata_change


class Entry(TypedDict):
    """One daemon. Times are ISO 8601 in UTC; `sends_refused_ms` is its group's, while it was restarted or handed its role over."""

    name: str
    kind: str  # name_server | broker
    row: str
    group: str
    replica: int | None
    address: str
    version_before: str | None
    version_after: str | None
    stopped_at: str | None
    back_at: str | None
    leadership_moved_to: int | None
    sends_refused_ms: int


def entries_of(operation: Operation) -> list[Entry]:
    """Return the daemons in the order in which they are restarted."""
    found: list[Entry] = operation.metadata.get("daemons", [])
    return found


def entries_begin(operation: Operation, entries: Sequence[Entry]) -> None:
    """Write which daemons are to be restarted, unless a former try of the operation has: that one's are gone on with."""

    def begin(metadata: dict[str, Any]) -> None:
        metadata.setdefault("daemons", list(entries))

    operation_metadata_change(operation, begin)


def entry_note(operation: Operation, row: uuid.UUID, *, more_refused_ms: int = 0, **values: Any) -> None:
    """Change what is remembered of one daemon."""

    def note(metadata: dict[str, Any]) -> None:
        entry = next(entry for entry in metadata["daemons"] if entry["row"] == str(row))
        entry.update(values)
        entry["sends_refused_ms"] += more_refused_ms
        metadata["sends_refused_ms"] = totals(metadata["daemons"])

    operation_metadata_change(operation, note)


def metadata_note(operation: Operation, **values: Any) -> None:
    """Change other members of the operation's metadata."""

    def note(metadata: dict[str, Any]) -> None:
        metadata.update(values)

    operation_metadata_change(operation, note)


def totals(entries: Sequence[Entry]) -> dict[str, int]:
    """Return for how long each group refused sends, all its restarts together."""
    found: dict[str, int] = {}
    for entry in entries:
        if entry["group"]:
            found[entry["group"]] = found.get(entry["group"], 0) + entry["sends_refused_ms"]
    return found


def moment(text: str | None) -> datetime | None:
    """Return the time of an entry."""
    return None if text is None else datetime.fromisoformat(text)
