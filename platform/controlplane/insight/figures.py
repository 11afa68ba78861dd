"""What flows through a cluster: messages in and out, backlog, stored bytes, disk; sampled, and kept for a day.

Pages and the API read the rows, so that no reader waits for a broker. What is not known is None, never 0.
"""

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import TypeVar

from django.db.models import Max
from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.remoting import cluster_admin
from controlplane.common.errors import ApplicationError
from controlplane.common.logging import get_logger
from controlplane.failover.models import ReplicaSample
from controlplane.insight.models import LAG_IS_NEWS, ClusterFigures, ClusterGroups, LagWindow
from highwater import Admin
from mqwire.latency import latency_from_json, latency_quantile_ms, latency_sum

_log = get_logger("controlplane.insight")

SAMPLE_EVERY_S = 15
# Four samples were missed: the workers or the brokers are away, and the figures are of another time.
STALE_AFTER = timedelta(seconds=4 * SAMPLE_EVERY_S)
KEPT_FOR = timedelta(days=1)
# A chart has no more points than pixels.
POINTS_MAX = 360
_Number = TypeVar("_Number", int, float)
_GROUPS_EVERY = timedelta(minutes=1)
_NEWS_WITHIN = timedelta(minutes=30)
_LAST_MINUTE = 1  # of the three rates that a broker reports: the last 10 s, minute, 10 minutes


@dataclass(frozen=True, slots=True)
class Figures:
    """One sample. Rates are messages a second over the last minute; `disk_used` is a share from 0 to 1, of the fullest disk.
    `answer_ms` is of the slowest leader, `replica_gap_bytes` of the replica that lacks most of its leader's log. `send_p50_ms` and
    `send_p99_ms` are what half and 99 of 100 of the last minute's sends took in the brokers; None, too, where nothing was sent.

    `quota_used` is such a share, too, of the quota that is used most and is no rate. `dead_letters` counts all that were ever
    written; `groups_away` have a backlog and no member that is connected. Each leader names the first hundred of its own and counts
    them all: of a name past `groups_away_known_to` that is not among them nothing is known; None: all are. `groups_away_count` is
    the most that one leader counts.
    """

    in_per_second: float | None = None
    out_per_second: float | None = None
    backlog_messages: int | None = None
    stored_bytes: int | None = None
    disk_used: float | None = None
    connections: int | None = None
    answer_ms: float | None = None
    replica_gap_bytes: int | None = None
    dead_letters: int | None = None
    quota_used: float | None = None
    groups_away: list[str] | None = None
    groups_away_known_to: str | None = None
    groups_away_count: int | None = None
    in_bytes_per_second: float | None = None
    out_bytes_per_second: float | None = None
    send_p50_ms: float | None = None
    send_p99_ms: float | None = None


def figures_of(leaders: Sequence[Mapping[str, str]], groups: int) -> Figures:
    """Return the figures of a cluster of `groups` broker groups from what their leaders' runtime information says. Pure.

    With a leader that does not answer, or a value that one has not sampled yet, the sum is not known.
    """
    if not leaders or len(leaders) < groups:
        return Figures()
    ends, begins = _sum(_whole(leaders, "commitLogMaxOffset")), _sum(_whole(leaders, "commitLogMinOffset"))
    ratios = [_float(one.get("commitLogDiskRatio")) for one in leaders]
    away = _groups_away(leaders)
    sends = _send_times(leaders)
    return Figures(
        in_per_second=_sum(_rates(leaders, "putTps")),
        out_per_second=_sum(_rates(leaders, "getTransferredTps")),
        backlog_messages=_sum(_whole(leaders, "consumerLagMessages")),
        stored_bytes=None if ends is None or begins is None else ends - begins,
        disk_used=None if None in ratios else max(ratio for ratio in ratios if ratio is not None),
        connections=_sum(_whole(leaders, "clientConnections")),
        dead_letters=_sum(_whole(leaders, "deadLetterMessages")),
        quota_used=_fullest_quota(leaders),
        groups_away=None if away is None else sorted(set().union(*away)),
        groups_away_known_to=None if away is None else _known_to(leaders, away),
        groups_away_count=None if away is None else max(_counts(leaders, away)),
        in_bytes_per_second=_sum(_rates(leaders, "putBytesPerSecond")),
        out_bytes_per_second=_sum(_rates(leaders, "getBytesPerSecond")),
        send_p50_ms=latency_quantile_ms(sends, 0.5),
        send_p99_ms=latency_quantile_ms(sends, 0.99),
    )


