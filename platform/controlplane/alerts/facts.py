"""What is known now of all running clusters: one query for each kind of row, however many clusters there are.

What was not sampled lately is unknown, and so is None. Nothing here asks a broker: this is what the samplings and Spark
have written down.
"""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from django.db import connection
from django.db.models import Exists, F, OuterRef, Window
from django.db.models.functions import RowNumber

from controlplane.alerts.evaluation import FORGOTTEN_AFTER, Fact, Key, OpenAlert
from controlplane.alerts.kinds import OPEN_MAX
from controlplane.clusters.certificates import next_signs_at
from controlplane.clusters.models import Cluster, ClusterState, Health, NameServer, Process, Replica
from controlplane.clusters.selectors import HEALTH_STALE_AFTER
from controlplane.common.models import AuditEvent
from controlplane.common.sentences import say
from controlplane.failover.models import ReplicaSample
from controlplane.insight.figures import STALE_AFTER
from controlplane.insight.models import LAG_IS_NEWS, ClusterFigures, LagWindow
from controlplane.topics.models import Topic

# A window is counted after its end, by a job that runs every few minutes and may have to be repeated.
_WINDOW_STALE_AFTER = timedelta(minutes=20)
DEAD_LETTERS_WITHIN = timedelta(hours=1)
_LAG_KINDS = ("lag_seconds", "group_stuck", "loss_ahead")
# Of one cluster, the worst: more alerts than OPEN_MAX of a kind don't begin, and the other clusters have their turn.
_NEWS_MAX = 10 * OPEN_MAX


def facts_now(now: datetime, open_alerts: Collection[OpenAlert]) -> Iterator[Fact]:
    """Yield the facts of all running clusters; of consumer groups those that may be wrong, or have an open alert."""
    clusters = {row.pk: row for row in Cluster.objects.filter(state=ClusterState.RUNNING)}
    yield from _daemons(now)
    yield from _groups(clusters, now)
    away: set[tuple[uuid.UUID, str]] = set()
    for fact in _figures(clusters, now, open_alerts):
        if fact.key.kind == "no_consumers" and fact.value:
            away.add((fact.key.cluster_id, fact.key.subject))
        yield fact
    yield from _certificates(clusters, now)
    for fact in _lag(now, open_alerts):
        yield _not_stuck_for_being_away(fact, away)


def _not_stuck_for_being_away(fact: Fact, away: Collection[tuple[uuid.UUID, str]]) -> Fact:
    """A group without consumers has an alert that says so; that it consumes nothing then is no second trouble."""
    group = fact.key.subject.partition(" on ")[0]
    is_away = fact.key.kind == "group_stuck" and (fact.key.cluster_id, group) in away
    return replace(fact, value=0.0) if is_away else fact


def groups_gone(open_alerts: Iterable[OpenAlert]) -> set[Key]:
    """Return which open alerts are about a consumer group that its brokers have dropped since the alert began."""
    groups = {
        alert: (alert.key.cluster_id, alert.key.subject.partition(" on ")[0])
        for alert in open_alerts
        if alert.key.kind in (*_LAG_KINDS, "no_consumers")
    }
    gone = _not_known("names", set(groups.values()))
    return {alert.key for alert, group in groups.items() if gone.get(group, alert.since) > alert.since}


def topics_gone(now: datetime, open_alerts: Iterable[OpenAlert]) -> set[Key]:
    """Return which open alerts are about the lag on a topic that was deleted since the alert began, here or by others."""
    topics = {
        alert: (alert.key.cluster_id, alert.key.subject.partition(" on ")[2])
        for alert in open_alerts
        if alert.key.kind in _LAG_KINDS
    }
    gone = _topics_gone(now, set(topics.values()))
    return {alert.key for alert, topic in topics.items() if gone.get(topic, alert.since) > alert.since}


def _topics_gone(now: datetime, topics: Collection[tuple[uuid.UUID, str]]) -> dict[tuple[uuid.UUID, str], datetime]:
    """Return those of the topics that were deleted here, or that their brokers do not know, with since when that is certain."""
    found = _not_known("topics", topics)
    for topic, at in _topics_deleted(now, topics).items():
        found[topic] = max(at, found.get(topic, at))
    return found


def _topics_deleted(now: datetime, topics: Collection[tuple[uuid.UUID, str]]) -> dict[tuple[uuid.UUID, str], datetime]:
    """Return those of the topics that were deleted within a day and not made again, with when. Older alerts are forgotten."""
    if not topics:
        return {}
    clusters = Cluster.objects.filter(pk__in={cluster_id for cluster_id, _ in topics}).select_related("tenant")
    by_id = {cluster.pk: cluster for cluster in clusters}
    asked = {
        Topic(cluster=by_id[cluster_id], name=name).path: (cluster_id, name)
        for cluster_id, name in topics
        if cluster_id in by_id
    }
    deletions = AuditEvent.objects.filter(
        action="topic.delete",
        tenant_id__in={cluster.tenant_id for cluster in by_id.values()},
        created_at__gt=now - FORGOTTEN_AFTER,
        resource__in=asked,
    )
    found = {asked[event.resource]: event.created_at for event in deletions.order_by("created_at")}
    if found:  # one whose deletion goes on still has its row
        there = Topic.objects.filter(cluster_id__in=by_id, name__in={name for _, name in found})
        for place in there.values_list("cluster_id", "name"):
            found.pop(place, None)
    return found


