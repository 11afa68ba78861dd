"""Master and slave under a stock Java client's load: killed, stopped, cut off. What was acknowledged outlives a promotion.

Synchronous replication and flush; the producer sends each message at most once, so nothing may be there twice.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import NameServerDaemon, ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess, JavaClient
from tests.interop.content import Plan, plans
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.network import HERE, Network, network, why_not
from tests.replication.replicas import (
    WAIT_S,
    demote,
    promote,
    read_all,
    same_logs,
    status,
    wait_in_sync,
    wait_level,
)

TOPIC = "under-load"
QUEUES = 2
BURST = 150
CONF = {"flushDiskType": "SYNC_FLUSH", "haSendHeartbeatInterval": "1000", "haMaxTimeSlaveNotCatchup": "3000"}

pytestmark = pytest.mark.timeout(240)


class Load:
    """Bursts from one Java producer, and what became of each message."""

    def __init__(self, client: DriverProcess, group: ReplicaGroup) -> None:
        self._client = client
        self._cluster = Cluster(group.namesrv)
        self.sent: list[Plan] = []
        self.outcomes: list[dict[str, Any]] = []

    def burst(self) -> bool:
        """Sends one burst; returns whether all of it was acknowledged."""
        burst = plans(f"load-{len(self.sent)}", BURST, sizes=[100, 1024], first_index=len(self.sent))
        self.sent.extend(burst)
        made = self._client.produce(
            self._cluster,
            TOPIC,
            burst,
            mode="async",
            group="under-load",
            retries=0,
            timeout_ms=1500,
            poll_ms=500,  # 30 s by default: how long a stock client writes to the old master
        )
        self.outcomes.extend(made)
        return all(outcome["status"] == "SEND_OK" for outcome in made)

    def wait_interrupted(self) -> None:
        """Returns once a send has failed: the fault was felt."""
        wait_until(
            lambda: any(outcome["status"] != "SEND_OK" for outcome in self.outcomes),
            timeout_s=WAIT_S,
            what="a send is interrupted",
        )

    @property
    def acknowledged(self) -> set[str]:
        return {outcome["seed"] for outcome in self.outcomes if outcome["status"] == "SEND_OK"}


def during(load: Load, fault: Callable[[], None]) -> None:
    """Runs ``fault`` under load, and sends until it is over and then a whole burst is acknowledged."""
    failures: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            wait_until(lambda: len(load.outcomes) >= 2 * BURST, timeout_s=WAIT_S, what="the load has begun")
            fault()
        except BaseException as error:
            failures.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while not over.is_set():
            if not load.burst():
                over.wait(0.1)
    finally:
        thread.join()
    if failures:
        raise failures[0]
    wait_until(load.burst, timeout_s=WAIT_S, what="a whole burst is acknowledged again")


def assert_nothing_is_lost(load: Load, group: ReplicaGroup, master: int) -> None:
    stored = Counter(
        message.properties["KEYS"] for queue in range(QUEUES) for message in read_all(group[master], TOPIC, queue=queue)
    )
    keys = {plan["seed"]: plan["keys"] for plan in load.sent}
    acknowledged = load.acknowledged
    assert acknowledged
    lost = [seed for seed in acknowledged if not stored[keys[seed]]]
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged messages are lost: {sorted(lost)[:5]}"
    assert max(stored.values()) == 1


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReplicaGroup]:
    with ReplicaGroup.start(tmp_path, CONF, synchronous=True) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=QUEUES, namesrv=running.namesrv)
        yield running


def assert_promoted_under_load(load: Load, group: ReplicaGroup) -> None:
    """Replica 1 leads by now, and holds what either of the two had acknowledged."""
    assert_nothing_is_lost(load, group, 1)
    wait_level(group, 1)
    assert same_logs(group)


def assert_slave_can_take_over(load: Load, group: ReplicaGroup) -> None:
    """The slave is back: nothing is lost where it is, nor when it is promoted."""
    assert_nothing_is_lost(load, group, 0)
    wait_level(group)
    assert same_logs(group)
    demote(group, 0)
    promote(group, 1)
    wait_level(group, 1)
    assert_nothing_is_lost(load, group, 1)


def wait_felt(group: ReplicaGroup) -> None:
    """Returns once the master has what its slave lacks."""
    wait_until(
        lambda: status(group[0]).followers[0].gap_bytes > 0, timeout_s=WAIT_S, what="something waits for the slave"
    )


def wait_stepped_down(group: ReplicaGroup) -> None:
    wait_until(lambda: status(group[0]).role == "slave", timeout_s=WAIT_S, what="the old master steps down")


def test_nothing_acknowledged_is_lost_when_the_master_is_killed(
    java_client: DriverProcess, group: ReplicaGroup
) -> None:
    load = Load(java_client, group)

    def fault() -> None:
        group[0].kill()
        load.wait_interrupted()
        promote(group, 1)
        group[0].start()
        wait_in_sync(group, 1)

    during(load, fault)
    assert_promoted_under_load(load, group)


def test_nothing_acknowledged_is_lost_when_the_master_stands_still_and_wakes_after_the_promotion(
    java_client: DriverProcess, group: ReplicaGroup
) -> None:
    load = Load(java_client, group)

    def fault() -> None:
        os.kill(group[0].pid, signal.SIGSTOP)
        load.wait_interrupted()
        promote(group, 1)
        os.kill(group[0].pid, signal.SIGCONT)
        wait_stepped_down(group)
        wait_in_sync(group, 1)

    during(load, fault)
    assert_promoted_under_load(load, group)


def test_nothing_acknowledged_is_lost_when_the_slave_is_killed_and_comes_back(
    java_client: DriverProcess, group: ReplicaGroup
) -> None:
    load = Load(java_client, group)

    def fault() -> None:
        group[1].kill()
        wait_felt(group)
        group[1].start()
        wait_in_sync(group)

    during(load, fault)
    assert_slave_can_take_over(load, group)


def test_nothing_acknowledged_is_lost_when_the_slave_stands_still_and_wakes(
    java_client: DriverProcess, group: ReplicaGroup
) -> None:
    load = Load(java_client, group)

    def fault() -> None:
        os.kill(group[1].pid, signal.SIGSTOP)
        load.wait_interrupted()
        os.kill(group[1].pid, signal.SIGCONT)
        wait_in_sync(group)

    during(load, fault)
    assert_slave_can_take_over(load, group)


@pytest.fixture
def places() -> Iterator[Network]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with network(2) as made:
        yield made


@pytest.fixture
def client_inside(java_client: DriverProcess, places: Network, tmp_path: Path) -> Iterator[DriverProcess]:
    """A Java client in the test's own namespace; that of the session (which has built its classes) is outside of it."""
    with JavaClient(tmp_path / "client") as client:
        yield client