def cluster_figures_sample(cluster_id: uuid.UUID) -> bool:
    """Write one sample of a running cluster; returns whether there is one. A cluster that does not answer has none."""
    cluster = Cluster.objects.select_related("tenant").filter(pk=cluster_id, state=ClusterState.RUNNING).first()
    if cluster is None:
        return False
    try:
        with cluster_admin(cluster) as admin:
            addresses = admin.cluster_info().master_addresses(cluster.slug)
            leaders = [admin.broker_runtime_info(address) for address in addresses]
            found = figures_of(leaders, cluster.broker_groups.count())
            if found != Figures():
                found = replace(
                    found, answer_ms=_answer_ms(admin, addresses), replica_gap_bytes=_replica_gap_bytes(cluster)
                )
            _groups_sample(cluster, admin, found, all_lead=len(leaders) == cluster.broker_groups.count())
    except ApplicationError as error:
        _log.info("no figures", cluster=str(cluster), error=error.message)
        return False
    if found == Figures():
        return False
    ClusterFigures.objects.create(
        cluster=cluster,
        sampled_at=timezone.now(),
        **{field.name: getattr(found, field.name) for field in fields(found)},
    )
    return True


def _answer_ms(admin: Admin, addresses: Iterable[str]) -> float:
    """How long the slowest leader takes to answer, over connections that are open already."""
    slowest_s = 0.0
    for address in addresses:
        begun_s = time.monotonic()
        admin.broker_config(address)
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
    return slowest_s * 1000


def _replica_gap_bytes(cluster: Cluster) -> int | None:
    """The largest gap that the leaders reported last; None in a cluster without followers."""
    samples = ReplicaSample.objects.filter(replica__group__cluster=cluster)
    found: int | None = samples.aggregate(most=Max("gap_bytes"))["most"]
    return found


def _groups_sample(cluster: Cluster, admin: Admin, found: Figures, *, all_lead: bool) -> None:
    """Once a minute, where something is said of a consumer group: write down which groups and topics the brokers know. A topic
    of a leader that is away is not missed.
    """
    now = timezone.now()
    if ClusterGroups.objects.filter(cluster=cluster, sampled_at__gt=now - _GROUPS_EVERY).exists():
        return
    news = LagWindow.objects.filter(LAG_IS_NEWS, cluster=cluster, queue_id=-1, window_start__gt=now - _NEWS_WITHIN)
    if found.groups_away or news.exists():
        names = list(admin.group_list(cluster=cluster.slug))
        topics = list(admin.topic_list(cluster=cluster.slug)) if all_lead else None
        ClusterGroups.objects.update_or_create(
            cluster=cluster, defaults={"names": names, "topics": topics, "sampled_at": now}
        )


def figures_latest(clusters: Iterable[Cluster]) -> dict[uuid.UUID, ClusterFigures]:
    """Return the newest sample of each cluster that has a fresh one, by the cluster's id."""
    since = timezone.now() - STALE_AFTER
    rows = ClusterFigures.objects.filter(cluster__in=list(clusters), sampled_at__gt=since).order_by("sampled_at")
    return {row.cluster_id: row for row in rows}


def figures_last_seen(cluster: Cluster) -> datetime | None:
    """Return when the cluster last reported its figures; None when it never did, or longer ago than samples are kept."""
    found: datetime | None = ClusterFigures.objects.filter(cluster=cluster).aggregate(at=Max("sampled_at"))["at"]
    return found