def _not_known(
    column: Literal["names", "topics"], asked: Collection[tuple[uuid.UUID, str]]
) -> dict[tuple[uuid.UUID, str], datetime]:
    """Return those of the groups (`names`) or `topics` that their brokers do not know, with when these reported it."""
    if not asked:
        return {}
    clusters, names = zip(*asked, strict=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "select asked.cluster_id, asked.name, known.sampled_at"
            " from unnest(%s::uuid[], %s::text[]) as asked(cluster_id, name)"
            " join insight_cluster_groups known using (cluster_id)"
            # Of what is null nothing is said.
            " where not (case %s when 'topics' then known.topics else known.names end) ? asked.name",
            [list(clusters), list(names), column],
        )
        return {(cluster_id, name): sampled_at for cluster_id, name, sampled_at in cursor.fetchall()}


def subject_of(group: str, topic: str) -> str:
    """Return what an alert about a consumer group in a topic is about."""
    return f"{group} on {topic}"


def _daemons(now: datetime) -> Iterator[Fact]:
    rows: list[tuple[uuid.UUID, str, Process]] = [
        *((row.cluster_id, str(row), row) for row in NameServer.objects.filter(cluster__state=ClusterState.RUNNING)),
        *((row.group.cluster_id, _name(row), row) for row in _replicas()),
    ]
    for cluster_id, name, row in rows:
        known = _is_fresh(row, now) and row.health != Health.UNKNOWN
        value = float(row.health == Health.DOWN) if known else None
        yield Fact(Key(cluster_id, "daemon_down", name), value, row.health_message)


def _groups(clusters: dict[uuid.UUID, Cluster], now: datetime) -> Iterator[Fact]:
    """Whether each broker group has a leader, and how far its followers lag."""
    members: dict[tuple[uuid.UUID, str], list[Replica]] = defaultdict(list)
    for row in _replicas():
        members[row.group.cluster_id, row.group.name].append(row)
    for (cluster_id, name), rows in members.items():
        cluster = clusters.get(cluster_id)
        if cluster is None:  # it began to run meanwhile
            continue
        if not cluster.is_replicated:
            yield Fact(Key(cluster_id, "leader_missing", name), _missing_alone(rows, now))
            continue
        samples = [(row, _sample(row, now)) for row in rows]
        missing = _missing([sample for _, sample in samples])
        yield Fact(Key(cluster_id, "leader_missing", name), missing)
        for row, sample in samples:
            # A gap is what the leader reported of it; the leader's own is 0.
            gap = None if sample is None or missing != 0 else sample.gap_bytes
            yield Fact(Key(cluster_id, "replica_behind", _name(row)), None if gap is None else float(gap))


def _missing_alone(rows: list[Replica], now: datetime) -> float | None:
    if not all(_is_fresh(row, now) and row.health != Health.UNKNOWN for row in rows):
        return None
    return float(any(row.health == Health.DOWN for row in rows))


def _missing(samples: list[ReplicaSample | None]) -> float | None:
    if any(sample is not None and sample.answers and sample.role == "master" for sample in samples):
        return 0.0
    return None if None in samples else 1.0


def _figures(clusters: dict[uuid.UUID, Cluster], now: datetime, open_alerts: Collection[OpenAlert]) -> Iterator[Fact]:
    rows = ClusterFigures.objects.filter(cluster__state=ClusterState.RUNNING)
    latest = {
        row.cluster_id: row
        for row in rows.filter(sampled_at__gt=now - STALE_AFTER)
        .order_by("cluster_id", "-sampled_at")
        .distinct("cluster_id")
    }
    earliest = dict(
        rows.filter(sampled_at__gt=now - DEAD_LETTERS_WITHIN, dead_letters__isnull=False)
        .order_by("cluster_id", "sampled_at")
        .distinct("cluster_id")
        .values_list("cluster_id", "dead_letters")
    )
    waited_for: dict[uuid.UUID, set[str]] = defaultdict(set)
    for alert in open_alerts:
        if alert.key.kind == "no_consumers":
            waited_for[alert.key.cluster_id].add(alert.key.subject)
    for cluster_id in clusters:
        row = latest.get(cluster_id)
        yield Fact(Key(cluster_id, "disk_used", ""), _percent(None if row is None else row.disk_used))
        yield Fact(Key(cluster_id, "quota_used", ""), _percent(None if row is None else row.quota_used))
        before, after = earliest.get(cluster_id), None if row is None else row.dead_letters
        new = None if before is None or after is None else float(after - before)
        yield Fact(Key(cluster_id, "dead_letters", ""), new)
        if row is not None and row.groups_away is not None:
            away, cut = set(row.groups_away), row.groups_away_known_to
            more = "" if cut is None else _more_away(row)
            for group in {*away, *waited_for[cluster_id]}:
                # Of names past the cut the brokers name only those that come first.
                is_unknown = group not in away and cut is not None and group > cut
                value = None if is_unknown else float(group in away)
                yield Fact(Key(cluster_id, "no_consumers", group), value, more)


