"""Groups of a master and a slave, Apache's and ours, with the same flush and the same replication.

Apache's synchronous replication waits for no one unless inSyncReplicas is 2 (protocol-notes.md), so both have 2 then.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.bench.programs import measure, producer
from tests.bench.report import Report
from tests.bench.systems import APACHE_FLAGS, CONF, NAMES, QUEUES, TOPIC, FlushType, System
from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.processes import wait_until
from tests.remoting import cluster_info, create_topic

Replication = Literal["async replication", "sync replication"]
REPLICATIONS: tuple[Replication, ...] = ("async replication", "sync replication")
FLUSH_TYPES: tuple[FlushType, ...] = ("ASYNC_FLUSH", "SYNC_FLUSH")
AIM = 2.0
THREADS = (16, 64)
# Two JVMs beside the client's: smaller than a broker's that is alone, and still far from its garbage collector's limits.
APACHE_HEAP = ("-Xms768m", "-Xmx768m")
_GROUP = "broker-a"


@contextmanager
def replicated(system: System, folder: Path, flush: FlushType, replication: Replication) -> Iterator[str]:
    """Starts a name server, a master and a slave with empty stores; yields the name server's address."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    synchronous = replication == "sync replication"
    shared = {
        **CONF, "flushDiskType": flush, "brokerName": _GROUP, "inSyncReplicas": "2" if synchronous else "1",
        "totalReplicas": "2", "slaveReadEnable": "true",
    }  # fmt: skip
    roles = {"0": "SYNC_MASTER" if synchronous else "ASYNC_MASTER", "1": "SLAVE"}
    name_server: ApacheNameServer | NameServerDaemon
    name_server = (ApacheNameServer if system == "apache" else NameServerDaemon)(folder / "namesrv")
    name_server.start()
    brokers: list[ApacheBroker | BrokerDaemon] = []
    try:
        for broker_id, role in roles.items():
            conf = {**shared, "brokerId": broker_id, "brokerRole": role}
            broker: ApacheBroker | BrokerDaemon
            if system == "apache":
                conf |= {"waitTimeMillsInSendQueue": "3000", "timerWheelEnable": "true"}
                broker = ApacheBroker(
                    folder / broker_id,
                    name_server.address,
                    conf,
                    heap=APACHE_HEAP,
                    flags=APACHE_FLAGS,
                    quick_start=False,
                )
            else:
                broker = BrokerDaemon(folder / broker_id, name_server.address, conf)
            brokers.append(broker)
            broker.start()

        def both_registered() -> bool:
            data = cluster_info(name_server.address).broker_addr_table.get(_GROUP)
            return data is not None and set(data.broker_addrs) == {0, 1}

        wait_until(both_registered, timeout_s=60, what="master and slave are registered")
        create_topic(brokers[0].address, TOPIC, queues=QUEUES, namesrv=name_server.address)
        yield name_server.address
    finally:
        for broker in brokers:
            broker.kill()
        if name_server.process is not None:
            name_server.process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def measure_replication(report: Report, systems: list[System], folder: Path, *, rounds: int, samples: int) -> None:
    """Every flush type under both replications, side by side; ends with what synchronous replication costs ours."""
    for round_number in range(rounds):
        order = systems if round_number % 2 == 0 else systems[::-1]
        for flush in FLUSH_TYPES:
            for replication in REPLICATIONS:
                for system in order:
                    print(f"round {round_number + 1}, {NAMES[system]}, {flush}, {replication}", flush=True)
                    with replicated(system, folder / system, flush, replication) as namesrv:
                        for threads in THREADS:
                            _measure(report, system, namesrv, folder / system, threads, flush, replication, samples)
    for flush in FLUSH_TYPES:
        for threads in THREADS:
            asynchronous, synchronous = (
                report.rows[_label(threads, flush, replication)].median("highwater") for replication in REPLICATIONS
            )
            if asynchronous and synchronous:
                cost = 1 - synchronous / asynchronous
                report.notes.append(
                    f"Sync replication costs ours {cost:.0%} ({threads} threads, {flush}); aim: 10% at most."
                )


def _measure(
    report: Report,
    system: System,
    namesrv: str,
    folder: Path,
    threads: int,
    flush: FlushType,
    replication: Replication,
    samples: int,
) -> None:
    result = measure(producer(threads), namesrv, TOPIC, folder, samples=samples)
    label = _label(threads, flush, replication)
    report.add(system, label, result.rates, unit="messages/s", aim=AIM)
    print(f"  {label}: {result.rates}", flush=True)
    if result.failures:
        cause = result.first_error or "cause not logged"
        report.notes.append(f"{NAMES[system]}: {result.failures} failures during {label}; {cause}")


def _label(threads: int, flush: FlushType, replication: Replication) -> str:
    kind = "async flush" if flush == "ASYNC_FLUSH" else "sync flush"
    return f"{producer(threads).label}, {kind}, {replication}"
