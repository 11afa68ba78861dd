"""Money: multipliers, prices with validity, rounding once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

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

ONE_PRICE = [price("plan", "p1", "2026-01-01")]
SUBSCRIBED = [subscription("plan", "2026-01-01")]


def cost(
    spark: SparkSession,
    usage: Sequence[tuple[Any, ...]],
    prices: Sequence[tuple[Any, ...]] = ONE_PRICE,
    subscriptions: Sequence[tuple[Any, ...]] = SUBSCRIBED,
) -> list[Row]:
    """Priced rows in the order of the hours."""
    tenants = spark.createDataFrame([(CLUSTER, TENANT), (OTHER_CLUSTER, "other")], "cluster string, tenant_id string")
    valid = valid_prices(spark.createDataFrame(prices, PRICE), spark.createDataFrame(subscriptions, SUBSCRIPTION))
    rows = priced(spark.createDataFrame(usage, USAGE), tenants, valid).collect()
    return sorted(rows, key=lambda row: (row.hour_ms, row.kind, row.topic))


def test_each_kind_has_its_multiplier(spark: SparkSession) -> None:
    rows = cost(spark, [usage_row("2026-11-21 13:00", kind=kind, units=1000) for kind in MULTIPLIERS])
    assert {row.kind: (row.billed_units, row.amount) for row in rows} == {
        kind: (1000 * Decimal(factor), 1000 * Decimal(factor) * 2 / 10**6) for kind, factor in MULTIPLIERS.items()
    }


def test_a_kind_without_a_multiplier_counts_once(spark: SparkSession) -> None:
    (row,) = cost(
        spark,
        [usage_row("2026-11-21 13:00", kind="delayed", units=7)],
        [price("plan", "p", "2026-01-01", multipliers={})],
    )
    assert row.billed_units == 7


def test_deliveries_have_their_own_price_and_no_multiplier(spark: SparkSession) -> None:
    (row,) = cost(spark, [usage_row("2026-11-21 13:00", "out", units=3_000_000, group="g")])
    assert (row.billed_units, row.amount) == (3_000_000, Decimal("1.5"))


@pytest.mark.parametrize(("month", "hours"), [("2026-02", 672), ("2026-04", 720), ("2026-10", 744)])
def test_a_gib_for_a_whole_month_costs_the_price_whatever_the_month(
    spark: SparkSession, month: str, hours: int
) -> None:
    (row,) = cost(spark, [usage_row(f"{month}-15 00:00", "storage", bytes=2**30 * hours)])
    assert (row.amount, row.billed_units) == (Decimal("0.25"), 0)


def test_what_the_broker_put_on_a_retry_topic_was_not_sent(spark: SparkSession) -> None:
    sent = [usage_row("2026-11-21 13:00", topic=topic, units=9) for topic in ("%RETRY%g", "%DLQ%g")]
    rows = cost(spark, [*sent, usage_row("2026-11-21 13:00", "out", topic="%RETRY%g", group="g", units=9)])
    assert sorted((row.direction, row.billed_units, row.amount > 0) for row in rows) == [
        ("in", 0, False), ("in", 0, False), ("out", 9, True),
    ]  # fmt: skip


def test_the_price_changes_inside_a_month_with_the_hour(spark: SparkSession) -> None:
    prices = [
        price("plan", "old", "2026-01-01", "2026-11-15 12:00", units="1"),
        price("plan", "new", "2026-11-15 12:00", units="3"),
    ]
    hours = ["2026-11-15 11:00", "2026-11-15 12:00", "2026-11-30 23:00"]
    rows = cost(spark, [usage_row(hour, units=10**6) for hour in hours], prices)
    assert [(row.price_id, row.amount) for row in rows] == [("old", 1), ("new", 3), ("new", 3)]


def test_a_price_that_begins_inside_an_hour_begins_with_the_next(spark: SparkSession) -> None:
    prices = [
        price("plan", "old", "2026-01-01", "2026-11-15 12:30", units="1"),
        price("plan", "new", "2026-11-15 12:30", units="3"),
    ]
    rows = cost(spark, [usage_row(f"2026-11-15 {hour}:00", units=1) for hour in (12, 13)], prices)
    assert [row.price_id for row in rows] == ["old", "new"]


def test_a_tenant_that_changes_its_plan_pays_each_plan_for_its_hours(spark: SparkSession) -> None:
    prices = [price("a", "pa", "2026-01-01", units="1"), price("b", "pb", "2026-01-01", units="5")]
    subscriptions = [subscription("a", "2026-01-01", "2026-11-01"), subscription("b", "2026-11-01")]
    rows = cost(
        spark, [usage_row(hour, units=1) for hour in ("2026-10-31 23:00", "2026-11-01 00:00")], prices, subscriptions
    )
    assert [row.price_id for row in rows] == ["pa", "pb"]


def test_usage_without_a_price_is_kept_and_costs_nothing_yet(spark: SparkSession) -> None:
    rows = cost(
        spark,
        [usage_row("2025-12-31 23:00", units=4), usage_row("2026-11-21 13:00", cluster=OTHER_CLUSTER, units=4)],
    )
    assert [(row.price_id, row.amount, row.billed_units) for row in rows] == [(None, 0, 4), (None, 0, 4)]


def test_amounts_are_exact_and_rounded_half_up_at_the_tenth_digit(spark: SparkSession) -> None:
    """Against Python's decimals, with values that no binary fraction holds."""
    cases = [
        ("0.0000000001", 500_000), ("0.0000000001", 499_999), ("0.3333333333", 1), ("0.3333333333", 7),
        ("1234567.8901234567", 123_456_789), ("99999999.9999999999", 99), ("0.1", 3), ("2.0", 9 * 10**12),
    ]  # fmt: skip
    for per_million, units in cases:
        prices = [price("plan", "p", "2026-01-01", units=per_million, stored=per_million)]
        rows = cost(
            spark,
            [
                usage_row("2026-11-21 13:00", kind="ordered", units=units),
                usage_row("2026-11-21 13:00", "storage", bytes=units * 1_000_003),
            ],
            prices,
        )
        with localcontext(prec=60):
            sent = units * Decimal("1.5") * Decimal(per_million) / 10**6
            stored = units * 1_000_003 * Decimal(per_million) / (2**30 * 720)
            expected = {
                "in": sent.quantize(TEN_DIGITS, ROUND_HALF_UP), "storage": stored.quantize(TEN_DIGITS, ROUND_HALF_UP)
            }  # fmt: skip
        assert {row.direction: row.amount for row in rows} == expected
