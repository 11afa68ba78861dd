"""A tenant's clusters as Prometheus metrics. What is not known has no sample, never 0, so that an alert on absence works.

All is read from rows that samples and jobs have written: a scrape waits for no broker. Figures that RocketMQ's brokers and its
exporter name, too, stand there under those names as well (ALIASES), so that known dashboards and alerts work.
"""

import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import timedelta

from django.utils import timezone
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from controlplane.clusters.models import BrokerGroup, Cluster, ClusterMode, Health
from controlplane.clusters.selectors import HEALTH_STALE_AFTER, cluster_health
from controlplane.failover.models import ReplicaSample
from controlplane.failover.role_map import group_rows
from controlplane.insight.figures import figures_latest
from controlplane.insight.models import ClusterFigures, ClusterGroups, LagWindow
from controlplane.insight.selectors import lag_latest_of_all
from mqwire.names import RETRY_GROUP_TOPIC_PREFIX

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Of (group, topic) in one cluster; of more, those with the largest backlog. A group reads one or two topics, so this is far above
# 1,000 topics and 2,500 groups.
LAG_SERIES_MAX = 10_000
_HEALTH: dict[str, int] = {Health.HEALTHY: 1, Health.DOWN: 0}

# name -> (what it says, its labels after `cluster`). Each is a gauge: rates are averages over the last minute.
METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "highwater_cluster_healthy": ("1 when every daemon of the cluster answers, 0 when one does not.", ()),
    "highwater_cluster_daemons": ("Name servers and brokers that the cluster has.", ()),
    "highwater_cluster_daemons_down": ("Those of them that do not answer, at the last look.", ()),
    "highwater_cluster_in_messages_per_second": ("Messages sent to the cluster, over the last minute.", ()),
    "highwater_cluster_out_messages_per_second": ("Messages taken from the cluster, over the last minute.", ()),
    "highwater_cluster_in_bytes_per_second": ("Bytes of the messages sent, over the last minute.", ()),
    "highwater_cluster_out_bytes_per_second": ("Bytes of the messages taken, over the last minute.", ()),
    "highwater_cluster_send_seconds": ("What this share of the last minute's sends took at most.", ("quantile",)),
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
    "highwater_consumer_lag_series_left_out": (
        f"Pairs of group and topic that are not listed, as there are more than {LAG_SERIES_MAX}.",
        (),
    ),
}

# The same for RocketMQ's own names: those of its brokers since 5.1, then those of apache/rocketmq-exporter, then ours about
# replicas. Labels as there, but for those of single nodes, which these figures don't tell apart.
ALIASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "rocketmq_consumer_lag_messages": ("Messages that the group has not consumed.", ("topic", "consumer_group")),
    "rocketmq_consumer_lag_latency": ("Age of the oldest of them, in milliseconds.", ("topic", "consumer_group")),
    "rocketmq_storage_size": ("Size of the leaders' logs, in bytes.", ()),
    "rocketmq_broker_tps": ("Messages sent a second, over the last minute.", ("broker",)),
    "rocketmq_broker_qps": ("Messages taken a second, over the last minute.", ("broker",)),
    "rocketmq_group_diff": ("Messages that the group has not consumed.", ("group", "topic")),
    "rocketmq_group_retrydiff": ("Messages of the group's retry topic that it has not consumed.", ("group", "topic")),
    "rocketmq_group_get_latency_by_storetime": (
        "Age of the oldest message that was not consumed, in milliseconds.",
        ("topic", "group"),
    ),
    "rocketmq_ha_replica_gap_bytes": ("What the replica lacks of its master's log.", ("broker", "replica")),
    "rocketmq_ha_role": ("1 when the replica is its group's master, 0 when another one is.", ("broker", "replica")),
}


_Sample = tuple[str, list[str], float | None]


