"""Each record once, and no send counted by two leaders."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_etl.transforms.metering_schema import RECORD_KEY


def deduplicate(records: DataFrame) -> DataFrame:
    """One record per (cluster, broker, epoch, sequence).

    Records of one key are the same record, read twice, but for one case: a power cut under ASYNC_FLUSH loses a record that
    was read before, and its key is used again for a longer stretch of the log. So the recounted, longer one is taken.
    """
    order = Window.partitionBy(*RECORD_KEY).orderBy(
        F.col("recounted").desc(), F.col("end_offset").desc(), F.col("end_ms").desc(), F.col("queue_offset").desc()
    )
    return records.withColumn("_rank", F.row_number().over(order)).where(F.col("_rank") == 1).drop("_rank")


def epoch_starts(records: DataFrame) -> DataFrame:
    """Where each epoch's counting begins: cluster, broker, epoch, first_offset."""
    return (
        records.groupBy("cluster", "broker", "epoch")
        .agg(F.min("start_offset").alias("first_offset"))
        .select("cluster", "broker", "epoch", "first_offset")
    )


def without_lost_tails(records: DataFrame, starts: DataFrame) -> DataFrame:
    """Empties `messages_in` and `messages_out` of records whose stretch of the log was lost by an unclean promotion.

    The new leader counts from where the records in its own log end. An earlier epoch's record that reaches beyond that
    counted messages which either are gone or are counted again; what it delivered the former leader tells again, for a
    record of the new one. `starts` is epoch_starts() of these records and of all later ones.
    """
    key = ["cluster", "broker", "epoch"]
    # Few rows: one for each leadership.
    later = starts.alias("later")
    limits = (
        starts.alias("own")
        .join(
            later,
            (F.col("own.cluster") == F.col("later.cluster"))
            & (F.col("own.broker") == F.col("later.broker"))
            & (F.col("later.epoch") > F.col("own.epoch")),
            how="inner",
        )
        .groupBy("own.cluster", "own.broker", "own.epoch")
        .agg(F.min("later.first_offset").alias("_limit"))
    )
    # A part of a split record has an empty stretch, at the stretch's begin.
    is_part = F.col("end_offset") == F.col("start_offset")
    lost = (F.col("end_offset") > F.col("_limit")) | (is_part & (F.col("start_offset") >= F.col("_limit")))
    marked = records.join(F.broadcast(limits), on=key, how="left").withColumn("_lost", F.coalesce(lost, F.lit(False)))
    for rows in ("messages_in", "messages_out"):
        marked = marked.withColumn(rows, F.filter(rows, lambda _: ~F.col("_lost")))
    return marked.select(*records.columns)
