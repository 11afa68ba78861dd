"""What a metering record that is one (mqwire.metering says so) may still not be true of: another cluster's, or of another time."""

from __future__ import annotations

from typing import Final

from mqwire.metering import MeteringRecord

# Clocks of brokers and of Spark's driver may differ by this much.
FUTURE_MS_MAX: Final = 15 * 60 * 1000


def implausible(record: MeteringRecord, cluster_name: str, now_ms: int) -> str:
    """Why the record can't be true; empty when it can."""
    if record.end_ms < record.start_ms:
        return "end_ms is before start_ms"
    if record.cluster != cluster_name:
        return f"a record of cluster {record.cluster} in the log of {cluster_name}"
    if record.end_ms > now_ms + FUTURE_MS_MAX:
        return f"future-dated by {(record.end_ms - now_ms) // 1000} s: correct the broker's clock"
    return ""
