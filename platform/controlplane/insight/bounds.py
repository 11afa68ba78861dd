"""How much a cluster can have taken that was never read: the growth of its logs since then, as its brokers last reported it."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from controlplane.clusters.models import Cluster
from controlplane.failover.models import ReplicaSample
from controlplane.insight.models import LogSample


@dataclass(frozen=True, slots=True)
class LossBound:
    """At most `size_bytes` of log were written after what was read, up to `until`; None when no sample says so."""

    size_bytes: int | None
    until: datetime | None


def loss_bound(samples: Iterable[LogSample], since: datetime | None) -> LossBound:
    """Return the bound from one cluster's samples; `since` is until when its metering was read, None for never.

    Each broker's log is compared with where it was at the last sample that is not after `since`; a log of which there is none
    that old counts from its first sample on, and from its begin when nothing was read.
    """
    brokers: dict[str, list[LogSample]] = defaultdict(list)
    for sample in sorted(samples, key=lambda sample: sample.hour):
        brokers[sample.broker].append(sample)
    if not brokers:
        return LossBound(None, None)
    size = 0
    for found in brokers.values():
        size += max(0, found[-1].last_offset - _offset_at(found, since))
    return LossBound(size, max(found[-1].last_at for found in brokers.values()))


def _offset_at(samples: list[LogSample], since: datetime | None) -> int:
    if since is None:
        return 0
    known = samples[0].first_offset if samples[0].first_at <= since else 0
    for sample in samples:
        if sample.last_at <= since:
            known = sample.last_offset
        elif sample.first_at <= since:
            known = sample.first_offset
    return known


def cluster_loss_bound(cluster: Cluster, since: datetime | None) -> LossBound:
    """Return the bound of a cluster."""
    return loss_bound(LogSample.objects.filter(cluster=cluster), since)


def log_samples_take(now: datetime | None = None) -> int:
    """Write down where each leader's log ends; returns how many did. Once a minute is enough."""
    moment = now or timezone.now()
    hour = moment.replace(minute=0, second=0, microsecond=0)
    leaders = ReplicaSample.objects.filter(
        role="master", unreachable_since=None, last_seen_at__gt=moment - timedelta(minutes=2)
    ).values_list("replica__group__cluster_id", "replica__group__name", "last_seen_at", "end_offset")
    rows = [
        LogSample(
            cluster_id=cluster_id,
            broker=broker,
            hour=hour,
            first_at=seen_at,
            first_offset=offset,
            last_at=seen_at,
            last_offset=offset,
        )
        for cluster_id, broker, seen_at, offset in leaders
        if seen_at is not None and offset is not None
    ]
    # The first of an hour stays; the last moves.
    by_key = {(row.cluster_id, row.broker): row for row in rows}
    LogSample.objects.bulk_create(
        by_key.values(),
        update_conflicts=True,
        unique_fields=["cluster", "broker", "hour"],
        update_fields=["last_at", "last_offset"],
    )
    return len(by_key)


def log_samples_expire() -> int:
    """Delete samples from before what brokers keep; returns how many. Nothing older can be read again."""
    oldest = timezone.now() - timedelta(hours=2 * settings.HIGHWATER_RETENTION_HOURS)
    return LogSample.objects.filter(hour__lt=oldest).delete()[0]
