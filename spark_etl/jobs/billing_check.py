"""billing_check: does billing_usage say, to the last digit, what the metering records say? Every difference is named.

It looks for usage rows that differ from what the lake counts (late records after their window, rows that somebody
changed), for invoices that, with their adjustments, differ from their usage rows, for stretches of a broker's log that no record
counted, and for records left out. One finding is enough for the state "failed".
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from string import Formatter
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig, JobResult
from spark_etl.jobs.counting import Counted, count_usage
from spark_etl.jobs.postgres import Postgres, connected
from spark_etl.jobs.run import main
from spark_etl.transforms.check import COMPARED, log_gaps, missing_sequences, usage_differences
from spark_etl.transforms.usage import USAGE_KEY

FINDINGS_TOLD: Final = 20

USAGE: Final = """
select cluster_id::text as cluster, (extract(epoch from hour) * 1000)::bigint as hour_ms, direction, topic, consumer_group,
       credential, kind, messages, bytes, units, billed_units::numeric(20, 4), amount::numeric(28, 10)
from billing_usage
where hour >= '{begin}' and hour < '{end}'
"""
# Of each invoice whose month the range touches, what was invoiced for a topic, with all adjustments on later invoices, and what its
# usage sums to, right to the last digit. Where usage has changed since (a trigger notes that), the difference may wait for the
# tenant's next invoice; one that was rounded line by line left out what was less than a cent.
INVOICES: Final = """
with invoice as (
    select id, number, tenant_id, month, currency
    from billing_invoice
    where month + interval '1 month' > timestamptz '{begin}' at time zone 'UTC'
      and month < timestamptz '{end}' at time zone 'UTC'
), invoiced as (
    select coalesce(corrects_id, invoice_id) as invoice_id, cluster_id, direction, topic, price_id,
           sum(exact_amount) as exact
    from billing_invoiceline
    where coalesce(corrects_id, invoice_id) in (select id from invoice)
    group by 1, 2, 3, 4, 5
), counted as (
    select invoice.id as invoice_id, usage.cluster_id, usage.direction, usage.topic, usage.price_id, sum(usage.amount) as amount
    from invoice
    join billing_usage usage on usage.tenant_id = invoice.tenant_id
     and usage.hour >= invoice.month::timestamp at time zone 'UTC'
     and usage.hour < (invoice.month + interval '1 month') at time zone 'UTC'
    join billing_price price on price.id = usage.price_id and price.currency = invoice.currency
    group by 1, 2, 3, 4, 5
)
select invoice.number::text as number, direction, topic, coalesce(exact, 0)::text as invoiced,
       coalesce(amount, 0)::text as counted
from invoiced full join counted using (invoice_id, cluster_id, direction, topic, price_id)
join invoice on invoice.id = invoice_id
left join billing_changedmonth changed on changed.tenant_id = invoice.tenant_id and changed.month = invoice.month
where case
    when changed.changed_at is null then coalesce(exact, 0) <> coalesce(amount, 0)
    else coalesce(exact, 0) <> coalesce(amount, 0) and exists (
        select from billing_invoice later
        where later.tenant_id = invoice.tenant_id and later.currency = invoice.currency
          and later.issued_at > changed.changed_at
          and (later.rounding = 'invoice' or abs(coalesce(exact, 0) - coalesce(amount, 0)) >= 0.01)
          and later.month > (
            select max(before.month) from billing_invoice before
            where before.tenant_id = invoice.tenant_id and before.currency = invoice.currency
              and before.issued_at <= changed.changed_at
          )
    )
end
"""
TOTALS: Final = """
select invoice.number::text as number, invoice.total::text as total, sum(line.amount)::text as lines
from billing_invoice invoice join billing_invoiceline line on line.invoice_id = invoice.id
where invoice.month + interval '1 month' > timestamptz '{begin}' at time zone 'UTC'
  and invoice.month < timestamptz '{end}' at time zone 'UTC'
group by invoice.id
having invoice.total <> round(sum(line.amount), 2)
"""


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run. `rows_out` is the number of findings."""
    with connected(spark, config.database, config.job) as postgres:
        counted = count_usage(spark, config, postgres, now or datetime.now(UTC))
        findings = _findings(counted, postgres).persist()
        try:
            count = findings.count()
            told = [row.finding for row in findings.limit(FINDINGS_TOLD).collect()]
        finally:
            findings.unpersist()
    return JobResult(
        "failed" if count else "completed",
        rows_in=counted.record_count,
        rows_out=count,
        range_from=counted.range_from,
        range_to=counted.range_to,
        error="\n".join([f"{count} findings", *told]) if count else "",
    )


def _findings(counted: Counted, postgres: Postgres) -> DataFrame:
    found = _texts(
        log_gaps(counted.records),
        "cluster {cluster}, broker {broker}: bytes {from_offset} to {to_offset} of the log were not counted"
        " (before record {epoch}/{sequence})",
    ).unionByName(
        _texts(
            missing_sequences(counted.records),
            "cluster {cluster}, broker {broker}: {missing} records are missing before {epoch}/{sequence}",
        )
    )
    if counted.range_from is None or not counted.scopes:
        return found
    begin, end = min(scope.begin for scope in counted.scopes), max(scope.end for scope in counted.scopes)
    bounds = {"begin": begin.isoformat(), "end": end.isoformat()}
    # Hours that were not counted have no record to compare with.
    hours = counted.records.select("cluster", F.expr("start_ms - pmod(start_ms, 3600000)").alias("hour_ms")).distinct()
    actual = postgres.query(USAGE.format(**bounds)).join(hours, on=["cluster", "hour_ms"], how="left_semi")
    differences = usage_differences(
        counted.usage.select(*USAGE_KEY, *COMPARED), actual.select(*USAGE_KEY, *COMPARED)
    ).withColumn("hour", F.date_format(F.timestamp_millis("hour_ms"), "yyyy-MM-dd HH:00"))
    found = found.unionByName(
        _texts(
            differences,
            "cluster {cluster}, {hour}, {direction}, topic {topic}, group {consumer_group}, credential {credential},"
            " kind {kind}: {difference}",
        )
    )
    if postgres.exists("billing_invoiceline"):
        invoices = postgres.query(INVOICES.format(**bounds))
        found = found.unionByName(
            _texts(
                invoices,
                "invoice {number}, {direction}, topic {topic}: {invoiced} invoiced with all adjustments,"
                " {counted} counted",
            )
        ).unionByName(
            _texts(
                postgres.query(TOTALS.format(**bounds)),
                "invoice {number}: its total is {total}, its lines sum to {lines}",
            )
        )
    return found


def _texts(rows: DataFrame, template: str) -> DataFrame:
    """Each row as a sentence."""
    parts: list[str] = []
    arguments = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(literal.replace("%", "%%"))
        if name is not None:
            parts.append("%s")
            arguments.append(F.coalesce(F.col(name).cast("string"), F.lit("nothing")))
    return rows.select(F.format_string("".join(parts), *arguments).alias("finding"))


if __name__ == "__main__":
    sys.exit(main("billing_check", run))
