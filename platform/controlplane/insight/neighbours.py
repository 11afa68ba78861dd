"""Clusters that share a host: what each takes of it, and what flows through it. For operators."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Avg
from django.utils import timezone

from controlplane.insight.models import ClusterFigures
from controlplane.provisioning.hosts import Taken, capacities, placements, taken

WINDOWS_S = {"15m": 900, "1h": 3600, "24h": 86_400}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What a cluster took on a host, and the messages a second that went into it and out of it. None: not known."""

    taken: Taken
    in_per_second: float | None
    out_per_second: float | None


@dataclass(frozen=True, slots=True)
class SharedHost:
    """A host with its clusters, most of the processor first, and how much of the processor was used, 0 to 1."""

    host: str
    cpu_used: float | None
    clusters: list[Neighbour]


def shared_hosts(window: str) -> list[SharedHost]:
    """Return what each cluster took on each host over a window, one of WINDOWS_S."""
    span = timedelta(seconds=WINDOWS_S[window])
    figures = ClusterFigures.objects.filter(sampled_at__gte=timezone.now() - span).values("cluster")
    rates = {
        row["cluster"]: (row["coming"], row["going"])
        for row in figures.annotate(coming=Avg("in_per_second"), going=Avg("out_per_second"))
    }
    placed = placements()
    found = []
    for host in capacities(placed):
        rows, used = taken(host.host, placed, span)
        neighbours = [Neighbour(row, *rates.get(row.cluster.pk, (None, None))) for row in rows]
        found.append(SharedHost(host.host, used, neighbours))
    return found