def clusters_metrics(clusters: Sequence[Cluster]) -> bytes:
    """Return the metrics of these clusters of a tenant in Prometheus' text format, version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Clusters(clusters))
    return generate_latest(registry)


class _Clusters(Collector):
    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self._clusters = clusters

    def collect(self) -> Iterator[Metric]:
        families = {
            name: GaugeMetricFamily(name, words, labels=["cluster", *labels])
            for name, (words, labels) in {**METRICS, **ALIASES}.items()
        }
        for name, labels, value in self._samples():
            if value is not None:
                families[name].add_metric(labels, float(value))
        yield from families.values()

    def _samples(self) -> Iterator[_Sample]:
        figures = figures_latest(self._clusters)
        lags = _without_deleted(lag_latest_of_all(self._clusters))
        sampled = set(
            ReplicaSample.objects.filter(replica__group__cluster__in=self._clusters).values_list(
                "replica__group_id", flat=True
            )
        )
        for cluster in self._clusters:
            yield "highwater_cluster_healthy", [cluster.slug], _HEALTH.get(cluster_health(cluster).status)
            yield from _daemons(cluster)
            if (now := figures.get(cluster.pk)) is not None:
                yield from _figures(cluster, now)
            yield from _replicas(cluster, sampled)
            yield from _lag(cluster, lags.get(cluster.pk, {}))


def _figures(cluster: Cluster, now: ClusterFigures) -> Iterator[_Sample]:
    of_cluster = {
        "in_messages_per_second": now.in_per_second,
        "out_messages_per_second": now.out_per_second,
        "in_bytes_per_second": now.in_bytes_per_second,
        "out_bytes_per_second": now.out_bytes_per_second,
        "backlog_messages": now.backlog_messages,
        "stored_bytes": now.stored_bytes,
        "disk_used_ratio": now.disk_used,
        "connections": now.connections,
        "answer_seconds": None if now.answer_ms is None else now.answer_ms / 1000,
        "replica_gap_bytes": now.replica_gap_bytes,
    }
    for name, value in of_cluster.items():
        yield f"highwater_cluster_{name}", [cluster.slug], value
    for quantile, took_ms in (("0.5", now.send_p50_ms), ("0.99", now.send_p99_ms)):
        took_s = None if took_ms is None else took_ms / 1000
        yield "highwater_cluster_send_seconds", [cluster.slug, quantile], took_s
    yield "rocketmq_storage_size", [cluster.slug], now.stored_bytes
    # The figures are the whole cluster's: of one broker only where there is only one. Prometheus takes "" for no label.
    groups = [group.name for group in cluster.broker_groups.all()]
    broker = groups[0] if len(groups) == 1 else ""
    yield "rocketmq_broker_tps", [cluster.slug, broker], now.in_per_second
    yield "rocketmq_broker_qps", [cluster.slug, broker], now.out_per_second


def _daemons(cluster: Cluster) -> Iterator[_Sample]:
    daemons = [
        *cluster.name_servers.all(),
        *(one for group in cluster.broker_groups.all() for one in group.replicas.all()),
    ]
    known = cluster_health(cluster).status in _HEALTH
    yield "highwater_cluster_daemons", [cluster.slug], len(daemons)
    down = sum(daemon.health == Health.DOWN for daemon in daemons)
    yield "highwater_cluster_daemons_down", [cluster.slug], down if known else None


def _replicas(cluster: Cluster, sampled: Container[uuid.UUID]) -> Iterator[_Sample]:
    groups = list(cluster.broker_groups.all())
    if cluster.mode == ClusterMode.SINGLE and all(_stands_alone(group, sampled) for group in groups):
        for group in groups:
            yield from _one_broker(cluster, group)
        return
    for row in group_rows(cluster):
        broker = [cluster.slug, row.name]
        if row.sampled_at is not None:
            yield "highwater_broker_group_has_master", broker, int(row.master_id is not None)
        for replica in row.replicas:
            labels = [*broker, str(replica.replica_id)]
            seen = replica.unreachable_since is not None or replica.last_seen_at is not None
            yield "highwater_replica_up", labels, int(replica.unreachable_since is None) if seen else None
            for name in ("highwater_replica_gap_bytes", "rocketmq_ha_replica_gap_bytes"):
                yield name, labels, replica.gap_bytes
            if row.master_id is not None:
                yield "rocketmq_ha_role", labels, int(replica.replica_id == row.master_id)


def _stands_alone(group: BrokerGroup, sampled: Container[uuid.UUID]) -> bool:
    """Whether it is one broker whose role no one samples. Its row of the role map is its health, which is read already."""
    return len(group.replicas.all()) == 1 and group.pk not in sampled


def _one_broker(cluster: Cluster, group: BrokerGroup) -> Iterator[_Sample]:
    (broker,) = group.replicas.all()
    up = _HEALTH.get(broker.health)
    if up is None or broker.sampled_at is None or timezone.now() - broker.sampled_at > HEALTH_STALE_AFTER:
        return
    labels = [cluster.slug, group.name, str(broker.broker_id)]
    yield "highwater_broker_group_has_master", labels[:2], up
    yield "highwater_replica_up", labels, up
    if up:
        yield "rocketmq_ha_role", labels, 1


def _without_deleted(
    lags: Mapping[uuid.UUID, dict[tuple[str, str], LagWindow]],
) -> dict[uuid.UUID, dict[tuple[str, str], LagWindow]]:
    """Leave out groups and topics that the brokers did not know any more after the window: a deleted one has no series."""
    known = {one.cluster_id: one for one in ClusterGroups.objects.filter(cluster__in=list(lags))}
    found = {}
    for cluster_id, windows in lags.items():
        groups = known.get(cluster_id)
        if groups is None:
            found[cluster_id] = windows
            continue
        names, topics = set(groups.names), None if groups.topics is None else set(groups.topics)
        found[cluster_id] = {
            (group, topic): window
            for (group, topic), window in windows.items()
            # A retry topic goes with its group.
            if (group in names and (topics is None or topic in topics or topic.startswith(RETRY_GROUP_TOPIC_PREFIX)))
            or groups.sampled_at <= window.window_start + timedelta(seconds=window.window_seconds)
        }
    return found


def _lag(cluster: Cluster, windows: Mapping[tuple[str, str], LagWindow]) -> Iterator[_Sample]:
    pairs = list(windows.items())
    if len(pairs) > LAG_SERIES_MAX:
        pairs = sorted(pairs, key=lambda pair: -pair[1].lag_messages_last)[:LAG_SERIES_MAX]
        yield "highwater_consumer_lag_series_left_out", [cluster.slug], len(windows) - LAG_SERIES_MAX
    for (group, topic), window in pairs:
        lag, lag_ms = window.lag_messages_last, window.lag_ms_last
        by_group, by_topic = [cluster.slug, group, topic], [cluster.slug, topic, group]
        yield "highwater_consumer_lag_messages", by_group, lag
        yield "highwater_consumer_lag_seconds", by_group, None if lag_ms is None else lag_ms / 1000
        yield "highwater_consumer_stuck", by_group, int(window.stuck)
        yield "rocketmq_consumer_lag_messages", by_topic, lag
        yield "rocketmq_consumer_lag_latency", by_topic, lag_ms
        is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        yield "rocketmq_group_retrydiff" if is_retry else "rocketmq_group_diff", by_group, lag
        yield "rocketmq_group_get_latency_by_storetime", by_topic, lag_ms
