"""Records of the lake -> priced usage: what usage_billing writes and billing_check compares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig
from spark_etl.jobs.lake import Lake
from spark_etl.jobs.postgres import Postgres, Scope
from spark_etl.transforms.deduplicate import (
    later_places,
    lost_records,
    lost_tail_limits,
    lost_tails,
    superseded,
    without,
    without_lost_tails,
)
from spark_etl.transforms.late import HourRange
from spark_etl.transforms.pricing import priced, valid_prices
from spark_etl.transforms.time import HOUR_MS, from_ms, hour_begin_ms
from spark_etl.transforms.usage import hourly_usage

PRICES = """
select id::text as price_id, plan_id::text as plan_id,
       (extract(epoch from valid_from) * 1000)::bigint as from_ms, (extract(epoch from valid_to) * 1000)::bigint as
       to_ms, per_million_units::numeric(18, 10)::text as per_million_units, per_million_units_out::numeric(18,
       10)::text as per_million_units_out, per_gib_month_stored::numeric(18, 10)::text as per_gib_month_stored,
       multipliers::text as multipliers
from billing_price order by id
"""
SUBSCRIPTIONS = """
select tenant_id::text as tenant_id, plan_id::text as plan_id,
       (extract(epoch from valid_from) * 1000)::bigint as from_ms, (extract(epoch from valid_to) * 1000)::bigint as
       to_ms
from billing_subscription order by id
"""
_PRICES_SCHEMA = (
    "price_id string, plan_id string, from_ms long, to_ms long, per_million_units string, per_million_units_out string,"
    " per_gib_month_stored string, multipliers string"
)
_SUBSCRIPTIONS_SCHEMA = "tenant_id string, plan_id string, from_ms long, to_ms long"


@dataclass(frozen=True, slots=True)
class PriceList:
    """What every tenant pays, and when, as it was at one moment."""

    prices: tuple[tuple[Any, ...], ...]
    subscriptions: tuple[tuple[Any, ...], ...]

    @classmethod
    def read(cls, postgres: Postgres) -> PriceList:
        return cls(tuple(postgres.rows(PRICES)), tuple(postgres.rows(SUBSCRIPTIONS)))

    @classmethod
    def of(cls, noted: Sequence[Sequence[Sequence[Any]]]) -> PriceList:
        """As noted with a job's progress."""
        prices, subscriptions = noted
        return cls(tuple(map(tuple, prices)), tuple(map(tuple, subscriptions)))

    @property
    def digest(self) -> str:
        """Equal for equal lists."""
        return hashlib.sha256(json.dumps([self.prices, self.subscriptions]).encode()).hexdigest()

    def frame(self, lake: Lake) -> DataFrame:
        """As valid_prices()."""
        return valid_prices(
            lake.spark.createDataFrame(list(self.prices), _PRICES_SCHEMA),
            lake.spark.createDataFrame(list(self.subscriptions), _SUBSCRIPTIONS_SCHEMA),
        )


@dataclass(frozen=True)
class Seen:
    """The hours that have records: what there is to count."""

    hours: tuple[tuple[str, int, int, int], ...]
    """cluster, the hour's begin in ms, records, the end of the last interval in ms"""

    @property
    def record_count(self) -> int:
        return sum(records for _, _, records, _ in self.hours)

    @property
    def range_from(self) -> datetime | None:
        return min((from_ms(hour_ms) for _, hour_ms, _, _ in self.hours), default=None)

    @property
    def range_to(self) -> datetime | None:
        """The end of the last interval; of an interval that reaches into the next hour, the end of its hour."""
        return max((from_ms(min(end_ms, hour_ms + HOUR_MS)) for _, hour_ms, _, end_ms in self.hours), default=None)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return scopes_of((cluster, hour_ms) for cluster, hour_ms, _, _ in self.hours)

    def bounds(self) -> HourRange:
        """From the first of the hours to the end of the last."""
        hours = [hour_ms for _, hour_ms, _, _ in self.hours]
        return HourRange(min(hours), max(hours) + HOUR_MS)


def seen_in(records: DataFrame) -> Seen:
    """The hours of these records. Reads few and small columns."""
    rows = (
        records.groupBy("cluster", hour_begin_ms(F.col("start_ms")).alias("hour_ms"))
        .agg(F.count(F.lit(1)).alias("records"), F.max("end_ms").alias("end_ms"))
        .collect()
    )
    return Seen(tuple(sorted((row.cluster, row.hour_ms, row.records, row.end_ms) for row in rows)))


