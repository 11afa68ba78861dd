"""A stock client that sends one by one, and what became of it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from itertools import count
from typing import Self

from tests.failover.live_group import wait_for
from tests.interop.clients import Cluster, ConsumerHandle, DriverProcess
from tests.interop.content import plans

_PAUSE_S = 0.02
_MORE = 20
# It asks for routes each 30 s by default: it shall see each new address while the test lasts.
_POLL_MS = 1000
# A push consumer keeps what it has on its way for as long as it needs; then everything is there.
_RECEIVE_TIMEOUT_MS = 60_000


class StockLoad:
    """Sends from a thread of its own until the block ends. The client's process takes one order at a time: no one else may
    give it one meanwhile.
    """

    def __init__(self, client: DriverProcess, cluster: Cluster, topic: str) -> None:
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.longest_gap_s = 0.0
        self._client, self._cluster, self._topic = client, cluster, topic
        self._name = uuid.uuid4().hex[:8]
        self._over = threading.Event()
        self._broken: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        if self._broken:
            raise self._broken[0]

    def wait_more(self) -> None:
        """Return when some more sends have been acknowledged from now on."""
        begun = len(self.acknowledged)
        wait_for(
            lambda: len(self.acknowledged) - begun, lambda found: found >= _MORE or bool(self._broken), "sends go on"
        )

    def assert_delivered(self, consumer: ConsumerHandle) -> None:
        """After the block: every acknowledged message came to the consumer, none of them twice."""
        received = [message["keys"] for message in consumer.receive(len(self.acknowledged), _RECEIVE_TIMEOUT_MS)]
        missing = set(self.acknowledged) - set(received)
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged messages never came"
        twice = [keys for keys, times in Counter(received).items() if times > 1]
        assert not twice, f"{len(twice)} messages came twice: {twice[:5]}"

    def _run(self) -> None:
        last_s = time.monotonic()
        try:
            for number in count():
                if self._over.wait(_PAUSE_S):
                    return
                (plan,) = plans(f"{self._name}-{number}", 1, sizes=[100], first_index=number)
                (made,) = self._client.produce(
                    self._cluster, self._topic, [plan], group=f"load-{self._name}", poll_ms=_POLL_MS
                )
                if made["status"] == "SEND_OK":
                    now_s = time.monotonic()
                    self.longest_gap_s, last_s = max(self.longest_gap_s, now_s - last_s), now_s
                    self.acknowledged.append(plan["keys"])
                else:
                    self.failed.append(f"{made['status']} {made.get('error', '')}")
        except BaseException as error:  # raised where the block ends
            self._broken.append(error)
