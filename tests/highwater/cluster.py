"""A running cluster as the SDK's tests see it: clients are made with the right addresses and credentials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from highwater import Admin, ConsumeFrom, Credentials, Producer, PushConsumer
from tests.highwater.collector import Collector
from tests.interop.targets import Target


@dataclass(frozen=True)
class Cluster:
    """Apache's or ours. `credentials` are the administrator's, None where no one signs."""

    target: Target

    @property
    def brand(self) -> str:
        return self.target.brand

    @property
    def namesrv(self) -> str:
        return self.target.running.namesrv

    @property
    def credentials(self) -> Credentials | None:
        given = self.target.credentials
        if given is None:
            return None
        return Credentials(given.access_key, given.secret_key, signature_version=1 if self.brand == "apache" else 2)

    @property
    def broker_address(self) -> str:
        return self.target.broker_address

    @property
    def broker_name(self) -> str:
        return self.target.broker_name

    def create_topic(self, name: str) -> str:
        """A topic of four queues that clients can find when this returns."""
        self.target.create_topic(name)
        return name

    def admin(self) -> Admin:
        return Admin(self.namesrv, self.credentials)

    def producer(self, **options: Any) -> Producer:
        return Producer(self.namesrv, "producers", credentials=self.credentials, **options)

    def consumer(self, group: str, collector: Collector, topic: str, tags: str = "*", **options: Any) -> PushConsumer:
        """A consumer that begins at the first message; not started yet."""
        options.setdefault("consume_from", ConsumeFrom.FIRST_OFFSET)
        consumer = PushConsumer(self.namesrv, group, credentials=self.credentials, **options)
        consumer.subscribe(topic, tags, handler=collector)
        return consumer
