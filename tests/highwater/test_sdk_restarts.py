"""Clients that run while daemons are killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater import ConsumeFrom, HighwaterError, Message, Producer, PushConsumer, SendStatus
from tests.daemons import BrokerDaemon, DaemonCluster, NameServerDaemon
from tests.highwater.collector import Collector, wait_until
from tests.remoting import create_topic, wait_for_registration


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[DaemonCluster]:
    """A cluster of this test's own, whose broker loses nothing that it acknowledged."""
    with DaemonCluster.start(tmp_path, {"flushDiskType": "SYNC_FLUSH"}) as running:
        wait_for_registration(running.namesrv, running.broker_name)
        create_topic(running.broker.address, "orders", queues=4, namesrv=running.namesrv)
        yield running


def send_stubbornly(producer: Producer, body: bytes) -> None:
    """Sends until the broker has it, as a program does that must not lose anything."""

    def sent() -> bool:
        try:
            return producer.send(Message("orders", body)).status is SendStatus.SEND_OK
        except HighwaterError as error:
            if not error.retryable:
                raise
            return False

    wait_until(sent, f"{body!r} was sent")


def test_clients_go_on_when_their_broker_was_killed_and_started_again(daemons: DaemonCluster) -> None:
    before = {b"before%d" % number for number in range(30)}
    after = {b"after%d" % number for number in range(30)}
    collector = Collector()
    consumer = PushConsumer(daemons.namesrv, "g", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handler=collector)
    with Producer(daemons.namesrv) as producer, consumer:
        for body in sorted(before):
            send_stubbornly(producer, body)
        collector.wait_for_bodies(before)
        daemons.broker.kill()
        daemons.broker.start()
        for body in sorted(after):
            send_stubbornly(producer, body)
        collector.wait_for_bodies(before | after)


def test_a_broker_that_was_started_again_hears_of_its_clients_at_once(daemons: DaemonCluster) -> None:
    collector = Collector()
    consumer = PushConsumer(daemons.namesrv, "g", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders", handler=collector)
    with Producer(daemons.namesrv) as producer, consumer:
        send_stubbornly(producer, b"first")
        collector.wait(1)
        daemons.broker.stop()
        daemons.broker.start()
        # A tag filter needs the heartbeat's subscription at the broker, so this shows that it has one.
        consumer.subscribe("orders", "wanted", handler=collector)
        wait_until(lambda: _sent(producer, b"second", "wanted"), "the broker serves again")
        collector.wait_for_bodies({b"second"})


def _sent(producer: Producer, body: bytes, tags: str) -> bool:
    try:
        producer.send(Message("orders", body, tags=tags))
    except HighwaterError:
        return False
    return True


def test_clients_that_know_their_routes_do_without_name_servers(daemons: DaemonCluster) -> None:
    collector = Collector()
    consumer = PushConsumer(
        daemons.namesrv, "g", consume_from=ConsumeFrom.FIRST_OFFSET, poll_name_server_interval_ms=50
    )
    consumer.subscribe("orders", handler=collector)
    with Producer(daemons.namesrv, poll_name_server_interval_ms=50) as producer, consumer:
        send_stubbornly(producer, b"first")
        collector.wait(1)
        daemons.name_server.kill()
        for number in range(10):
            producer.send(Message("orders", b"m%d" % number))
        collector.wait_for_bodies({b"m%d" % number for number in range(10)})


def test_when_one_of_two_brokers_dies_no_send_fails(tmp_path: Path) -> None:
    name_server = NameServerDaemon(tmp_path / "namesrv").start()
    brokers = [BrokerDaemon(tmp_path / name, name_server.address, {"brokerName": name}) for name in ("a", "b")]
    try:
        for broker in brokers:
            broker.start()
            wait_for_registration(name_server.address, broker.properties()["brokerName"])
            create_topic(broker.address, "orders", queues=4, namesrv=name_server.address)
        with Producer(name_server.address) as producer:
            wait_until(
                lambda: {producer.send(Message("orders", b"m")).queue.broker_name for _ in range(8)} == {"a", "b"},
                "both brokers are written to",
            )
            brokers[0].kill()
            results = [producer.send(Message("orders", b"m")) for _ in range(20)]
        assert {result.queue.broker_name for result in results} == {"b"}
    finally:
        for broker in brokers:
            broker.kill()
        name_server.kill()
