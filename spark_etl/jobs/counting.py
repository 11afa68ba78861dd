"""Records of the lake -> priced usage: what usage_billing writes and billing_check compares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig
from spark_etl.jobs.lake import Lake
from spark_etl.jobs.postgres import Postgres, Scope
from spark_etl.transforms.deduplicate import deduplicate, epoch_starts, without_lost_tails
from spark_etl.transforms.late import hours_to_count
from spark_etl.transforms.pricing import priced, valid_prices
from spark_etl.transforms.time import HOUR_MS, from_ms, hour_begin_ms
from spark_etl.transforms.usage import hourly_usage

PRICES = """
select id::text as price_id, plan_id::text as plan_id,
       (extract(epoch from valid_from) * 1000)::bigint as from_ms, (extract(epoch from valid_to) * 1000)::bigint as to_ms,
       per_million_units::numeric(18, 10), per_million_units_out::numeric(18, 10), per_gib_month_stored::numeric(18, 10),
       multipliers::text as multipliers
from billing_price
"""
SUBSCRIPTIONS = """
select tenant_id::text as tenant_id, plan_id::text as plan_id,
       (extract(epoch from valid_from) * 1000)::bigint as from_ms, (extract(epoch from valid_to) * 1000)::bigint as to_ms
from billing_subscription
"""


@dataclass(frozen=True)
class Counted:
    """Priced usage of a range of hours, and what it was counted from."""

    records: DataFrame
    usage: DataFrame
    scopes: tuple[Scope, ...]
    record_count: int
    range_from: datetime | None
    range_to: datetime | None


def count_usage(spark: SparkSession, config: JobConfig, postgres: Postgres, now: datetime) -> Counted:
    """Counts the hours that the configuration asks for, or the late window up to `now`."""
    hours = hours_to_count(now, config.late_window, config.range)
    lake = Lake(spark, config.lake)
    clusters = [cluster.cluster_id for cluster in config.clusters]
    records = deduplicate(lake.records(hours, clusters))
    starts = epoch_starts(lake.records(hours, clusters, without_end=True))
    tenants = spark.createDataFrame(
        [(cluster.cluster_id, cluster.tenant_id) for cluster in config.clusters], "cluster string, tenant_id string"
    )
    valid = valid_prices(postgres.query(PRICES), postgres.query(SUBSCRIPTIONS))
    usage = priced(hourly_usage(without_lost_tails(records, starts)), tenants, valid)
    seen = (
        records.groupBy("cluster", hour_begin_ms(F.col("start_ms")).alias("hour_ms"))
        .agg(F.count(F.lit(1)).alias("records"), F.max("end_ms").alias("end_ms"))
        .collect()
    )
    return Counted(
        records=records,
        usage=usage,
        scopes=scopes_of((row.cluster, row.hour_ms) for row in seen),
        record_count=sum(row.records for row in seen),
        range_from=min((from_ms(row.hour_ms) for row in seen), default=None),
        range_to=min(from_ms(max(row.end_ms for row in seen)), hours.end) if seen else None,
    )


def scopes_of(hours: Iterable[tuple[str, int]]) -> tuple[Scope, ...]:
    """(cluster, hour's begin in ms) as ranges without holes. An hour without any record is in none: it was not counted."""
    found: list[Scope] = []
    for cluster, hour_ms in sorted(hours):
        begin, end = from_ms(hour_ms), from_ms(hour_ms + HOUR_MS)
        last = found[-1] if found else None
        if last is not None and last.cluster_id == cluster and last.end == begin:
            found[-1] = Scope(cluster, last.begin, end)
        else:
            found.append(Scope(cluster, begin, end))
    return tuple(found)