def _more_away(row: ClusterFigures) -> str:
    return say(
        "%(count)s groups of this cluster have no consumer. The brokers name the first hundred, so that alerts watch only those.",
        count=row.groups_away_count,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _certificates(clusters: dict[uuid.UUID, Cluster], now: datetime) -> Iterator[Fact]:
    for cluster in clusters.values():
        if cluster.tls_renew_at is not None:
            late = now - cluster.tls_renew_at
            yield Fact(Key(cluster.pk, "certificate_old", ""), late / timedelta(days=1))
        changes_at = next_signs_at(cluster.tls_ca, cluster.tls_ca_step_at) if cluster.tls_ca else None
        if changes_at is not None:
            yield Fact(Key(cluster.pk, "ca_changes", ""), (changes_at - now) / timedelta(days=1))


def _lag(now: datetime, open_alerts: Collection[OpenAlert]) -> Iterator[Fact]:
    opened = {(alert.key.cluster_id, alert.key.subject) for alert in open_alerts if alert.key.kind in _LAG_KINDS}
    # One that has just begun, with a single sample, knows no trend yet: the one before it stands.
    recent = LagWindow.objects.filter(
        queue_id=-1,
        window_start__gt=now - _WINDOW_STALE_AFTER,
        samples__gt=1,
        cluster_id__in=Cluster.objects.filter(state=ClusterState.RUNNING).values("pk"),
    )
    newer = LagWindow.objects.filter(
        cluster_id=OuterRef("cluster_id"),
        consumer_group=OuterRef("consumer_group"),
        topic=OuterRef("topic"),
        broker=OuterRef("broker"),
        queue_id=-1,
        samples__gt=1,
        window_start__gt=OuterRef("window_start"),
    )
    # The windows with news are found first, by their own index; that they are the latest is asked of these few only.
    worst = Window(
        RowNumber(),
        partition_by="cluster_id",
        order_by=[F("loses_data_at").asc(nulls_last=True), F("stuck").desc(), F("lag_ms_last").desc(nulls_last=True)],
    )
    news = recent.filter(LAG_IS_NEWS).filter(~Exists(newer)).annotate(place=worst).filter(place__lte=_NEWS_MAX)
    yielded: set[int] = set()
    wrong = list(news)
    gone = _not_known("names", {(window.cluster_id, window.consumer_group) for window in wrong})
    no_topic = _topics_gone(now, {(window.cluster_id, window.topic) for window in wrong})
    for window in wrong:
        # Windows from before its deletion are news for a while.
        if gone.get((window.cluster_id, window.consumer_group), window.window_start) > window.window_start:
            continue
        if no_topic.get((window.cluster_id, window.topic), window.window_start) > window.window_start:
            continue
        yielded.add(window.pk)
        yield from _of_window(window, now)
    if not opened:
        return
    known = recent.filter(
        ~Exists(newer),
        cluster_id__in={cluster_id for cluster_id, _ in opened},
        consumer_group__in={subject.partition(" on ")[0] for _, subject in opened},
    )
    for one in known.iterator():
        if one.pk not in yielded and (one.cluster_id, subject_of(one.consumer_group, one.topic)) in opened:
            yield from _of_window(one, now)


def _of_window(window: LagWindow, now: datetime) -> Iterator[Fact]:
    subject = subject_of(window.consumer_group, window.topic)
    late_s = None if window.lag_ms_last is None else window.lag_ms_last / 1000
    yield Fact(Key(window.cluster_id, "lag_seconds", subject), late_s)
    yield Fact(Key(window.cluster_id, "group_stuck", subject), float(window.stuck))
    left = timedelta.max if window.loses_data_at is None else window.loses_data_at - now
    yield Fact(Key(window.cluster_id, "loss_ahead", subject), left / timedelta(hours=1))


def _replicas() -> list[Replica]:
    return list(
        Replica.objects.filter(group__cluster__state=ClusterState.RUNNING).select_related("group__cluster", "sample")
    )


def _name(row: Replica) -> str:
    return str(row) if row.group.cluster.is_replicated else row.group.name


def _is_fresh(row: Process, now: datetime) -> bool:
    return row.sampled_at is not None and now - row.sampled_at <= HEALTH_STALE_AFTER


def _sample(row: Replica, now: datetime) -> ReplicaSample | None:
    """Return what was last reported of it; None when that is too old, or it was never looked at."""
    sample: ReplicaSample | None = getattr(row, "sample", None)
    return sample if sample is not None and now - sample.sampled_at <= HEALTH_STALE_AFTER else None
