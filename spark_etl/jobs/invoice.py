"""invoice: a tenant's months counted again from the version of the lake that an invoice was made from.

It changes nothing: the sums are its result, and the control plane compares them with the invoice. Records, leaderships
and prices are those of that version, whatever came, was repaired or was removed since.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.errors import ConfigError, EtlError
from spark_etl.jobs.config import CountedLine, HourBounds, InvoiceMonths, JobConfig, JobResult
from spark_etl.jobs.counting import PriceList, counted_records, usage_of
from spark_etl.jobs.lake import METERING, Lake, opened_lake
from spark_etl.jobs.postgres import connected
from spark_etl.jobs.run import main
from spark_etl.transforms.late import HourRange
from spark_etl.transforms.time import to_ms

JOB = "invoice"
_LINE = ("cluster", "direction", "topic", "price_id")


def run(spark: SparkSession, config: JobConfig) -> JobResult:
    """One run. `lines` are the sums of what is priced; `rows_in` is how many records were counted."""
    wanted = config.invoice
    if wanted is None:
        raise ConfigError("The configuration names no invoice.", "give the member invoice, see spark_etl/README.md.")
    with (
        connected(spark, config.database, JOB) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        if lake.java_table(METERING).snapshot(wanted.snapshot_id) is None:
            raise EtlError(
                f"Version {wanted.snapshot_id} of the lake, from which the invoice was made, is no longer kept.",
                "versions of invoices are kept as long as their records (HIGHWATER_LAKE_DAYS); restore a backup of the lake.",
            )
        prices = PriceList.read(postgres)
        result = JobResult(rows_in=0, rows_out=0, snapshot_id=str(wanted.snapshot_id), lines=[])
        for month in wanted.months:
            _count_month(lake, config, wanted, prices, month, result)
    return result


def _count_month(
    lake: Lake, config: JobConfig, wanted: InvoiceMonths, prices: PriceList, month: HourBounds, result: JobResult
) -> None:
    clusters = [cluster.cluster_id for cluster in config.clusters if cluster.tenant_id == wanted.tenant_id]
    own = lake.records(snapshot=wanted.snapshot_id).where(F.col("cluster").isin(clusters))
    hours = HourRange(to_ms(month.begin), to_ms(month.end))
    within = lake.records(hours, snapshot=wanted.snapshot_id).where(F.col("cluster").isin(clusters))
    usage = usage_of(lake, config, counted_records(within, *_epochs(own)), prices)
    sums = (
        usage.where("price_id is not null")
        .groupBy(*_LINE)
        .agg(*(F.sum(name).alias(name) for name in ("messages", "bytes", "billed_units", "amount")))
        .collect()
    )
    assert result.lines is not None, "run() begins with an empty list"
    result.lines += [
        CountedLine(
            month=month.begin,
            cluster_id=row.cluster,
            direction=row.direction,
            topic=row.topic,
            price_id=row.price_id,
            messages=row.messages,
            bytes=row.bytes,
            billed_units=row.billed_units,
            amount=row.amount,
        )
        for row in sums
    ]
    result.rows_in = (result.rows_in or 0) + within.count()
    result.rows_out = len(result.lines)


def _epochs(
    records: DataFrame,
) -> tuple[list[tuple[str, str, int, int, int]], dict[tuple[str, str, int], int]]:
    """Every leadership of these records, as state.epochs() and state.places() have those of all records."""
    found = (
        records.groupBy("cluster", "broker", "epoch")
        .agg(
            F.min("start_offset").alias("first"),
            F.max("end_offset").alias("last"),
            F.min("queue_offset").alias("place"),
        )
        .collect()
    )
    return (
        [(row.cluster, row.broker, row.epoch, row["first"], row["last"]) for row in found],
        {(row.cluster, row.broker, row.epoch): row.place for row in found if row.place is not None},
    )


if __name__ == "__main__":
    sys.exit(main(JOB, run))
