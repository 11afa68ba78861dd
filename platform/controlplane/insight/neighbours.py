"""Clusters that share a host: what each takes of it, and what flows through it. For operators."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Avg
from django.utils import timezone

from controlplane.insight.models import ClusterFigures
from controlplane.provisioning.hosts import Placement, Taken, latest_samples, placements, samples_by_host, taken

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


def shared_hosts(
    window: str, placed: Sequence[Placement] | None = None, hosts: Collection[str] | None = None
) -> list[SharedHost]:
    """Return what each cluster took on each host over a window, one of WINDOWS_S; of these `hosts` only, if given.

    `placed` are their daemons, if they were read already.
    """
    span = timedelta(seconds=WINDOWS_S[window])
    figures = ClusterFigures.objects.filter(sampled_at__gte=timezone.now() - span).values("cluster")
    rates = {
        row["cluster"]: (row["coming"], row["going"])
        for row in figures.annotate(coming=Avg("in_per_second"), going=Avg("out_per_second"))
    }
    placed = placements() if placed is None else placed
    by_host: dict[str, list[Placement]] = {}
    for one in placed:
        by_host.setdefault(one.host, []).append(one)
    samples = samples_by_host(span, hosts)
    found = []
    for host in sorted({*(one.host for one in latest_samples()), *by_host} if hosts is None else hosts):
        rows, used = taken(host, by_host.get(host, []), samples.get(host, []))
        neighbours = [Neighbour(row, *rates.get(row.cluster.pk, (None, None))) for row in rows]
        found.append(SharedHost(host, used, neighbours))
    return found
