"""Three replicas that elect their leader, Apache's DLedger and ours, on this machine.

Apache's DLedger answers when a majority holds a record, and waits for no fsync; ours does the same with ASYNC_FLUSH, and
waits for a majority's fsync with SYNC_FLUSH, its default. Both are compared with the same runs of Apache's.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.programs import measure, producer
from tests.bench.replication import APACHE_HEAP, FLUSH_TYPES, THREADS
from tests.bench.report import Report
from tests.bench.systems import APACHE_FLAGS, CONF, NAMES, QUEUES, TOPIC, FlushType, System
from tests.dledger.groups import peers_of, quorum_group, wait_leader
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.processes import steady_ports, wait_until
from tests.remoting import cluster_info, create_topic

AIMS: dict[FlushType, float] = {"ASYNC_FLUSH": 2.0, "SYNC_FLUSH": 1.0}
REPLICAS = 3
_GROUP = "broker-a"


@contextmanager
def apache_group(folder: Path) -> Iterator[str]:
    """Three Apache brokers in DLedger mode with empty stores; yields the name server's address once one leads."""
    name_server = ApacheNameServer(folder / "namesrv")
    name_server.start()
    base = steady_ports(REPLICAS)
    peers = peers_of({replica_id: f"127.0.0.1:{base + replica_id}" for replica_id in range(REPLICAS)})
    brokers: list[ApacheBroker] = []
    try:
        for replica_id in range(REPLICAS):
            conf = {
                **CONF,
                "brokerName": _GROUP,
                "enableDLegerCommitLog": "true",
                "dLegerGroup": _GROUP,
                "dLegerPeers": peers,
                "dLegerSelfId": f"n{replica_id}",
                "waitTimeMillsInSendQueue": "3000",
            }
            broker = ApacheBroker(
                folder / str(replica_id),
                name_server.address,
                conf,
                heap=APACHE_HEAP,
                flags=APACHE_FLAGS,
                quick_start=False,
            )
            brokers.append(broker)
            broker.start()
        leader: list[str] = []

        def one_leads() -> bool:
            data = cluster_info(name_server.address).broker_addr_table.get(_GROUP)
            if data is None or len(data.broker_addrs) < REPLICAS or 0 not in data.broker_addrs:
                return False
            leader.append(data.broker_addrs[0])
            return True

        wait_until(one_leads, timeout_s=120, what="three replicas are registered, one as the leader")
        create_topic(leader[0], TOPIC, queues=QUEUES, namesrv=name_server.address)
        yield name_server.address
    finally:
        for broker in brokers:
            broker.kill()
        if name_server.process is not None:
            name_server.process.kill()


@contextmanager
def own_group(folder: Path, flush: FlushType) -> Iterator[str]:
    """Three of our brokers with empty stores; yields the name server's address once one leads."""
    with quorum_group(folder, conf={**CONF, "flushDiskType": flush}, name=_GROUP) as group:
        create_topic(group[wait_leader(group)].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        yield group.namesrv


def measure_dledger(report: Report, systems: list[System], folder: Path, *, rounds: int, samples: int) -> None:
    """Each round: Apache's group once, ours with either flush type."""
    for round_number in range(rounds):
        for system in systems if round_number % 2 == 0 else systems[::-1]:
            for flush in FLUSH_TYPES if system == "highwater" else (None,):
                print(f"round {round_number + 1}, {NAMES[system]}, DLedger, {flush or 'its own flush'}", flush=True)
                place = folder / f"dledger-{system}"
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                with apache_group(place) if flush is None else own_group(place, flush) as namesrv:
                    for threads in THREADS:
                        _measure(report, system, namesrv, place, threads, flush, samples)
                shutil.rmtree(place, ignore_errors=True)


def _measure(
    report: Report, system: System, namesrv: str, folder: Path, threads: int, flush: FlushType | None, samples: int
) -> None:
    result = measure(producer(threads), namesrv, TOPIC, folder, samples=samples)
    for compared in FLUSH_TYPES if flush is None else (flush,):
        label = f"{producer(threads).label}, DLedger of three, ours with {compared}"
        report.add(system, label, result.rates, unit="messages/s", aim=AIMS[compared])
    print(f"  {producer(threads).label}: {result.rates}", flush=True)
    if result.failures:
        cause = result.first_error or "cause not logged"
        report.notes.append(f"{NAMES[system]}: {result.failures} failures, DLedger, {threads} threads; {cause}")
