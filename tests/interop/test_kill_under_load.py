"""kill -9 of a broker under synchronous flush while a stock client sends; supervisord restarts it.

What was acknowledged is there, once. What was not acknowledged may be there or not, but never twice: the producer sends
each message at most once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from tests.interop.clients import DriverProcess
from tests.interop.content import KIBIBYTE, Plan, assert_same_message, index_of, plans
from tests.interop.platform_cluster import PlatformCluster
from tests.processes import wait_until

KILLS = 3
LOAD_BETWEEN_KILLS_S = 1.5
BURST = 400
RESTART_TIMEOUT_S = 60.0


class Killer:
    """Kills the broker again and again, each time after some load, from a thread of its own."""

    def __init__(self, tenant_cluster: PlatformCluster) -> None:
        self._tenant_cluster = tenant_cluster
        self.done = threading.Event()
        self.kills = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(KILLS):
                self.done.wait(LOAD_BETWEEN_KILLS_S)
                _, killed = self._tenant_cluster.broker_process()
                os.kill(killed, signal.SIGKILL)
                self.kills += 1
                wait_until(
                    partial(self._restarted, killed),
                    timeout_s=RESTART_TIMEOUT_S,
                    what="supervisord restarts the broker",
                )
        except BaseException as error:
            self.failure = error
        finally:
            self.done.set()

    def _restarted(self, killed: int) -> bool:
        return self._tenant_cluster.broker_process()[1] not in (0, killed)


@contextmanager
def kills(tenant_cluster: PlatformCluster) -> Iterator[Killer]:
    """Runs a Killer for the length of the block; raises what went wrong in it."""
    killer = Killer(tenant_cluster)
    thread = threading.Thread(target=killer.run)
    thread.start()
    try:
        yield killer
    finally:
        thread.join()
    if killer.failure is not None:
        raise killer.failure


@pytest.mark.timeout(300)
def test_every_acknowledged_message_survives_kill_9_exactly_once(
    java_client: DriverProcess, tenant_cluster: PlatformCluster
) -> None:
    topic = "killed-under-load"
    tenant_cluster.create_topic(topic, queues=4)
    sent: list[Plan] = []
    outcomes: list[dict[str, Any]] = []

    def send_burst() -> list[dict[str, Any]]:
        burst = plans(f"kill-{len(sent)}", BURST, sizes=[100, KIBIBYTE, 10 * KIBIBYTE], first_index=len(sent))
        sent.extend(burst)
        # No retries: one request per message, so that "once per acknowledged send" can be counted.
        made = java_client.produce(
            tenant_cluster.cluster, topic, burst, mode="async", group="killed", retries=0, timeout_ms=3000
        )
        outcomes.extend(made)
        return made

    with kills(tenant_cluster) as killer:
        while not killer.done.is_set():
            if not any(outcome["status"] for outcome in send_burst()):
                killer.done.wait(0.3)  # the broker is down: no need to fail thousands of times a second
    # The broker is back; the client needs a moment to find out.
    wait_until(
        lambda: all(outcome["status"] == "SEND_OK" for outcome in send_burst()),
        timeout_s=RESTART_TIMEOUT_S,
        what="a whole burst is acknowledged again",
    )

    acknowledged = {outcome["seed"]: outcome for outcome in outcomes if outcome["status"] == "SEND_OK"}
    assert killer.kills == KILLS
    assert len(acknowledged) < len(sent), "no send was interrupted: this run shows nothing"
    with java_client.consumer(tenant_cluster.cluster, topic) as consumer:
        received = consumer.receive(len(acknowledged), 120_000)
        while more := consumer.poll(1, 1_000):
            received += more
    for message in received:
        assert_same_message(sent[index_of(message)], message)
    times_received = Counter(sent[index_of(message)]["seed"] for message in received)
    lost = [seed for seed in acknowledged if not times_received[seed]]
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged messages are lost: {lost[:5]}"
    assert max(times_received.values()) == 1, [seed for seed, count in times_received.items() if count > 1][:5]
    places = {sent[index_of(message)]["seed"]: (message["queue_id"], message["queue_offset"]) for message in received}
    for seed, outcome in acknowledged.items():
        assert places[seed] == (outcome["queue_id"], outcome["queue_offset"]), "not where the broker had said"
