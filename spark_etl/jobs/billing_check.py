"""billing_check: does billing_usage say, to the last digit, what the metering records say? Every difference is named.

It looks for usage rows that differ from what the lake counts (late records after their window, rows that someone
changed), for invoices that, with their adjustments, differ from their usage rows, for stretches of a broker's log
that no record counted, and for records left out. One finding is enough for the state "failed".

Both sides are of one moment: the lake in the version that usage_billing last counted, by the prices that it used, and
the rows while it does not run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Final

from psycopg.rows import dict_row
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_etl.jobs.config import JobConfig, JobResult, MeteredCluster
from spark_etl.jobs.counting import PriceList, Seen, counted_records, seen_in, usage_of
from spark_etl.jobs.damage import isolating_damage
from spark_etl.jobs.lake import Lake, opened_lake
from spark_etl.jobs.postgres import Postgres, connected
from spark_etl.jobs.run import main
from spark_etl.jobs.state import State
from spark_etl.jobs.usage_billing import JOB as BILLING
from spark_etl.transforms.check import (
    COMPARED,
    limits_of_counting,
    log_gaps,
    missing_sequences,
    unread_begins,
    usage_differences,
)
from spark_etl.transforms.late import hours_to_count
from spark_etl.transforms.time import from_ms
from spark_etl.transforms.usage import USAGE_KEY

JOB: Final = "billing_check"
FINDINGS_LISTED: Final = 20

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
INVOICE_CHECKS: Final = (
    (
        INVOICES,
        "invoice {number}, {direction}, topic {topic}: {invoiced} invoiced with all adjustments, {counted} counted",
    ),
    (TOTALS, "invoice {number}: its total is {total}, its lines sum to {lines}"),
)


def run(spark: SparkSession, config: JobConfig, *, now: datetime | None = None) -> JobResult:
    """One run. `rows_out` is the number of findings."""
    with (
        connected(spark, config.database, JOB) as postgres,
        opened_lake(spark, config, postgres) as lake,
    ):
        state = State(postgres, config.namespace)
        state.create()
        return isolating_damage(lake, state, lambda _: _check(lake, state, postgres, config, now or datetime.now(UTC)))


def _check(lake: Lake, state: State, postgres: Postgres, config: JobConfig, now: datetime) -> JobResult:
    clusters = [cluster.cluster_id for cluster in config.clusters]
    hours = hours_to_count(now, config.late_window, config.range or unchecked(postgres, clusters, now, config))
    # While we read its rows, usage_billing waits.
    postgres.lock(BILLING)
    try:
        billed = state.progress(BILLING)
        snapshot = (
            billed.snapshot if billed.snapshot is not None and lake.is_known(billed.snapshot) else lake.snapshot()
        )
        listed = billed.details.get("price_list")
        prices = PriceList.read(postgres) if listed is None else PriceList.of(listed)
        of_clusters = F.col("cluster").isin(clusters)
        records = lake.records(hours, snapshot=snapshot).where(of_clusters)
        seen = seen_in(records)
        lake.expect(seen.record_count)
        actual = postgres.query(USAGE.format(begin=hours.begin.isoformat(), end=hours.end.isoformat())).persist()
        actual.count()
    finally:
        postgres.unlock(BILLING)
    refused = {(cluster, int(hour.timestamp() * 1000)) for cluster, hour in state.refused()}
    epochs = state.epochs()
    counted = counted_records(records, epochs, state.places())
    usage = usage_of(lake, config, counted, prices)
    # What is missing from a log is missing, whether the rest was billed or not.
    newest = lake.records(hours).where(of_clusters)
    findings = _findings(lake, seen, newest, usage, actual, refused, epochs)
    try:
        notes = notes_of(limits_of_counting(newest).orderBy("cluster", "broker").limit(FINDINGS_LISTED).collect())
        by_cluster = (
            findings.groupBy("cluster")
            .agg(F.count("finding").alias("count"), F.min("finding").alias("first"))
            .collect()
        )
        # As a rule there is none, and nothing more to ask.
        listed_findings = [row.finding for row in findings.limit(FINDINGS_LISTED).collect()] if by_cluster else []
    finally:
        actual.unpersist()
    of_invoices = _invoice_findings(seen, postgres)
    count = sum(row["count"] for row in by_cluster) + len(of_invoices)
    listed_findings = [*listed_findings, *of_invoices][:FINDINGS_LISTED]
    cluster_errors = {row.cluster: row.first for row in by_cluster}
    if config.range is None:
        # A part of the time says nothing of what was found, or not looked at yet, in the rest.
        save_checked(postgres, config.clusters, seen, cluster_errors)
    return JobResult(
        state="failed" if count else "completed",
        rows_in=seen.record_count,
        rows_out=count,
        snapshot_id=str(snapshot or ""),
        range_from=seen.range_from,
        range_to=seen.range_to,
        error="\n".join([f"{count} findings", *listed_findings]) if count else "",
        cluster_errors=cluster_errors,
        notes="\n".join(notes),
    )


def unchecked(
    postgres: Postgres, clusters: Sequence[str], now: datetime, config: JobConfig
) -> tuple[datetime, datetime] | None:
    """From where a check without a range begins, where that is before the late window: what a cluster was ingested and
    not yet found right, or agreed on, is looked at again, so that no finding ends by growing old. Of a cluster that was
    never checked that is all that was counted.
    """
    if not postgres.exists("insight_cluster_progress"):
        return None
    ((since,),) = postgres.rows(
        "select min(right_until) from (select ingested_until, coalesce(greatest(checked_until, agreed_until),"
        " case when check_error <> '' then ingested_until - interval '31 days' end,"
        " (select min(hour) from billing_usage usage where usage.cluster_id = progress.cluster_id)) as right_until"
        " from insight_cluster_progress progress where cluster_id = any(%s::uuid[])) known where right_until < ingested_until",
        list(clusters),
    )
    if since is None:
        return None
    # With the record before, for what is missing is missing after one.
    begin = max(since - timedelta(hours=1), now - timedelta(days=config.retention.lake_days))
    return (begin, now) if begin < now - config.late_window else None


def notes_of(rows: Sequence[Row]) -> list[str]:
    """What the figures can't say, in sentences: it makes no bill wrong by more than they state."""
    found = []
    for row in rows:
        broker = f"Cluster {row.cluster}, broker {row.broker}"
        if row.pulls_lost_ms:
            found.append(
                f"{broker}: it was killed {row.kills} times; what it handed out in {row.pulls_lost_ms / 1000:g} s in all"
                " may not be counted. Sends are."
            )
        if row.clock_step_ms:
            found.append(
                f"{broker}: its clock was up to {row.clock_step_ms / 1000:+g} s from steady time, which intervals follow."
                " Way out: let NTP keep the clock."
            )
    return found