def only(records: DataFrame, seen: Seen) -> DataFrame:
    """The records of these hours."""
    hours = records.sparkSession.createDataFrame(
        [(cluster, hour_ms) for cluster, hour_ms, _, _ in seen.hours], "cluster string, hour_ms long"
    )
    marked = records.withColumn("hour_ms", hour_begin_ms(F.col("start_ms")))
    return marked.join(F.broadcast(hours), on=["cluster", "hour_ms"], how="left_semi").drop("hour_ms")


def counted_records(
    records: DataFrame,
    epochs: Sequence[tuple[str, str, int, int, int]],
    places: Mapping[tuple[str, str, int], int],
) -> DataFrame:
    """Each record once, and no send counted by two leaders. Both are rare: as a rule the rows pass as they are."""
    losers = superseded(records).collect()
    if losers:
        records = without(records, losers)
    limits = lost_tail_limits(epochs)
    return without_lost_tails(records, limits, later_places(epochs, places)) if limits else records


def usage_of(lake: Lake, config: JobConfig, records: DataFrame, prices: PriceList) -> DataFrame:
    """Priced hourly usage of counted_records()."""
    tenants = lake.spark.createDataFrame(
        [(cluster.cluster_id, cluster.tenant_id) for cluster in config.clusters], "cluster string, tenant_id string"
    )
    return priced(hourly_usage(records), tenants, prices.frame(lake))


def clusters_with_new_leaders(
    added: DataFrame, epochs: Sequence[tuple[str, str, int, int, int]]
) -> tuple[set[str], set[str]]:
    """Clusters where a leadership begins in these records, and of these the ones where it lost the tail of an earlier
    one: older hours count less now.
    """
    limits: Mapping[tuple[str, str, int], int] = lost_tail_limits(epochs)
    if not limits:
        return set(), set()
    firsts = {(cluster, broker, epoch): first for cluster, broker, epoch, first, _ in epochs}
    begun = added.groupBy("cluster", "broker", "epoch").agg(F.min("start_offset").alias("first")).collect()
    beginning = {
        (row.cluster, row.broker, row.first)
        for row in begun
        if firsts.get((row.cluster, row.broker, row.epoch)) == row.first
    }
    logs = {(cluster, broker) for cluster, broker, _ in beginning}
    return (
        {cluster for cluster, broker, _ in limits if (cluster, broker) in logs},
        {cluster for cluster, _, _ in beginning & lost_tails(epochs)},
    )


def lost_hours(
    records: DataFrame,
    clusters: Collection[str],
    epochs: Sequence[tuple[str, str, int, int, int]],
    places: Mapping[tuple[str, str, int], int],
) -> set[tuple[str, int]]:
    """(cluster, hour's begin in ms) of the records of these clusters whose stretch of the log was lost by a leader."""
    limits = {key: limit for key, limit in lost_tail_limits(epochs).items() if key[0] in clusters}
    if not limits:
        return set()
    own = records.where(F.col("cluster").isin(list(clusters)))
    lost = lost_records(own, limits, later_places(epochs, places))
    rows = lost.select("cluster", hour_begin_ms(F.col("start_ms")).alias("hour_ms")).distinct().collect()
    return {(row.cluster, row.hour_ms) for row in rows}


def scopes_of(hours: Iterable[tuple[str, int]]) -> tuple[Scope, ...]:
    """(cluster, hour's begin in ms) as ranges without holes. An hour without any record is in none: it was not
    counted.
    """
    found: list[Scope] = []
    for cluster, hour_ms in sorted(hours):
        begin, end = from_ms(hour_ms), from_ms(hour_ms + HOUR_MS)
        last = found[-1] if found else None
        if last is not None and last.cluster_id == cluster and last.end == begin:
            found[-1] = Scope(cluster, last.begin, end)
        else:
            found.append(Scope(cluster, begin, end))
    return tuple(found)


def of_clusters(seen: Seen, clusters: Collection[str]) -> Seen:
    """The hours of these clusters."""
    return Seen(tuple(hour for hour in seen.hours if hour[0] in clusters))
