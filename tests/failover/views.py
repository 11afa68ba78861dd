"""What a detector knows of a replica, for tests of its rules."""

from __future__ import annotations

from datetime import UTC, datetime

from controlplane.failover.promotion.verdict import ReplicaView

NOW = datetime(2026, 11, 21, 5, 0, 0, tzinfo=UTC)


def slave_view(replica_id: int, **changes: object) -> ReplicaView:
    """A slave that is level and in sync, unless `changes` say otherwise."""
    values: dict[str, object] = {
        "replica_id": replica_id,
        "sampled_at": NOW,
        "last_seen_at": NOW,
        "role": "slave",
        "epoch": 3,
        "log_epoch": 3,
        "end_offset": 1000,
        "held_offset": 1000,
        "gap_bytes": 0,
        "gap_messages": 0,
        "in_sync": True,
        "accepts_sends": False,
        **changes,
    }
    return ReplicaView(**values)  # type: ignore[arg-type]  # a dictionary has one type for all values