@pytest.fixture
def apart(places: Network, tmp_path: Path) -> Iterator[ReplicaGroup]:
    """The group with a network namespace for each replica."""
    names = NameServerDaemon(tmp_path / "namesrv", host=places.address(HERE)).start()
    with ReplicaGroup.start(
        tmp_path,
        CONF,
        synchronous=True,
        name_server=names,
        hosts=[places.address(0), places.address(1)],
        command_prefixes=[places.prefix(0), places.prefix(1)],
    ) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=QUEUES, namesrv=running.namesrv)
        yield running


def test_nothing_acknowledged_is_lost_when_the_network_cuts_the_master_off(
    client_inside: DriverProcess, places: Network, apart: ReplicaGroup
) -> None:
    load = Load(client_inside, apart)

    def fault() -> None:
        places.isolate(0)
        load.wait_interrupted()
        promote(apart, 1)
        places.rejoin(0)
        wait_stepped_down(apart)
        wait_in_sync(apart, 1)

    during(load, fault)
    assert_promoted_under_load(load, apart)


def test_nothing_acknowledged_is_lost_when_the_network_cuts_the_master_off_from_its_slave_alone(
    client_inside: DriverProcess, places: Network, apart: ReplicaGroup
) -> None:
    load = Load(client_inside, apart)

    def fault() -> None:
        places.cut(0, 1)
        load.wait_interrupted()
        promote(apart, 1)  # beside a master that goes on: it has no one who would make its word true
        places.heal(0, 1)
        wait_stepped_down(apart)
        wait_in_sync(apart, 1)

    during(load, fault)
    assert_promoted_under_load(load, apart)


def test_nothing_acknowledged_is_lost_when_the_network_cuts_the_slave_off(
    client_inside: DriverProcess, places: Network, apart: ReplicaGroup
) -> None:
    load = Load(client_inside, apart)

    def fault() -> None:
        places.isolate(1)
        load.wait_interrupted()
        places.rejoin(1)
        wait_in_sync(apart)

    during(load, fault)
    assert_slave_can_take_over(load, apart)
