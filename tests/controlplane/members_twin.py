"""A cluster's administration with one group, `billing`, and one member, who answers as a test says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import remoting_errors
from highwater import ConsumerOfflineError, ConsumerRunningInfo, HighwaterError, MessageQueue, ProcessQueueInfo
from highwater import MemberSubscription as Subscription

CLIENT = "10.0.0.7@4711#billing"


def queue_info(queue_id: int = 0, **members: Any) -> ProcessQueueInfo:
    values: dict[str, Any] = {
        "queue": MessageQueue("payments", "broker-a", queue_id),
        "commit_offset": 2**40,
        "cached_messages": 3,
        "cached_mebibytes": 0,
        "cached_min_offset": 5,
        "cached_max_offset": 7,
        "locked": True,
        "dropped": False,
        "last_pull_timestamp_ms": 1_700_000_000_000,
        "last_consume_timestamp_ms": None,
    }
    return ProcessQueueInfo(**{**values, **members})


def running_info(**members: Any) -> ConsumerRunningInfo:
    values: dict[str, Any] = {
        "group": "billing",
        "client_id": CLIENT,
        "properties": {"PROP_CONSUMEORDERLY": "true"},
        "subscriptions": (Subscription("payments", "paid", "TAG"),),
        "queues": (queue_info(),),
    }
    return ConsumerRunningInfo(**{**values, **members})


class MembersTwin:
    """Stands in for `cluster_admin` and what it yields. `error` is raised instead of the answer."""

    def __init__(self) -> None:
        self.info = running_info()
        self.error: HighwaterError | None = None
        self.asked_for_stack: list[bool] = []

    @contextmanager
    def cluster_admin(self, cluster: Cluster) -> Iterator[MembersTwin]:
        with remoting_errors():
            yield self

    def group_list(self, *, cluster: str) -> tuple[str, ...]:
        return ("billing",)

    def consumer_running_info(self, group: str, client_id: str, *, stack: bool, timeout_ms: int) -> ConsumerRunningInfo:
        self.asked_for_stack.append(stack)
        if self.error is not None:
            raise self.error
        if client_id != CLIENT:
            raise ConsumerOfflineError(1, f"The Consumer <{group}> <{client_id}> not online", "broker-a")
        return self.info
