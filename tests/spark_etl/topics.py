"""Topics with known messages on a real broker, for the data source's tests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from highwater import Admin, Message, Producer
from tests.remoting import create_topic


@dataclass(frozen=True)
class Topic:
    """A topic of a running cluster."""

    spark: SparkSession
    namesrv: str
    name: str

    @classmethod
    def make(cls, spark: SparkSession, namesrv: str, broker_address: str, *, queues: int = 4) -> Topic:
        name = f"t{uuid.uuid4().hex[:12]}"
        create_topic(broker_address, name, queues=queues, namesrv=namesrv)
        return cls(spark, namesrv, name)

    def send(self, bodies: Sequence[str], **message: Any) -> list[str]:
        """Sends them, round robin over the queues; returns them."""
        with Producer(self.namesrv) as producer:
            for body in bodies:
                producer.send(Message(self.name, body.encode(), **message))
        return list(bodies)

    def options(self, **options: Any) -> dict[str, str]:
        return {"namesrv": self.namesrv, "topic": self.name, **{name: str(value) for name, value in options.items()}}

    def frame(self, **options: Any) -> DataFrame:
        return self.spark.read.format("highwater").options(**self.options(**options)).load()

    def bodies(self, **options: Any) -> list[str]:
        """What a batch reads, sorted."""
        return sorted(row.text for row in self.frame(**options).selectExpr("cast(body as string) as text").collect())

    def admin(self) -> Admin:
        return Admin(self.namesrv)


def numbers(begin: int, end: int) -> list[str]:
    """Bodies that sort as they were sent."""
    return [f"{number:06d}" for number in range(begin, end)]
