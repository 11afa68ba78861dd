"""Stock clients with their default settings go on as soon as a killed leader has a successor: leaderListenPort."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from highwater import Producer
from mqwire.bodies import ConsumerData, GetConsumerListByGroupResponseBody, HeartbeatData
from mqwire.codes import HighwaterRequestCode, LanguageCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import GetConsumerListByGroupRequestHeader
from mqwire.headers_replica import ReplicaTransferRequestHeader
from tests.dledger.groups import leader_among, quorum_group, wait_all_level, wait_leader
from tests.interop.clients import Cluster, DriverProcess
from tests.processes import steady_ports, wait_until
from tests.remoting import call, connect, create_topic, exchange
from tests.replication.replicas import WAIT_S, registered, send_until_ok
from tests.replication.stock_senders import WELL_UNDER_S, StockSenders

TOPIC = "led"
QUEUES = 2


@pytest.mark.timeout(300)
def test_a_java_producer_writes_on_when_a_killed_leader_has_a_successor(
    java_client: DriverProcess, tmp_path: Path
) -> None:
    port = steady_ports(1)
    with quorum_group(tmp_path, conf={"leaderListenPort": str(port)}) as group:
        leader = wait_leader(group)
        create_topic(group[leader].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        wait_until(
            lambda: registered(group).get(0) == f"127.0.0.1:{port}",
            timeout_s=WAIT_S,
            what="the leader port is registered as broker 0",
        )
        with StockSenders(group, TOPIC, QUEUES, [java_client]) as senders:
            senders.wait_all_write()
            killed_s = time.monotonic()
            group[leader].kill()
            wait_leader(group, leader)
            led_s = time.monotonic()
            took = senders.wait_all_write(led_s)
        print(f"new leader {led_s - killed_s:.2f} s after the kill; seconds until it wrote after that: {took}")
        group[leader].start()
        wait_all_level(group)
        for replica in group.replicas:
            senders.assert_all_held(replica)
        assert max(took.values()) < WELL_UNDER_S


@pytest.mark.timeout(300)
def test_a_go_consumer_reads_on_when_a_killed_leader_has_a_successor(go_client: DriverProcess, tmp_path: Path) -> None:
    """By itself it would wait 33 s for the answer to the pull that the killed leader held (services/stranded_pulls.py)."""
    port = steady_ports(1)
    with quorum_group(tmp_path, conf={"leaderListenPort": str(port)}) as group:
        leader = wait_leader(group)
        create_topic(group[leader].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        cluster = Cluster(group.namesrv)
        with (
            Producer(group.namesrv, "go-on") as producer,
            go_client.consumer(cluster, TOPIC, from_where="CONSUME_FROM_FIRST_OFFSET") as consumer,
        ):
            for number in range(20):  # more than one for each queue
                send_until_ok(producer, TOPIC, b"before %d" % number)
            assert len(consumer.poll(20)) >= 20
            group[leader].kill()
            wait_leader(group, leader)
            led_s = time.monotonic()
            for number in range(20):
                send_until_ok(producer, TOPIC, b"behind %d" % number)
            wait_until(lambda: len(consumer.poll(1)) > 0, timeout_s=WAIT_S, what="the consumer is given messages again")
            took_s = time.monotonic() - led_s
        print(f"a Go consumer went on {took_s:.1f} s after the new leader was elected")
        assert took_s < WELL_UNDER_S


@pytest.mark.timeout(300)
def test_go_consumers_keep_their_queues_when_a_leader_leaves_in_order(tmp_path: Path) -> None:
    port = steady_ports(1)
    with quorum_group(tmp_path, conf={"leaderListenPort": str(port)}) as group:
        leader = wait_leader(group)
        target = (leader + 1) % 3
        create_topic(group[leader].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        wait_all_level(group)
        member = ConsumerData(group_name="billing", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING")
        heartbeat = RemotingCommand.request(
            RequestCode.HEART_BEAT,
            body=HeartbeatData(client_id="go-client", consumer_data_set=[member]).to_json(),
        )
        heartbeat.language = LanguageCode.GO
        with connect(group[target].address) as stream:
            assert exchange(stream, heartbeat).code == ResponseCode.SUCCESS
            call(
                group[leader].address,
                RemotingCommand.request(
                    HighwaterRequestCode.REPLICA_TRANSFER, ReplicaTransferRequestHeader(group=group.name, target=target)
                ),
            )
            seen: list[list[str]] = []

            def registered_there() -> bool:
                asked = RemotingCommand.request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                    GetConsumerListByGroupRequestHeader(consumer_group="billing"),
                )
                asked.language = LanguageCode.GO
                reply = exchange(stream, asked)
                seen.append(GetConsumerListByGroupResponseBody.from_json(bytes(reply.body)).consumer_id_list)
                return len(seen) > 40 and leader_among(group) == target

            wait_until(registered_there, timeout_s=WAIT_S, what="the role has moved", interval_s=0.05)
        assert all(members == ["go-client"] for members in seen)
