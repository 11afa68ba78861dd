"""What the figures of the platform say of its parts. Pure functions."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

# Each worker is asked for a sign of life twice a minute.
LATE_AFTER = timedelta(minutes=3)
# A fleet's state says nothing of a single cluster: fewer are never reported, however small the fleet is.
_CLUSTERS_MIN = 2
_SHARE_DEGRADED = 0.05
_SHARE_DOWN = 0.5


class PartState(StrEnum):
    """How a part is. UNKNOWN is never shown as fine."""

    OPERATIONAL = "operational"
    UNKNOWN = "unknown"
    MAINTENANCE = "maintenance"
    DEGRADED = "degraded"
    DOWN = "down"


_ORDER = list(PartState)


def worst(states: Iterable[PartState]) -> PartState:
    """Return the worst of the states; operational for none."""
    return max(states, key=_ORDER.index, default=PartState.OPERATIONAL)


def workers_state(beats: Mapping[str, datetime], first_queue: str, now: datetime) -> PartState:
    """Return how the workers are, by the last sign of life on each queue; `first_queue` has the changes of clusters."""
    if first_queue not in beats:
        return PartState.UNKNOWN
    late = {queue for queue, beaten_at in beats.items() if now - beaten_at > LATE_AFTER}
    if first_queue in late:
        return PartState.DOWN
    return PartState.DEGRADED if late else PartState.OPERATIONAL


def jobs_state(last_succeeded: Mapping[str, bool]) -> PartState:
    """Return how the jobs are, by whether each one's last run succeeded."""
    if not last_succeeded:
        return PartState.UNKNOWN
    if all(last_succeeded.values()):
        return PartState.OPERATIONAL
    return PartState.DEGRADED if any(last_succeeded.values()) else PartState.DOWN


def fleet_state(clusters: int, without: int) -> PartState:
    """Return how the clusters are as a whole, of which `without` have no name server that answers."""
    if without < _CLUSTERS_MIN:
        return PartState.OPERATIONAL
    share = without / clusters
    if share > _SHARE_DOWN:
        return PartState.DOWN
    return PartState.DEGRADED if share >= _SHARE_DEGRADED else PartState.OPERATIONAL
