"""usage_billing: the lake's records -> hourly usage with prices in billing_usage.

A run counts whole hours: those that got records since the version of the lake that the last run had counted; with them
the whole late window when prices have changed, all where there was no such run; or a range that was asked for. So running it
twice changes nothing, a late record corrects its hour with the next run, and a run after which nothing came reads
nothing. Hours that are older than the late window are counted as long as their month is not invoiced: a cluster could
not be read for days, and the invoice waits for it; this job could not run for days; or they get their first price now.

Usage never falls by itself: an hour that would count less than before (records were lost from the lake) keeps its
rows and is noted in lake.refusal until an operator says why (`repair`, action accept).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.counting import (
    PriceList,
    Seen,
    clusters_with_new_leaders,
    counted_records,
    lost_hours,
    only,
    seen_in,
    usage_of,
)
from spark_etl.jobs.damage import isolating_damage
from spark_etl.jobs.lake import Lake, opened_lake
from spark_etl.jobs.postgres import Postgres, Scope, Target, connected
from spark_etl.jobs.run import main
from spark_etl.jobs.state import Progress, State
from spark_etl.transforms.deduplicate import lost_tails
from spark_etl.transforms.late import HourRange, hours_to_count
from spark_etl.transforms.time import HOUR_MS, from_ms, to_ms

logger = logging.getLogger("spark_etl")

JOB: Final = "usage_billing"
LISTED: Final = 20
USAGE: Final = Target(
    table="billing_usage",
    key=("cluster_id", "hour", "direction", "topic", "consumer_group", "credential", "kind"),
    values=("tenant_id", "messages", "bytes", "units", "billed_units", "price_id", "amount"),
    time="hour",
    touched="updated_at",
)
# Hours of the scopes where a row would vanish or count less: cluster, hour, messages stored, messages counted.
FALLEN: Final = """
with counted as (
    select distinct on (cluster_id, hour, direction, topic, consumer_group, credential, kind)
           cluster_id, hour, direction, topic, consumer_group, credential, kind, messages, bytes
    from billing_usage_staging where run_id = %s
), fallen as (
    select distinct usage.cluster_id, usage.hour
    from billing_usage usage
    join unnest(%s::uuid[], %s::timestamptz[], %s::timestamptz[]) scope (cluster_id, lower_end, upper_end)
      on usage.cluster_id = scope.cluster_id and usage.hour >= scope.lower_end and usage.hour < scope.upper_end
    left join counted
      on usage.cluster_id = counted.cluster_id and usage.hour = counted.hour and usage.direction = counted.direction
     and usage.topic = counted.topic and usage.consumer_group = counted.consumer_group
     and usage.credential = counted.credential and usage.kind = counted.kind
    where usage.messages > coalesce(counted.messages, 0) or usage.bytes > coalesce(counted.bytes, 0)
)
select cluster_id::text, hour,
       (select coalesce(sum(messages), 0)::bigint from billing_usage usage
        where usage.cluster_id = fallen.cluster_id and usage.hour = fallen.hour),
       (select coalesce(sum(messages), 0)::bigint from counted
        where counted.cluster_id = fallen.cluster_id and counted.hour = fallen.hour)
from fallen order by 1, 2
"""
# Hours (cluster, begin in ms) before a moment that were counted when they had no price, and have one now.
PRICED_SINCE: Final = """
select distinct usage.cluster_id::text, (extract(epoch from usage.hour) * 1000)::bigint
from billing_usage usage
join billing_subscription subscription
  on subscription.tenant_id = usage.tenant_id and usage.hour >= subscription.valid_from
 and (subscription.valid_to is null or usage.hour < subscription.valid_to)
join billing_price price
  on price.plan_id = subscription.plan_id and usage.hour >= price.valid_from
 and (price.valid_to is null or usage.hour < price.valid_to)
