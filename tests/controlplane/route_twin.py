"""A cluster's administration with the topic `payments` on two broker groups, and the group `billing` with two members."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.clusters.models import Cluster
from controlplane.clusters.remoting import remoting_errors
from highwater import (
    BrokerData,
    ClientConnection,
    ClusterInfo,
    ConsumerConnections,
    ConsumerRunningInfo,
    HighwaterError,
    MessageQueue,
    ProcessQueueInfo,
    RequestTimeoutError,
    TopicConfig,
)


class RouteTwin:
    """Stands in for `cluster_admin` and what it yields; a test changes what it holds."""

    def __init__(self) -> None:
        self.addresses: dict[str, dict[int, str]] = {
            "broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
            "broker-b": {0: "10.0.0.3:10911"},
        }
        self.configs: dict[str, TopicConfig | HighwaterError] = {
            "10.0.0.1:10911": TopicConfig("payments", 2, 2, 6),
            "10.0.0.2:10911": TopicConfig("payments", 2, 2, 6),
            "10.0.0.3:10911": TopicConfig("payments", 1, 1, 6),
        }
        self.subscriptions = {"payments": "*"}
        self.message_model = "CLUSTERING"
        # Queues by member; None: it does not answer.
        self.members: dict[str, list[tuple[str, int]] | None] = {
            "one@1": [("broker-a", 0), ("broker-b", 0)],
            "two@2": [("broker-a", 1)],
        }

    @contextmanager
    def cluster_admin(self, cluster: Cluster) -> Iterator[RouteTwin]:
        with remoting_errors():
            yield self

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: BrokerData("orders", name, addresses) for name, addresses in self.addresses.items()}, {}
        )

    def topic_config(self, topic: str, address: str) -> TopicConfig:
        found = self.configs[address]
        if isinstance(found, HighwaterError):
            raise found
        return found

    def topic_groups(self, topic: str) -> tuple[str, ...]:
        return ("billing",)

    def consumer_connections(self, group: str) -> ConsumerConnections:
        return ConsumerConnections(
            group,
            tuple(ClientConnection(name, "10.0.0.9:1", "JAVA", 477) for name in self.members),
            self.subscriptions if self.members else {},
            message_model=self.message_model,
        )

    def consumer_running_info(self, group: str, client_id: str, *, timeout_ms: int) -> ConsumerRunningInfo:
        queues = self.members[client_id]
        if queues is None:
            raise RequestTimeoutError("no answer")
        held = [
            ProcessQueueInfo(MessageQueue("payments", *queue), 0, 0, 0, None, None, False, False, None, None)
            for queue in queues
        ]
        return ConsumerRunningInfo(group, client_id, queues=tuple(held))
