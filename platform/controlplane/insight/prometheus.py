"""A tenant's clusters as Prometheus metrics. What is not known has no sample, never 0, so that an alert on absence works.

All is read from rows that samples and jobs have written: a scrape waits for no broker.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controlplane.clusters.models import Cluster, Health
from controlplane.clusters.selectors import cluster_health, cluster_list
from controlplane.failover.role_map import group_rows
from controlplane.insight.figures import figures_latest
from controlplane.insight.selectors import lag_latest
from controlplane.tenants.models import Tenant

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HEALTH: dict[str, int] = {Health.HEALTHY: 1, Health.DOWN: 0}

# name -> (what it says, its labels after `cluster`). Each is a gauge: rates are averages over the last minute.
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "highwater_cluster_healthy": ("1 when every daemon of the cluster answers, 0 when one does not.", ()),
    "highwater_cluster_daemons": ("Name servers and brokers that the cluster has.", ()),
    "highwater_cluster_daemons_down": ("Those of them that do not answer, at the last look.", ()),
    "highwater_cluster_in_messages_per_second": ("Messages sent to the cluster, over the last minute.", ()),
    "highwater_cluster_out_messages_per_second": ("Messages taken from the cluster, over the last minute.", ()),
    "highwater_cluster_backlog_messages": ("Messages not consumed yet, over all groups.", ()),
    "highwater_cluster_stored_bytes": ("Size of the leaders' logs.", ()),
    "highwater_cluster_disk_used_ratio": ("Used share of the fullest leader's disk, 0 to 1.", ()),
    "highwater_cluster_connections": ("Connections that programs have open at the leaders.", ()),
    "highwater_cluster_answer_seconds": ("What the slowest leader took to answer a small request.", ()),
    "highwater_cluster_replica_gap_bytes": ("The most that a replica lacks of its leader's log.", ()),
    "highwater_broker_group_has_master": ("1 when the broker group has a master, 0 when it has none.", ("broker",)),
    "highwater_replica_up": ("1 when the replica answered the last look, 0 when it did not.", ("broker", "replica")),
    "highwater_replica_gap_bytes": ("What the replica lacks of its master's log.", ("broker", "replica")),
    "highwater_consumer_lag_messages": ("Messages that the group has not consumed.", ("group", "topic")),
    "highwater_consumer_lag_seconds": ("Age of the oldest of them.", ("group", "topic")),
    "highwater_consumer_stuck": ("1 when the group consumes nothing though messages wait.", ("group", "topic")),
}


def tenant_metrics(tenant: Tenant) -> bytes:
    """Return the metrics of all clusters of the tenant in Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Clusters(list(cluster_list(tenant))))
    return generate_latest(registry)


class _Clusters(Collector):
    def __init__(self, clusters: list[Cluster]) -> None:
        self._clusters = clusters

    def collect(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(name, words, labels=["cluster", *labels])
            for name, (words, labels) in METRICS.items()
        }
        for name, labels, value in self._samples():
            if value is not None:
                families[name].add_metric(labels, float(value))
        yield from families.values()

    def _samples(self) -> Iterator[tuple[str, list[str], float | None]]:
        figures = figures_latest(self._clusters)
        for cluster in self._clusters:
            yield "highwater_cluster_healthy", [cluster.slug], _HEALTH.get(cluster_health(cluster).status)
            yield from _daemons(cluster)
            if (now := figures.get(cluster.pk)) is not None:
                of_cluster = {
                    "in_messages_per_second": now.in_per_second,
                    "out_messages_per_second": now.out_per_second,
                    "backlog_messages": now.backlog_messages,
                    "stored_bytes": now.stored_bytes,
                    "disk_used_ratio": now.disk_used,
                    "connections": now.connections,
                    "answer_seconds": None if now.answer_ms is None else now.answer_ms / 1000,
                    "replica_gap_bytes": now.replica_gap_bytes,
                }
                for name, value in of_cluster.items():
                    yield f"highwater_cluster_{name}", [cluster.slug], value
            yield from _replicas(cluster)
            yield from _lag(cluster)


def _daemons(cluster: Cluster) -> Iterator[tuple[str, list[str], float | None]]:
    daemons = [
        *cluster.name_servers.all(),
        *(one for group in cluster.broker_groups.all() for one in group.replicas.all()),
    ]
    known = cluster_health(cluster).status in _HEALTH
    yield "highwater_cluster_daemons", [cluster.slug], len(daemons)
    down = sum(daemon.health == Health.DOWN for daemon in daemons)
    yield "highwater_cluster_daemons_down", [cluster.slug], down if known else None


def _replicas(cluster: Cluster) -> Iterator[tuple[str, list[str], float | None]]:
    for group in group_rows(cluster):
        broker = [cluster.slug, group.name]
        if group.sampled_at is not None:
            yield "highwater_broker_group_has_master", broker, int(group.master_id is not None)
        for replica in group.replicas:
            labels = [*broker, str(replica.replica_id)]
            seen = replica.unreachable_since is not None or replica.last_seen_at is not None
            yield "highwater_replica_up", labels, int(replica.unreachable_since is None) if seen else None
            yield "highwater_replica_gap_bytes", labels, replica.gap_bytes


def _lag(cluster: Cluster) -> Iterator[tuple[str, list[str], float | None]]:
    for (group, topic), window in lag_latest(cluster).items():
        labels = [cluster.slug, group, topic]
        yield "highwater_consumer_lag_messages", labels, window.lag_messages_last
        yield (
            "highwater_consumer_lag_seconds",
            labels,
            None if window.lag_ms_last is None else window.lag_ms_last / 1000,
        )
        yield "highwater_consumer_stuck", labels, int(window.stuck)
