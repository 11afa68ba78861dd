"""Money: multipliers, prices with validity, rounding once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, NamedTuple

import pytest
from pyspark.sql import Row, SparkSession

from spark_etl.transforms.pricing import priced, valid_prices
from spark_etl.transforms.time import to_ms
from tests.spark_etl.metering import CLUSTER, OTHER_CLUSTER, TENANT, utc

TEN_DIGITS = Decimal("1e-10")
MULTIPLIERS = {"normal": "1", "ordered": "1.5", "delayed": "2", "transactional": "2.25"}


def price(plan: str, name: str, begin: str, end: str | None = None, **given: Any) -> tuple[Any, ...]:
    values = {"units": "2.0", "units_out": "0.5", "stored": "0.25", "multipliers": MULTIPLIERS, **given}
    money = [Decimal(values[name]).quantize(TEN_DIGITS) for name in ("units", "units_out", "stored")]
    times = [None if text is None else to_ms(utc(text)) for text in (begin, end)]
    return (plan, name, *times, *money, json.dumps(values["multipliers"]))


def subscription(plan: str, begin: str, end: str | None = None, tenant: str = TENANT) -> tuple[Any, ...]:
    return (tenant, plan, *(None if text is None else to_ms(utc(text)) for text in (begin, end)))


def usage_row(hour: str, direction: str = "in", **given: Any) -> tuple[Any, ...]:
    values = {"cluster": CLUSTER, "topic": "orders", "group": "", "kind": "", "bytes": 0, "units": 0, **given}
    if direction == "in":
        values["kind"] = values["kind"] or "normal"
    return (
        values["cluster"], to_ms(utc(hour)), direction, values["topic"], values["group"], "key", values["kind"],
        1, values["bytes"], values["units"],
    )  # fmt: skip


USAGE = (
    "cluster string, hour_ms long, direction string, topic string, consumer_group string, credential string, kind string,"
    " messages long, bytes long, units long"
)
PRICE = (
    "plan_id string, price_id string, from_ms long, to_ms long, per_million_units decimal(18,10),"
    " per_million_units_out decimal(18,10), per_gib_month_stored decimal(18,10), multipliers string"
)
SUBSCRIPTION = "tenant_id string, plan_id string, from_ms long, to_ms long"


class Case(NamedTuple):
    """Usage of one cluster, or of OTHER_CLUSTER whose tenant has no plan, and the plans of the tenant."""

    usage: Sequence[tuple[Any, ...]]
    prices: Sequence[tuple[Any, ...]]
    subscriptions: Sequence[tuple[Any, ...]]


GIVEN: dict[str, Case] = {}
ONE_PRICE = [price("plan", "p1", "2026-01-01")]
SUBSCRIBED = [subscription("plan", "2026-01-01")]

Rows = dict[str, list[Row]]


def case(
    *usage: tuple[Any, ...],
    prices: Sequence[tuple[Any, ...]] = ONE_PRICE,
    subscriptions: Sequence[tuple[Any, ...]] = SUBSCRIBED,
) -> str:
    """A tenant of its own; `costs` has its priced rows under the name that is returned."""
    name = f"case-{len(GIVEN)}"
    GIVEN[name] = Case(usage, prices, subscriptions)
    return name


@pytest.fixture(scope="module")
def costs(spark: SparkSession) -> Rows:
    """All cases' priced rows, each in the order of the hours."""
    usage, prices, subscriptions, tenants = [], [], [], []
    for name, given in GIVEN.items():
        clusters = {CLUSTER: name, OTHER_CLUSTER: f"{name}-other"}
        tenants += [(cluster, cluster) for cluster in clusters.values()]
        usage += [(clusters[row[0]], *row[1:]) for row in given.usage]
        prices += [(f"{name}-{row[0]}", *row[1:]) for row in given.prices]
        subscriptions += [(name, f"{name}-{row[1]}", *row[2:]) for row in given.subscriptions]
    frame = priced(
        spark.createDataFrame(usage, USAGE),
        spark.createDataFrame(tenants, "cluster string, tenant_id string"),
        valid_prices(spark.createDataFrame(prices, PRICE), spark.createDataFrame(subscriptions, SUBSCRIPTION)),
    )
    rows: Rows = {name: [] for name in GIVEN}
    for row in sorted(frame.collect(), key=lambda row: (row.hour_ms, row.kind, row.topic)):
        rows[row.cluster.removesuffix("-other")].append(row)
    return rows


KINDS = case(*(usage_row("2026-11-21 13:00", kind=kind, units=1000) for kind in MULTIPLIERS))


def test_each_kind_has_its_multiplier(costs: Rows) -> None:
    assert {row.kind: (row.billed_units, row.amount) for row in costs[KINDS]} == {
        kind: (1000 * Decimal(factor), 1000 * Decimal(factor) * 2 / 10**6) for kind, factor in MULTIPLIERS.items()
    }


NO_MULTIPLIERS = case(
    usage_row("2026-11-21 13:00", kind="delayed", units=7),
    prices=[price("plan", "p", "2026-01-01", multipliers={})],
)


def test_a_kind_without_a_multiplier_counts_once(costs: Rows) -> None:
    (row,) = costs[NO_MULTIPLIERS]
    assert row.billed_units == 7


