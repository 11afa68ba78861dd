"""billing_check over invoices: issued lines and their adjustments are what the usage sums to."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import psycopg
import pytest

from spark_etl.errors import EtlError
from tests.spark_etl.database import Database
from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metering import NOW, record, sent, utc

# 1,005,000 units at 2 for a million: exactly 2.01.
RECORD = record("2026-10-21 13:00", 1, messages_in=[sent("orders", 1_005_000)])
LATE = record("2026-10-21 13:30", 2, messages_in=[sent("orders", 250_000)])
OCTOBER = {"range": {"from": "2026-10-01T00:00:00Z", "to": "2026-11-01T00:00:00Z"}}
LONG_AFTER = utc("2199-01-01 00:00")


@pytest.fixture(autouse=True)
def _no_invoices_for_others(database: Database) -> Iterator[None]:
    """The check looks at every tenant's invoices, and the database is shared."""
    yield
    delete_invoices(database)


def count_october(world: JobWorld) -> None:
    """A tenant with a plan and a cluster's row, and one record of usage."""
    world.subscribe()
    world.add_cluster_row()
    world.add_to_lake(RECORD, now=NOW)
    world.run("usage_billing", now=NOW, **OCTOBER)


def add_invoice(
    world: JobWorld,
    month: str,
    exact: str,
    total: str,
    *,
    issued_at: datetime,
    corrects: str | None = None,
    snapshot: str = "",
) -> None:
    """An issued invoice with one line, for what was sent to the topic, or the adjustment of that."""
    values = {
        "id": str(uuid.uuid4()),
        "tenant": world.tenant_id,
        "month": month,
        "cluster": world.cluster_id,
        "exact": Decimal(exact),
        "total": Decimal(total),
        "issued_at": issued_at,
        "corrects": corrects,
        "snapshot": snapshot,
    }
    statement = (
        "with invoice as (insert into billing_invoice (id, created_at, updated_at, tenant_id, number, month, currency, total,"
        " rounding, snapshot_id, agreed_ends, tenant_name, issued_at, counted_until) select %(id)s, now(), now(), %(tenant)s,"
        " (select coalesce(max(number), 0) + 1 from billing_invoice), %(month)s, 'EUR', %(total)s,"
        " 'invoice', %(snapshot)s, '[]', 'x', %(issued_at)s, now()"
        " returning id)"
        " insert into billing_invoiceline (id, invoice_id, position, cluster_id, cluster_name, direction, topic, price_id,"
        " messages, bytes, billed_units, exact_amount, amount, corrects_id) select gen_random_uuid(), invoice.id, 1,"
        " %(cluster)s, 'x', 'in', 'orders', (select price_id from billing_usage where cluster_id = %(cluster)s limit 1),"
        " 1, 1, 1, %(exact)s, %(exact)s, %(corrects)s from invoice"
    )
    with psycopg.connect(world.database.url) as connection:
        connection.execute(statement, values)


def check(world: JobWorld) -> tuple[str, str]:
    result = world.run("billing_check", now=NOW, **OCTOBER)
    return result.state, result.error


def delete_invoices(database: Database, since: str = "2000-01-01") -> None:
    database.change(
        "delete from billing_invoiceline where invoice_id in (select id from billing_invoice where month >= %s)", since
    )
    database.change("delete from billing_invoice where month >= %s", since)


def october(world: JobWorld) -> str:
    query = "select id::text from billing_invoice where tenant_id = %s and month = '2026-10-01'"
    return str(world.database.rows(query, world.tenant_id)[0]["id"])


def test_invoices_are_right_to_the_last_digit_and_a_later_difference_is_on_the_next_invoice(world: JobWorld) -> None:
    """One month's life: nothing here needs to be counted twice."""
    count_october(world)
    add_invoice(world, "2026-10-01", "2.0100000001", "2.02", issued_at=NOW)
    state, error = check(world)
    assert state == "failed"
    assert "2.0100000001 invoiced with all adjustments, 2.0100000000 counted" in error
    assert "its total is 2.02, its lines sum to 2.0100000001" in error
    delete_invoices(world.database)
    add_invoice(world, "2026-10-01", "2.01", "2.01", issued_at=NOW)
    # Half a unit of money more, after the invoice: it may wait for the next one.
    world.add_to_lake(LATE, now=NOW)
    world.run("usage_billing", now=NOW, **OCTOBER)
    assert check(world) == ("completed", "")
    add_invoice(world, "2026-11-01", "0.49", "0.49", issued_at=LONG_AFTER, corrects=october(world))
    state, error = check(world)
    assert state == "failed"
    assert "in, topic orders: 2.5000000000 invoiced with all adjustments, 2.5100000000 counted" in error
    delete_invoices(world.database, "2026-11-01")
    add_invoice(world, "2026-11-01", "0.50", "0.50", issued_at=LONG_AFTER, corrects=october(world))
    assert check(world) == ("completed", "")


def test_a_bill_is_counted_again_from_the_version_it_was_made_from_after_all_others_have_expired(
    world: JobWorld,
) -> None:
    count_october(world)
    with world.lake() as (lake, _):
        made_from = lake.snapshot()
    assert made_from is not None
    add_invoice(world, "2026-10-01", "2.01", "2.01", issued_at=NOW, snapshot=str(made_from))
    world.add_to_lake(LATE, now=NOW)
    # Versions are as old as they are by the clock of this machine.
    only_the_last = {"retention": {"lake_days": 36_500, "snapshot_hours": 0, "orphan_hours": 240}}
    in_an_hour = datetime.now(UTC) + timedelta(hours=1)
    assert world.run("compaction", now=in_an_hour, **only_the_last).state == "completed"
    again = {"tenant_id": world.tenant_id, "snapshot_id": made_from, "months": [OCTOBER["range"]]}
    result = world.run("invoice", invoice=again)
    assert [(line.topic, line.messages, line.amount) for line in result.lines or ()] == [
        ("orders", 1_005_000, Decimal("2.0100000000"))
    ]
    with pytest.raises(EtlError, match="is no longer kept"):
        world.run("invoice", invoice={**again, "snapshot_id": 1})
