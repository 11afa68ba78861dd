"""Each record once, and no send counted by two leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from spark_etl.transforms.metering_schema import RECORD_IDENTITY, RECORD_KEY

_LIMITS = "cluster string, broker string, epoch long, _limit long, _place long"


def superseded(records: DataFrame) -> DataFrame:
    """RECORD_IDENTITY of records whose key (cluster, broker, epoch, sequence) another record has too, and `goes`: whether
    they do not count. One that does is there twice.

    A power cut under ASYNC_FLUSH loses a record that was read before, and its key is used again for a longer stretch
    of the log. So the recounted, longer one counts. Reads small columns alone.
    """
    order = Window.partitionBy(*RECORD_KEY).orderBy(
        F.col("recounted").desc(), F.col("end_offset").desc(), F.col("end_ms").desc(), F.col("start_offset")
    )
    slim = records.select(*RECORD_IDENTITY)
    # Equal ones have one rank, as the order is by all in which records of a key differ.
    ranked = slim.withColumn("_row", F.row_number().over(order)).withColumn("goes", F.dense_rank().over(order) > 1)
    return ranked.where(F.col("_row") > 1).select(*RECORD_IDENTITY, "goes")


def without(records: DataFrame, found: Sequence[Row]) -> DataFrame:
    """The records that count, each once; `found` is superseded()."""
    if any(not row.goes for row in found):
        # Two runs of ingest at once, one of which had lost its lock with its database, may have added the same.
        records = records.dropDuplicates(list(RECORD_IDENTITY))
    types = ", ".join(f"{name} {records.schema[name].dataType.simpleString()}" for name in RECORD_IDENTITY)
    losers = [tuple(row[name] for name in RECORD_IDENTITY) for row in found if row.goes]
    frame = records.sparkSession.createDataFrame(losers, types)
    return records.join(F.broadcast(frame), on=list(RECORD_IDENTITY), how="left_anti").select(*records.columns)


def lost_tail_limits(epochs: Sequence[tuple[str, str, int, int, int]]) -> Mapping[tuple[str, str, int], int]:
    """(cluster, broker, epoch) -> where in its log a later leadership began to count again; only where records of the
    earlier one may reach beyond that, or be parts of a stretch that begins there.

    `epochs` are cluster, broker, epoch, first_offset, last_offset of every leadership.
    """
    limits: dict[tuple[str, str, int], int] = {}
    next_first: dict[tuple[str, str], int] = {}
    for cluster, broker, epoch, first, last in sorted(epochs, reverse=True):
        limit = next_first.get((cluster, broker))
        if limit is not None and last >= limit:
            limits[cluster, broker, epoch] = limit
        next_first[cluster, broker] = first if limit is None else min(first, limit)
    return limits


def later_places(
    epochs: Sequence[tuple[str, str, int, int, int]], places: Mapping[tuple[str, str, int], int]
) -> Mapping[tuple[str, str, int], int]:
    """(cluster, broker, epoch) -> where in the metering queue the first record of a later leadership lies; left out where that
    is not known of all of them. What an earlier leader wrote there, or after it, is in no later one's log.

    `places` are the places of each leadership's own first record.
    """
    found: dict[tuple[str, str, int], int] = {}
    next_place: dict[tuple[str, str], int | None] = {}
    for cluster, broker, epoch, _, _ in sorted(epochs, reverse=True):
        log = cluster, broker
        later = next_place.get(log)
        if later is not None:
            found[cluster, broker, epoch] = later
        own = places.get((cluster, broker, epoch))
        known = log not in next_place or later is not None
        next_place[log] = None if own is None or not known else own if later is None else min(own, later)
    return found


def lost_tails(epochs: Sequence[tuple[str, str, int, int, int]]) -> frozenset[tuple[str, str, int]]:
    """(cluster, broker, where in its log) of each leadership that began in front of what an earlier one had counted.

    A restart or a clean promotion begins where that ended, and loses nothing.
    """
    limits = lost_tail_limits(epochs)
    return frozenset(
        (cluster, broker, limit)
        for cluster, broker, epoch, _, last in epochs
        if (limit := limits.get((cluster, broker, epoch))) is not None and last > limit
    )


def without_lost_tails(
    records: DataFrame,
    limits: Mapping[tuple[str, str, int], int],
    places: Mapping[tuple[str, str, int], int] | None = None,
) -> DataFrame:
    """Empties `messages_in` and `messages_out` of records whose stretch of the log was lost by an unclean promotion.

    The new leader counts from where the records in its own log end. An earlier epoch's record that reaches beyond that
    counted messages which either are gone or are counted again; what it delivered the former leader reports again, for a
    record of the new one. `limits` are lost_tail_limits() of all leaderships, later ones included, `places` their
    later_places(): parts that the new leader's log has are not counted again by it.
    """
    marked = _with_limits(records, limits, places or {}, how="left").withColumn(
        "_lost", F.coalesce(_is_lost(), F.lit(False))
    )
    for rows in ("messages_in", "messages_out"):
        marked = marked.withColumn(rows, F.filter(rows, lambda _: ~F.col("_lost")))
    return marked.select(*records.columns)


def lost_records(
    records: DataFrame,
    limits: Mapping[tuple[str, str, int], int],
    places: Mapping[tuple[str, str, int], int],
) -> DataFrame:
    """The records that without_lost_tails() empties."""
    return _with_limits(records, limits, places, how="inner").where(_is_lost()).select(*records.columns)


def _with_limits(
    records: DataFrame,
    limits: Mapping[tuple[str, str, int], int],
    places: Mapping[tuple[str, str, int], int],
    *,
    how: str,
) -> DataFrame:
    rows = [(*key, limit, places.get(key)) for key, limit in limits.items()]
    frame = records.sparkSession.createDataFrame(rows, _LIMITS)
    return records.join(F.broadcast(frame), on=["cluster", "broker", "epoch"], how=how)


def _is_lost() -> Column:
    # A part of a split record has an empty stretch, at the stretch's begin.
    is_part = F.col("end_offset") == F.col("start_offset")
    is_gone = F.coalesce(F.col("queue_offset") >= F.col("_place"), F.lit(True))
    begins_there = F.col("start_offset") == F.col("_limit")
    return (F.col("end_offset") > F.col("_limit")) | (is_part & begins_there & is_gone)
