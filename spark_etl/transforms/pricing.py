"""Usage -> money, in Decimal: the kind's multiplier and the price that is valid when the hour begins.

Everything is integer arithmetic on decimals of scale 0 with one rounding, half up, at the tenth digit of each row; so sums of
rows are sums of exactly these amounts, in whatever order they are added.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mqwire.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from spark_etl.transforms.time import hours_of_month
from spark_etl.transforms.usage import USAGE_COUNTS, USAGE_KEY

MULTIPLIER_TYPE: Final = "decimal(10,4)"
PRICE_TYPE: Final = "decimal(18,10)"
AMOUNT_TYPE: Final = "decimal(28,10)"
BILLED_UNITS_TYPE: Final = "decimal(20,4)"
PRICES: Final = ("per_million_units", "per_million_units_out", "per_gib_month_stored")
GIB: Final = 2**30
MILLION: Final = 10**6


def valid_prices(prices: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """What each tenant pays, and when: tenant_id, price_id, from_ms, to_ms (null: no end), PRICES, multipliers (a map).

    Both inputs carry their range as epoch milliseconds (from_ms, to_ms); `prices` has plan_id, price_id, PRICES and
    multipliers as JSON text, `subscriptions` tenant_id and plan_id. Neither's ranges overlap.
    """
    no_end = F.lit(2**63 - 1)
    end = F.least(F.coalesce("price.to_ms", no_end), F.coalesce("subscription.to_ms", no_end))
    return (
        subscriptions.alias("subscription")
        .join(prices.alias("price"), F.col("subscription.plan_id") == F.col("price.plan_id"), how="inner")
        .select(
            F.col("subscription.tenant_id").alias("tenant_id"),
            F.col("price.price_id").alias("price_id"),
            F.greatest("price.from_ms", "subscription.from_ms").alias("from_ms"),
            end.alias("to_ms"),
            *(F.col(f"price.{name}").cast(PRICE_TYPE).alias(name) for name in PRICES),
            F.from_json(F.col("price.multipliers"), "map<string,string>").alias("multipliers"),
        )
        .where(F.col("from_ms") < F.col("to_ms"))
    )


def priced(usage: DataFrame, tenants: DataFrame, valid: DataFrame) -> DataFrame:
    """Adds tenant_id, billed_units, price_id and amount to hourly usage.

    `tenants` has cluster and tenant_id; `valid` is valid_prices(). Without a price: price_id null, amount 0.
    """
    price = F.broadcast(valid).alias("price")
    own = usage.join(F.broadcast(tenants), on="cluster", how="inner").alias("usage")
    is_valid = (
        (F.col("usage.tenant_id") == F.col("price.tenant_id"))
        & (F.col("usage.hour_ms") >= F.col("price.from_ms"))
        & (F.col("usage.hour_ms") < F.col("price.to_ms"))
    )
    return (
        own.join(price, is_valid, how="left")
        .withColumn("billed_units", _billed_units())
        .withColumn("amount", F.coalesce(_amount(), F.lit(0)).cast(AMOUNT_TYPE))
        .select(
            F.col("usage.tenant_id").alias("tenant_id"),
            *(F.col(f"usage.{name}").alias(name) for name in (*USAGE_KEY, *USAGE_COUNTS)),
            "billed_units",
            F.col("price.price_id").alias("price_id"),
            "amount",
        )
    )


def _billed_units() -> Column:
    """Units times the kind's multiplier. What a broker itself put on a retry or dead-letter topic was not sent: 0."""
    topic, direction = F.col("usage.topic"), F.col("usage.direction")
    not_sent = (direction == "in") & (
        topic.startswith(RETRY_GROUP_TOPIC_PREFIX) | topic.startswith(DLQ_GROUP_TOPIC_PREFIX)
    )
    multiplier = F.coalesce(F.try_element_at("price.multipliers", F.col("usage.kind")).cast(MULTIPLIER_TYPE), F.lit(1))
    # Units take 19 digits at most, but 14 are plenty for an hour; more is an error rather than a wrong sum.
    units = F.col("usage.units").cast("decimal(14,0)") * multiplier.cast(MULTIPLIER_TYPE)
    return F.when(not_sent, F.lit(0)).otherwise(units).cast(BILLED_UNITS_TYPE)


def _amount() -> Column:
    direction = F.col("usage.direction")
    units = _whole(F.col("billed_units"), 4, "decimal(19,0)")
    sent = _divided(units * _price("per_million_units"), F.lit(10**4 * MILLION).cast("decimal(19,0)"))
    delivered = _divided(units * _price("per_million_units_out"), F.lit(10**4 * MILLION).cast("decimal(19,0)"))
    byte_hours = F.col("usage.bytes").cast("decimal(19,0)")
    month = (hours_of_month(F.col("usage.hour_ms")) * F.lit(GIB)).cast("decimal(19,0)")
    stored = _divided(byte_hours * _price("per_gib_month_stored"), month)
    return F.when(direction == "in", sent).when(direction == "out", delivered).when(direction == "storage", stored)


def _whole(value: Column, scale: int, as_type: str) -> Column:
    """A decimal as an integer, in units of its last digit."""
    return (value * F.lit(10**scale)).cast(as_type)


def _price(name: str) -> Column:
    return _whole(F.col(f"price.{name}"), 10, "decimal(18,0)")


def _divided(numerator: Column, denominator: Column) -> Column:
    """The amount whose ten digits are numerator / denominator, rounded half up; both are whole and not negative.

    Spark's `div` of decimals is exact; its `/` rounds at a digit of its own choice.
    """
    half = F.call_function("div", denominator, F.lit(2).cast("decimal(19,0)"))
    # div gives a long: 922 million in money, for one row of one hour.
    digits = F.call_function("div", numerator + half.cast("decimal(19,0)"), denominator)
    return digits.cast("decimal(19,0)") * F.lit("0.0000000001").cast("decimal(10,10)")