def _findings(
    lake: Lake,
    seen: Seen,
    records: DataFrame,
    usage: DataFrame,
    actual: DataFrame,
    refused: set[tuple[str, int]],
    epochs: Sequence[tuple[str, str, int, int, int]],
) -> DataFrame:
    """cluster, finding."""
    gaps, begins = log_gaps(records), unread_begins(records, epochs)
    found = _texts(
        gaps if begins is None else gaps.unionByName(begins),
        "cluster {cluster}, broker {broker}: bytes {from_offset} to {to_offset} of the log were not counted"
        " (before record {epoch}/{sequence})",
    ).unionByName(
        _texts(
            missing_sequences(records, epochs),
            "cluster {cluster}, broker {broker}: {missing} records are missing before {epoch}/{sequence}",
        )
    )
    if not seen.hours:
        return found
    # Hours that were not counted have no record to compare with; what an operator has to look at is said by
    # usage_billing.
    hours = lake.spark.createDataFrame(
        [hour[:2] for hour in seen.hours if hour[:2] not in refused], "cluster string, hour_ms long"
    )
    differences = usage_differences(
        usage.select(*USAGE_KEY, *COMPARED).join(F.broadcast(hours), on=["cluster", "hour_ms"], how="left_semi"),
        actual.join(F.broadcast(hours), on=["cluster", "hour_ms"], how="left_semi").select(*USAGE_KEY, *COMPARED),
    ).withColumn("hour", F.date_format(F.timestamp_millis("hour_ms"), "yyyy-MM-dd HH:00"))
    return found.unionByName(
        _texts(
            differences,
            "cluster {cluster}, {hour}, {direction}, topic {topic}, group {consumer_group}, credential {credential},"
            " kind {kind}: {difference}",
        )
    )


def _invoice_findings(seen: Seen, postgres: Postgres) -> list[str]:
    """What is wrong with the invoices of the months that were seen: rows that PostgreSQL alone compares."""
    if not seen.hours or not postgres.exists("billing_invoiceline"):
        return []
    bounds = {
        "begin": min(scope.begin for scope in seen.scopes).isoformat(),
        "end": max(scope.end for scope in seen.scopes).isoformat(),
    }
    found = []
    for query, template in INVOICE_CHECKS:
        with postgres.connection.cursor(row_factory=dict_row) as cursor:
            found += [template.format(**row) for row in cursor.execute(query.format(**bounds))]
    return found


def save_checked(
    postgres: Postgres, clusters: Sequence[MeteredCluster], seen: Seen, findings: Mapping[str, str]
) -> None:
    """How far each cluster was checked, for the control plane; what an invoice is accused of is no cluster's."""
    if not postgres.exists("insight_cluster_progress"):
        return
    until: dict[str, int] = {}
    for cluster, _, _, end_ms in seen.hours:
        until[cluster] = max(until.get(cluster, 0), end_ms)
    with postgres.connection.transaction(), postgres.connection.cursor() as cursor:
        cursor.executemany(
            "insert into insight_cluster_progress as kept (cluster_id, checked_until, check_error, updated_at)"
            " values (%(cluster)s, case when %(error)s = '' then %(until)s::timestamptz end, %(error)s, now())"
            " on conflict (cluster_id) do update set"
            " checked_until = greatest(kept.checked_until, excluded.checked_until), check_error = excluded.check_error,"
            " updated_at = now()",
            [
                {
                    "cluster": cluster.cluster_id,
                    "until": from_ms(until[cluster.cluster_id]),
                    "error": findings.get(cluster.cluster_id, ""),
                }
                for cluster in clusters
                if cluster.cluster_id in until
            ],
        )


def _texts(rows: DataFrame, template: str) -> DataFrame:
    """Each row as a sentence, with its cluster."""
    parts: list[str] = []
    arguments = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(literal.replace("%", "%%"))
        if name is not None:
            parts.append("%s")
            arguments.append(F.coalesce(F.col(name).cast("string"), F.lit("nothing")))
    return rows.select("cluster", F.format_string("".join(parts), *arguments).alias("finding"))


if __name__ == "__main__":
    sys.exit(main(JOB, run))