DELIVERIES = case(usage_row("2026-11-21 13:00", "out", units=3_000_000, group="g"))


def test_deliveries_have_their_own_price_and_no_multiplier(costs: Rows) -> None:
    (row,) = costs[DELIVERIES]
    assert (row.billed_units, row.amount) == (3_000_000, Decimal("1.5"))


HOURS_OF_MONTHS = {"2026-02": 672, "2026-04": 720, "2026-10": 744}
STORED = {
    month: case(usage_row(f"{month}-15 00:00", "storage", bytes=2**30 * hours))
    for month, hours in HOURS_OF_MONTHS.items()
}


@pytest.mark.parametrize("month", STORED)
def test_a_gib_for_a_whole_month_costs_the_price_whatever_the_month(costs: Rows, month: str) -> None:
    (row,) = costs[STORED[month]]
    assert (row.amount, row.billed_units) == (Decimal("0.25"), 0)


RETRIED = case(
    *(usage_row("2026-11-21 13:00", topic=topic, units=9) for topic in ("%RETRY%g", "%DLQ%g")),
    usage_row("2026-11-21 13:00", "out", topic="%RETRY%g", group="g", units=9),
)


def test_what_the_broker_put_on_a_retry_topic_was_not_sent(costs: Rows) -> None:
    assert sorted((row.direction, row.billed_units, row.amount > 0) for row in costs[RETRIED]) == [
        ("in", 0, False), ("in", 0, False), ("out", 9, True),
    ]  # fmt: skip


INSIDE_A_MONTH = case(
    *(usage_row(hour, units=10**6) for hour in ("2026-11-15 11:00", "2026-11-15 12:00", "2026-11-30 23:00")),
    prices=[
        price("plan", "old", "2026-01-01", "2026-11-15 12:00", units="1"),
        price("plan", "new", "2026-11-15 12:00", units="3"),
    ],
)


def test_the_price_changes_inside_a_month_with_the_hour(costs: Rows) -> None:
    assert [(row.price_id, row.amount) for row in costs[INSIDE_A_MONTH]] == [("old", 1), ("new", 3), ("new", 3)]


INSIDE_AN_HOUR = case(
    *(usage_row(f"2026-11-15 {hour}:00", units=1) for hour in (12, 13)),
    prices=[
        price("plan", "old", "2026-01-01", "2026-11-15 12:30", units="1"),
        price("plan", "new", "2026-11-15 12:30", units="3"),
    ],
)


def test_a_price_that_begins_inside_an_hour_begins_with_the_next(costs: Rows) -> None:
    assert [row.price_id for row in costs[INSIDE_AN_HOUR]] == ["old", "new"]


TWO_PLANS = case(
    *(usage_row(hour, units=1) for hour in ("2026-10-31 23:00", "2026-11-01 00:00")),
    prices=[price("a", "pa", "2026-01-01", units="1"), price("b", "pb", "2026-01-01", units="5")],
    subscriptions=[subscription("a", "2026-01-01", "2026-11-01"), subscription("b", "2026-11-01")],
)


def test_a_tenant_that_changes_its_plan_pays_each_plan_for_its_hours(costs: Rows) -> None:
    assert [row.price_id for row in costs[TWO_PLANS]] == ["pa", "pb"]


UNPRICED = case(usage_row("2025-12-31 23:00", units=4), usage_row("2026-11-21 13:00", cluster=OTHER_CLUSTER, units=4))


def test_usage_without_a_price_is_kept_and_costs_nothing_yet(costs: Rows) -> None:
    found = [(row.price_id, row.amount, row.billed_units) for row in costs[UNPRICED]]
    assert found == [(None, 0, 4), (None, 0, 4)]


# Values that no binary fraction holds: price per million, units.
ROUNDED = [
    ("0.0000000001", 500_000), ("0.0000000001", 499_999), ("0.3333333333", 1), ("0.3333333333", 7),
    ("1234567.8901234567", 123_456_789), ("99999999.9999999999", 99), ("0.1", 3), ("2.0", 9 * 10**12),
]  # fmt: skip
BY_AMOUNT = {
    (per_million, units): case(
        usage_row("2026-11-21 13:00", kind="ordered", units=units),
        usage_row("2026-11-21 13:00", "storage", bytes=units * 1_000_003),
        prices=[price("plan", "p", "2026-01-01", units=per_million, stored=per_million)],
    )
    for per_million, units in ROUNDED
}


@pytest.mark.parametrize(("per_million", "units"), ROUNDED)
def test_amounts_are_exact_and_rounded_half_up_at_the_tenth_digit(costs: Rows, per_million: str, units: int) -> None:
    """As Python's decimals."""
    with localcontext(prec=60):
        sent = units * Decimal("1.5") * Decimal(per_million) / 10**6
        stored = units * 1_000_003 * Decimal(per_million) / (2**30 * 720)
        expected = {
            "in": sent.quantize(TEN_DIGITS, ROUND_HALF_UP), "storage": stored.quantize(TEN_DIGITS, ROUND_HALF_UP)
        }  # fmt: skip
    assert {row.direction: row.amount for row in costs[BY_AMOUNT[per_million, units]]} == expected
