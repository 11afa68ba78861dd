"""Brokers of Apache RocketMQ register with our name server, each in its own way, and find their master through it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqwire.bodies import TopicList
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from tests.daemons import NameServerDaemon
from tests.interop.apache import ApacheBroker
from tests.processes import wait_until
from tests.remoting import call, cluster_info, create_topic, topic_route

PATIENCE_S = 90.0
# Each broker registers in another of RocketMQ's ways.
MASTER = {"brokerRole": "ASYNC_MASTER", "compressedRegister": "true", "forceRegister": "true"}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "compressedRegister": "false", "forceRegister": "false"}
OFTEN = {"registerNameServerPeriod": "10000"}


@dataclass
class Cluster:
    name_server: NameServerDaemon
    master: ApacheBroker
    slave: ApacheBroker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("apache-brokers")
    conf = {"kvConfigPath": str(folder / "kv.json")}
    name_server = NameServerDaemon(folder / "namesrv", conf).start()
    master = ApacheBroker(folder / "master", name_server.address, {**MASTER, **OFTEN})
    slave = ApacheBroker(folder / "slave", name_server.address, {**SLAVE, **OFTEN})
    try:
        master.start()
        slave.start()
        yield Cluster(name_server, master, slave)
    finally:
        slave.kill()
        master.kill()
        name_server.stop()


def addresses(cluster: Cluster) -> dict[int, str]:
    group = cluster_info(cluster.name_server.address).broker_addr_table.get("broker-a")
    return {} if group is None else group.broker_addrs


@pytest.mark.timeout(280)
def test_master_and_slave_of_apache_stand_in_one_group(cluster: Cluster) -> None:
    both = {0: cluster.master.address, 1: cluster.slave.address}
    wait_until(lambda: addresses(cluster) == both, timeout_s=PATIENCE_S, what="both brokers are registered")
    reply = call(cluster.name_server.address, RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    assert {"TBW102", "SELF_TEST_TOPIC", "broker-a", "DefaultCluster"} <= set(
        TopicList.from_json(reply.body).topic_list
    )


@pytest.mark.timeout(280)
def test_a_topic_that_is_created_at_apaches_broker_is_routed(cluster: Cluster) -> None:
    create_topic(cluster.master.address, "orders", queues=3, namesrv=cluster.name_server.address)
    route = topic_route(cluster.name_server.address, "orders")
    assert route is not None
    assert [(queue.broker_name, queue.write_queue_nums, queue.perm) for queue in route.queue_datas] == [
        ("broker-a", 3, 6)
    ]


@pytest.mark.timeout(280)
def test_apaches_master_that_dies_leaves_its_slaves_route(cluster: Cluster) -> None:
    only_slave = {1: cluster.slave.address}
    cluster.master.kill()
    wait_until(lambda: addresses(cluster) == only_slave, timeout_s=PATIENCE_S, what="the master is gone at once")
    route = topic_route(cluster.name_server.address, "TBW102")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == only_slave
