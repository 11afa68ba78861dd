"""Topics with known messages on a real broker, for the data source's tests."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from highwater import Admin, Message, NoRouteError, Producer
from tests.processes import wait_until
from tests.remoting import create_topic

SEND_TIMEOUT_MS = 60_000


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
        """Sends them, round robin over the queues; returns them. Waits for a broker that has just been (re)started."""
        wait_routed(self.namesrv, self.name)
        # A machine under load is no reason to send twice.
        with Producer(self.namesrv, timeout_ms=SEND_TIMEOUT_MS) as producer:
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


def wait_routed(namesrv: str, topic: str) -> None:
    """Returns when the name server knows where to send the topic's messages."""

    def routed() -> bool:
        with Admin(namesrv) as admin:
            try:
                return bool(admin.topic_route(topic).publish_queues)
            except NoRouteError:
                return False

    wait_until(routed, timeout_s=60, what=f"topic {topic} has a route")


def numbers(begin: int, end: int) -> list[str]:
    """Bodies that sort as they were sent."""
    return [f"{number:06d}" for number in range(begin, end)]
