"""A running cluster's brokers in memory, for requests that reach them: topics are kept, messages are taken.

What else the control plane asks for is answered as by a cluster that is away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, Self
from unittest.mock import patch

from controlplane.clusters import account_distribution, remoting
from controlplane.clusters.account_distribution import Distribution
from controlplane.clusters.models import BrokerGroup, Cluster, Replica
from controlplane.provisioning import probe
from highwater import BrokerData, ClusterInfo, Message, MessageQueue, SendResult, SendStatus
from highwater.errors import ConnectError


class BrokersTwin:
    """Stands in for the SDK's Admin and Producer, as the control plane's `remoting` makes them."""

    def __init__(self, *connection: object, **settings: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def cluster_info(self) -> ClusterInfo:
        groups = {
            group.name: BrokerData(
                cluster=group.cluster.slug,
                broker_name=group.name,
                broker_addrs={0: group.replicas.order_by("broker_id")[0].address},
            )
            for group in BrokerGroup.objects.select_related("cluster").exclude(replicas__port=None)
        }
        return ClusterInfo(groups, {})

    def create_topic(self, name: str, **options: object) -> None: ...

    def delete_topic(self, name: str, *, cluster: str) -> None: ...

    def group_list(self, *, cluster: str = "") -> tuple[str, ...]:
        return ("billing",)

    def send(self, message: Message) -> SendResult:
        queue = MessageQueue(message.topic, "broker-a", 0)
        return SendResult(SendStatus.SEND_OK, "7F000001", "7F0000010000", queue, 0)

    def __getattr__(self, name: str) -> Any:
        def away(*_: object, **__: object) -> NoReturn:
            raise ConnectError(f"no one answers {name}")

        return away


@contextmanager
def brokers_that_answer() -> Iterator[None]:
    """Have daemons that run by their rows take topics, messages and accounts, and new ones register."""

    def registered(name_servers: Sequence[str], *_: object, **__: object) -> list[probe.Registration]:
        brokers = frozenset(replica.address for replica in Replica.objects.exclude(port=None))
        return [probe.Registration(address, brokers) for address in name_servers]

    def distribute(cluster: Cluster) -> Distribution:
        return Distribution(confirmed=1, missing=())

    with ExitStack() as stack:
        for patched in (
            patch.object(remoting, "Admin", BrokersTwin),
            patch.object(remoting, "Producer", BrokersTwin),
            patch.object(account_distribution, "_registered", [distribute]),
            patch.object(probe, "port_answers", return_value=True),
            patch.object(probe, "registrations", side_effect=registered),
            patch.object(probe, "broker_answers", return_value=""),
            patch.object(probe, "broker_refuses_strangers", return_value=True),
        ):
            stack.enter_context(patched)
        yield
