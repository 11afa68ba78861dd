"""A month's usage as files: by day, topic, direction, group and credential as CSV or Parquet, and its cost in FOCUS 1.2.

Parquet is written by pyarrow, which comes with the Spark jobs' packages: 45 MB for one button are not asked of all. Where
the platform installs those itself, their folder is used as soon as it is complete. Without pyarrow the answer says so, and CSV
has the same rows.
"""

import csv
import importlib
import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from django.db.models import Sum
from django.db.models.functions import TruncDay
from django.utils import timezone

from controlplane.billing.focus import Account, FocusRow, focus_csv
from controlplane.billing.models import Direction, Invoice, Usage
from controlplane.billing.periods import Month
from controlplane.clusters.models import Cluster
from controlplane.common.errors import Conflict
from controlplane.common.sentences import say
from controlplane.common.spreadsheets import spreadsheet_text
from controlplane.common.zones import zone_of
from controlplane.insight.availability import spark_setup
from controlplane.tenants.models import Tenant

# A file is made in memory: more is taken by day and topic from the API.
ROWS_MAX = 200_000


class ExportRow(NamedTuple):
    """A day of the tenant's zone of one topic, direction, group and credential."""

    day: str
    cluster: str
    direction: str
    topic: str
    consumer_group: str
    credential: str
    messages: int
    bytes: int
    byte_hours: int
    billed_units: Decimal
    amount: Decimal
    currency: str


def usage_rows_by_day(tenant: Tenant, month: Month) -> list[ExportRow]:
    """Return the month's usage; raises Conflict when it has too many rows for a file."""
    zone = zone_of(tenant.time_zone)
    key = ("day", "cluster__name", "direction", "topic", "consumer_group", "credential", "price__currency")
    found = (
        Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end)
        .annotate(day=TruncDay("hour", tzinfo=zone))
        .values(*key)
        .annotate(m=Sum("messages"), b=Sum("bytes"), u=Sum("billed_units"), a=Sum("amount"))
        .order_by(*key)[: ROWS_MAX + 1]
    )
    rows = list(found)
    _check(len(rows))
    return [
        ExportRow(
            f"{row['day']:%Y-%m-%d}",
            row["cluster__name"] or "",
            row["direction"],
            row["topic"],
            row["consumer_group"],
            row["credential"],
            int(row["m"]),
            0 if row["direction"] == Direction.STORAGE else int(row["b"]),
            int(row["b"]) if row["direction"] == Direction.STORAGE else 0,
            row["u"],
            row["a"],
            row["price__currency"] or "",
        )
        for row in rows
    ]


def usage_csv(tenant: Tenant, month: Month) -> bytes:
    """Return the rows for spreadsheets: no text is taken for a formula."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(ExportRow._fields)
    for row in usage_rows_by_day(tenant, month):
        writer.writerow([_cell(value) for value in row])
    return out.getvalue().encode()


def _cell(value: str | int | Decimal) -> str | int:
    """A decimal has all of its digits: as Python writes it, a small one has an exponent."""
    match value:
        case str():
            return spreadsheet_text(value)
        case Decimal():
            return format(value, "f")
        case _:
            return value


def has_parquet() -> bool:
    """Whether this process can write Parquet: it has pyarrow, or the platform has installed it for Spark."""
    if importlib.util.find_spec("pyarrow") is not None:
        return True
    setup = spark_setup(timezone.now())
    if setup is None or not setup.packages:
        return False
    if setup.packages not in sys.path:
        sys.path.append(setup.packages)  # last, so that it hides nothing
    return importlib.util.find_spec("pyarrow") is not None


def usage_parquet(tenant: Tenant, month: Month) -> bytes:
    """Return the same rows as Parquet, decimals as decimals; raises Conflict where pyarrow is not installed."""
    if not has_parquet():
        raise Conflict(
            say("Parquet can't be written here: pyarrow is not installed."),
            code="no_parquet",
            hint=say(
                "Take the CSV, which has the same rows, or install the dependency group `etl` beside the web process."
            ),
        )
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    types = {int: arrow.int64(), str: arrow.string()}
    decimals = {"billed_units": arrow.decimal128(38, 4), "amount": arrow.decimal128(38, 10)}
    fields = [(name, decimals.get(name) or types[ExportRow.__annotations__[name]]) for name in ExportRow._fields]
    rows = usage_rows_by_day(tenant, month)
    columns = zip(*rows, strict=True) if rows else ([] for _ in fields)
    table = arrow.table(
        [arrow.array(list(column), kind) for column, (_, kind) in zip(columns, fields, strict=True)],
        schema=arrow.schema(fields),
    )
    out = io.BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()


def cost_focus_csv(tenant: Tenant, month: Month) -> bytes:
    """Return the month's cost and usage in FOCUS 1.2; usage without a price has no cost, and is left out."""
    return focus_csv(Account(tenant.slug, tenant.name), month, _focus_rows(tenant, month)).encode()


def _focus_rows(tenant: Tenant, month: Month) -> Iterator[FocusRow]:
    invoices = {
        invoice.currency: invoice.number_text
        for invoice in Invoice.objects.filter(tenant=tenant, month=month.first_day)
    }
    tags = {
        pk: json.dumps(labels, sort_keys=True)
        for pk, labels in Cluster.objects.filter(tenant=tenant).values_list("pk", "labels")
    }
    key = ("day", "cluster_id", "cluster__name", "direction", "topic", "price_id", "price__currency")
    rates = {
        Direction.IN: "price__per_million_units",
        Direction.OUT: "price__per_million_units_out",
        Direction.STORAGE: "price__per_gib_month_stored",
    }
    found = list(
        Usage.objects.filter(tenant=tenant, hour__gte=month.start, hour__lt=month.end)
        .exclude(price=None)
        .annotate(day=TruncDay("hour"))
        .values(*key, *rates.values())
        .annotate(b=Sum("bytes"), u=Sum("billed_units"), a=Sum("amount"))
        .order_by(*key)[: ROWS_MAX + 1]
    )
    _check(len(found))
    for row in found:
        day: datetime = row["day"]
        yield FocusRow(
            day=day,
            cluster_id=str(row["cluster_id"]),
            cluster_name=row["cluster__name"] or str(row["cluster_id"]),
            direction=row["direction"],
            topic=row["topic"],
            billed_units=row["u"],
            byte_hours=int(row["b"]) if row["direction"] == Direction.STORAGE else 0,
            price_id=str(row["price_id"]),
            rate=row[rates[Direction(row["direction"])]],
            currency=row["price__currency"],
            amount=row["a"],
            invoice=invoices.get(row["price__currency"], ""),
            tags=tags.get(row["cluster_id"], "{}"),
        )


def _check(count: int) -> None:
    if count > ROWS_MAX:
        raise Conflict(
            say("The month has more than %(most)s rows, too many for one file.", most=f"{ROWS_MAX:,}"),
            code="too_many_rows",
            hint=say("Take the usage rows page by page: GET …/usage/records/."),
        )
