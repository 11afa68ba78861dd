"""Stock Java and Go producers with their default settings, sending one by one while a group changes its leader."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import plans
from tests.processes import wait_until
from tests.replication.replicas import WAIT_S, read_all

ROUTE_POLL_S = 30.0  # how long a stock client keeps a route
WELL_UNDER_S = 20.0
_PAUSE_S = 0.05


class StockSenders:
    """Each client sends from a thread of its own until the block ends."""

    def __init__(self, group: ReplicaGroup, topic: str, queues: int, clients: Sequence[DriverProcess]) -> None:
        self._group = group
        self._topic = topic
        self._queues = queues
        self._over = threading.Event()
        self._acknowledged: dict[str, list[tuple[float, str]]] = {client.name: [] for client in clients}
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(client,)) for client in clients]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def wait_all_write(self, since_s: float | None = None) -> dict[str, float]:
        """Returns once every client has begun and finished a send from now on; returns how long after `since_s` that was."""
        began_s = time.monotonic()
        wait_until(
            lambda: bool(self._failures) or all(self._first_from(name, began_s) for name in self._acknowledged),
            timeout_s=WAIT_S,
            what=f"{sorted(self._acknowledged)} write",
        )
        if self._failures:
            raise self._failures[0]
        return {name: (self._first_from(name, began_s) or 0.0) - (since_s or began_s) for name in self._acknowledged}

    def assert_all_held(self, replica: BrokerDaemon) -> None:
        """After the block: what was acknowledged is on this replica."""
        stored = Counter(
            message.properties["KEYS"]
            for queue in range(self._queues)
            for message in read_all(replica, self._topic, queue=queue)
        )
        keys = [key for sends in self._acknowledged.values() for _, key in sends]
        assert keys
        lost = [key for key in keys if not stored[key]]
        assert not lost, f"{len(lost)} of {len(keys)} acknowledged messages are lost: {lost[:5]}"

    def _first_from(self, name: str, from_s: float) -> float | None:
        return next((at_s for at_s, _ in self._acknowledged[name] if at_s >= from_s), None)

    def _run(self, client: DriverProcess) -> None:
        cluster = Cluster(self._group.namesrv)
        number = 0
        try:
            while not self._over.wait(_PAUSE_S):
                (plan,) = plans(f"{client.name}-{number}", 1, sizes=[100], first_index=number)
                number += 1
                (made,) = client.produce(cluster, self._topic, [plan], group=f"{self._topic}-{client.name}")
                if made["status"] == "SEND_OK":
                    self._acknowledged[client.name].append((time.monotonic(), plan["keys"]))
        except BaseException as error:
            self._failures.append(error)