where usage.price_id is null and usage.hour < %s and usage.cluster_id = any(%s::uuid[])
"""
# A run of ingest stamps records with its begin and commits them at its end: no run takes as long.
INGEST_TAKES_MAX: Final = timedelta(days=1)


@dataclass(frozen=True)
class Work:
    """What a run counts, and where usage may fall without an operator: clusters whose leaders lost the tails of their
    logs.
    """

    records: DataFrame
    seen: Seen
    may_fall: frozenset[str] = frozenset()
    late: int = 0


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run."""
    with (
        connected(spark, config.database, JOB) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        return isolating_damage(
            lake, state, lambda since: _count(lake, state, postgres, config, now or datetime.now(UTC), since)
        )


def _count(lake: Lake, state: State, postgres: Postgres, config: JobConfig, now: datetime, since: bool) -> JobResult:
    snapshot = lake.snapshot()
    prices = PriceList.read(postgres)
    if snapshot is None:
        return JobResult(rows_in=0, rows_out=0, rows_late=0, rows_refused=0)
    work = _work(lake, state, postgres, config, now, snapshot, prices, since)
    staged, refused = 0, []
    if work is not None and work.seen.hours:
        lake.expect(work.seen.record_count)
        records = counted_records(work.records, state.epochs(), state.places())
        usage = usage_rows(usage_of(lake, config, records, prices))
        attempt = postgres.stage(USAGE, usage)
        with postgres.connection.transaction():
            refused = _refused(state, postgres, attempt, work)
            scopes = without_hours(work.seen.scopes, {(cluster, hour) for cluster, hour, _, _ in refused})
            _drop_staged(postgres, attempt, refused)
            staged = postgres.merge(USAGE, attempt, scopes, config.run_id)
            state.refuse(refused)
    if config.range is None:
        listed = [prices.prices, prices.subscriptions]
        state.save_progress(JOB, snapshot, {"prices": prices.digest, "price_list": listed, "counted_ms": to_ms(now)})
    seen = Seen(()) if work is None else work.seen
    return JobResult(
        state="failed" if refused else "completed",
        rows_in=seen.record_count,
        rows_out=staged,
        rows_late=0 if work is None else work.late,
        rows_refused=len(refused),
        snapshot_id=str(snapshot),
        range_from=seen.range_from,
        range_to=seen.range_to,
        error=_refusals(refused),
    )


def _work(
    lake: Lake,
    state: State,
    postgres: Postgres,
    config: JobConfig,
    now: datetime,
    snapshot: int,
    prices: PriceList,
    since: bool,
) -> Work | None:
    """What there is to count; None: nothing."""
    window = hours_to_count(now, config.late_window, config.range)
    clusters = [cluster.cluster_id for cluster in config.clusters]
    if config.range is not None:
        records = lake.records(window, snapshot=snapshot).where(F.col("cluster").isin(clusters))
        return Work(records, seen_in(records), _fallible(state) if since else frozenset())
    progress = state.progress(JOB)
    accepted = [(cluster, to_ms(hour)) for cluster, hour in state.accepted()]
    knows_added = since and progress.snapshot is not None and lake.is_known(progress.snapshot)
    added = _added(lake, progress, snapshot) if knows_added else _ingested_since(lake, progress, snapshot)
    has_new_prices = progress.details.get("prices") != prices.digest
    counts_window = has_new_prices or not knows_added
    if added is None and not accepted and not counts_window:
        return None
    touched: set[tuple[str, int]] = set(accepted)
    recounted: set[str] = set()
    may_fall: set[str] = set()
    late = 0
    if added is not None:
        new = seen_in(added)
        late = sum(records for _, hour_ms, records, _ in new.hours if hour_ms < window.from_ms)
        old = {(cluster, hour_ms) for cluster, hour_ms, _, _ in new.hours if hour_ms < window.from_ms}
        waited_for = not_invoiced(postgres, config, old)
        if waited_for != old:
            logger.warning(
                "records came for %d hours whose month is invoiced; a range that asks for them counts them",
                len(old - waited_for),
            )
        touched |= waited_for
        touched |= {(cluster, hour_ms) for cluster, hour_ms, _, _ in new.hours if hour_ms >= window.from_ms}
        recounted, may_fall = clusters_with_new_leaders(added, state.epochs())
        if may_fall:
            # What a leader lost may lie further back: its group was without one for days.
            before = lake.records(HourRange(0, window.from_ms), snapshot=snapshot)
            touched |= not_invoiced(postgres, config, lost_hours(before, may_fall, state.epochs(), state.places()))
    if has_new_prices:
        touched |= not_invoiced(postgres, config, set(postgres.rows(PRICED_SINCE, window.begin, clusters)))
    if counts_window:
        recounted, may_fall = set(clusters), may_fall | _fallible(state)
    bounds = _bounds([hour_ms for _, hour_ms in touched], window if recounted else None)
    if bounds is None:
        return Work(lake.records(HourRange(0, 0)), Seen(()), late=late)
    records = lake.records(bounds, snapshot=snapshot).where(F.col("cluster").isin(clusters))
    found = seen_in(records)
    hours = tuple(
        hour for hour in found.hours if hour[:2] in touched or (hour[0] in recounted and hour[1] >= window.from_ms)
    )
    seen = Seen(hours)
    chosen = records if len(hours) == len(found.hours) else only(records, seen)
    return Work(chosen, seen, frozenset(may_fall) if since else frozenset(), late)


def _added(lake: Lake, progress: Progress, snapshot: int) -> DataFrame | None:
    """The records that came since the version that was counted last; None: none did."""
    assert progress.snapshot is not None, "else what was added would not be known"
    return None if progress.snapshot == snapshot else lake.added(progress.snapshot, snapshot)


def _ingested_since(lake: Lake, progress: Progress, snapshot: int) -> DataFrame | None:
    """The same, and some more, where that version can't be read any more: by when they were ingested; all where there was
    no run. None: the last one did not say when it was.
    """
    if progress.snapshot is None:
        return lake.records(snapshot=snapshot)
    counted_ms = progress.details.get("counted_ms")
    if counted_ms is None:
        return None
    since_ms = counted_ms - INGEST_TAKES_MAX // timedelta(milliseconds=1)
    return lake.records(snapshot=snapshot).where(F.col("ingested_ms") >= since_ms)


def not_invoiced(postgres: Postgres, config: JobConfig, hours: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those (cluster, hour's begin in ms) whose tenant has no invoice of the month yet: that waits for them."""
    if not hours or not postgres.exists("billing_invoice"):
        return set(hours)
    issued = set(postgres.rows("select distinct tenant_id::text, to_char(month, 'YYYY-MM') from billing_invoice"))
    tenants = {cluster.cluster_id: cluster.tenant_id for cluster in config.clusters}
    return {
        (cluster, hour_ms)
        for cluster, hour_ms in hours
        if (tenants.get(cluster, ""), f"{from_ms(hour_ms):%Y-%m}") not in issued
    }


def _fallible(state: State) -> frozenset[str]:
    """Clusters that ever lost a tail: a full count may find it for the first time."""
    return frozenset(cluster for cluster, _, _ in lost_tails(state.epochs()))


def _bounds(hours: Sequence[int], window: HourRange | None) -> HourRange | None:
    edges = [*hours, *((window.from_ms, window.to_ms - HOUR_MS) if window else ())]
    return HourRange(min(edges), max(edges) + HOUR_MS) if edges else None


def usage_rows(usage: DataFrame) -> DataFrame:
    """Priced usage in the table's columns."""
    return usage.select(
        F.col("cluster").alias("cluster_id"),
        F.timestamp_millis("hour_ms").alias("hour"),
        *("direction", "topic", "consumer_group", "credential", "kind"),
        *USAGE.values,
    )


Refused = tuple[str, datetime, int, int]


def _refused(state: State, postgres: Postgres, attempt: str, work: Work) -> list[Refused]:
    """Hours that may not be written, as their usage would fall and no one said why."""
    scopes = work.seen.scopes
    accepted, refused_before = set(state.accepted()), set(state.refused())
    counted = {(cluster, from_ms(hour_ms)) for cluster, hour_ms, _, _ in work.seen.hours}
    fallen = postgres.rows(
        FALLEN,
        attempt,
        [scope.cluster_id for scope in scopes],
        [scope.begin for scope in scopes],
        [scope.end for scope in scopes],
    )
    refused = [
        (cluster, hour, stored, found)
        for cluster, hour, stored, found in fallen
        if (cluster not in work.may_fall or (cluster, hour) in refused_before) and (cluster, hour) not in accepted
    ]
    # What is written now is settled: accepted, or no longer fallen since the records are back.
    state.settle(sorted(counted - {(cluster, hour) for cluster, hour, _, _ in refused}))
    return refused


def _drop_staged(postgres: Postgres, attempt: str, refused: Sequence[Refused]) -> None:
    if refused:
        postgres.change(
            "delete from billing_usage_staging where run_id = %s and (cluster_id, hour) in"
            " (select * from unnest(%s::uuid[], %s::timestamptz[]))",
            *(attempt, [cluster for cluster, _, _, _ in refused], [hour for _, hour, _, _ in refused]),
        )


def without_hours(scopes: Iterable[Scope], hours: set[tuple[str, datetime]]) -> list[Scope]:
    """The scopes without these (cluster, hour)."""
    if not hours:
        return list(scopes)
    left = []
    for scope in scopes:
        begin = scope.begin
        for hour in sorted(
            hour for cluster, hour in hours if cluster == scope.cluster_id and scope.begin <= hour < scope.end
        ):
            if begin < hour:
                left.append(Scope(scope.cluster_id, begin, hour))
            begin = hour + timedelta(milliseconds=HOUR_MS)
        if begin < scope.end:
            left.append(Scope(scope.cluster_id, begin, scope.end))
    return left


def _refusals(refused: Sequence[Refused]) -> str:
    if not refused:
        return ""
    lines = [
        f"cluster {cluster}, {hour:%Y-%m-%d %H:00}: {counted} messages were counted now, {stored} before"
        for cluster, hour, stored, counted in refused[:LISTED]
    ]
    head = (
        f"The usage of {len(refused)} hours would fall and was left as it is: records may be missing from the lake."
        " Way out: read them again (lake reread), or say why it may fall (lake accept)."
    )
    return "\n".join([head, *lines])


if __name__ == "__main__":
    sys.exit(main(JOB, run))