def figures_history(cluster: Cluster, since: datetime, until: datetime) -> list[ClusterFigures]:
    """Return the samples in [since, until), oldest first; of many every nth, so that there are at most POINTS_MAX."""
    rows = list(
        ClusterFigures.objects.filter(cluster=cluster, sampled_at__gte=since, sampled_at__lt=until).order_by(
            "sampled_at"
        )
    )
    step = -(-len(rows) // POINTS_MAX) or 1
    # From the end, so that the newest is always among them.
    return rows[::-step][::-1]


def figures_expire() -> int:
    """Delete samples older than a day; returns how many."""
    return ClusterFigures.objects.filter(sampled_at__lt=timezone.now() - KEPT_FOR).delete()[0]


def _rates(leaders: Sequence[Mapping[str, str]], name: str) -> list[float | None]:
    """The rate of the last minute of each; a place that is empty is not sampled yet."""
    found = []
    for one in leaders:
        places = one.get(name, "").split(" ")
        found.append(_float(places[_LAST_MINUTE]) if len(places) > _LAST_MINUTE else None)
    return found


def _send_times(leaders: Sequence[Mapping[str, str]]) -> dict[float, int]:
    """How long the last minute's sends took, over all leaders; nothing where one leader does not report it."""
    reported = [latency_from_json(one.get("sendLatency")) for one in leaders]
    known = [counts for counts in reported if counts is not None]
    return latency_sum(known) if len(known) == len(reported) else {}


def _whole(leaders: Sequence[Mapping[str, str]], name: str) -> list[int | None]:
    texts = [one.get(name, "") for one in leaders]
    return [int(text) if text.removeprefix("-").isdecimal() else None for text in texts]


def _sum(values: Sequence[_Number | None]) -> _Number | None:
    known = [value for value in values if value is not None]
    return None if len(known) < len(values) else reduce(add, known)


_MAY_BE_FULL = ("PerSecond", ".per.second", "quotaConnections", "quotaHeldPulls", "quota.held.pulls")


def _fullest_quota(leaders: Sequence[Mapping[str, str]]) -> float | None:
    shares = [0.0]
    for one in leaders:
        quotas = _json(one.get("quotas"))
        if not isinstance(quotas, list):
            return None
        for quota in quotas:
            # What rates are limited to is taken again each second: full is how a busy tenant looks. What a tenant gave a key of
            # connections and held pulls, or a topic, is meant to be used up.
            if not str(quota["quota"]).endswith(_MAY_BE_FULL) and quota["limit"] > 0:
                shares.append(quota["used"] / quota["limit"])
    return max(shares)


def _groups_away(leaders: Sequence[Mapping[str, str]]) -> list[list[str]] | None:
    """What each leader names. A consumer connects to every leader that has its topics, so that who is away at one is away."""
    away = []
    for one in leaders:
        groups = _json(one.get("consumerGroupsAway"))
        if not isinstance(groups, list):
            return None
        away.append([str(group) for group in groups])
    return away


def _counts(leaders: Sequence[Mapping[str, str]], away: Sequence[Sequence[str]]) -> list[int]:
    """How many groups are away at each; a broker of before, which counts none, names all that it knows of."""
    counted = _whole(leaders, "consumerGroupsAwayCount")
    return [len(named) if count is None else count for count, named in zip(counted, away, strict=True)]


def _known_to(leaders: Sequence[Mapping[str, str]], away: Sequence[Sequence[str]]) -> str | None:
    """The name up to which every leader names its groups; None when each names them all."""
    cut = [named[-1] for count, named in zip(_counts(leaders, away), away, strict=True) if named and count > len(named)]
    return min(cut, default=None)


def _json(text: str | None) -> object:
    try:
        return json.loads(text or "")
    except ValueError:
        return None


def _float(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None
