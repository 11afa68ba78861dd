"""Metering on running brokers: known traffic from our SDK, crashes under load, promotions."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from brokerd.metering.journal import NAME as JOURNAL
from highwater import ConsumeFrom, Credentials, HighwaterError, Message, Producer, PushConsumer
from mqwire.acl import SessionCredentials
from mqwire.bodies import TopicStatsTable
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_topic import GetTopicStatsInfoRequestHeader
from mqwire.message import StoredMessage, decode_records
from mqwire.metering import MeteringRecord, decode_metering_record, units_of
from mqwire.names import RMQ_SYS_METERING
from tests.daemons import BrokerDaemon, DaemonCluster, ReplicaGroup
from tests.dledger.groups import quorum_group, wait_leader
from tests.highwater.collector import Collector
from tests.processes import wait_until
from tests.remoting import Refused, call, connect, create_topic, exchange, signed
from tests.replication.replicas import demote, promote, wait_level

WAIT_S = 60.0
INTERVAL = {"meteringIntervalMs": "250"}
TOPIC = "orders"
QUEUES = 2
OPERATOR = SessionCredentials("operator-key", "operator-secret")
SHOP = SessionCredentials("shop-key", "shop-secret")
TILL = SessionCredentials("till-key", "till-secret")
ACCOUNTS = """
accounts:
  - {accessKey: operator-key, secretKey: operator-secret, admin: true}
  - {accessKey: shop-key, secretKey: shop-secret, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}
  - {accessKey: till-key, secretKey: till-secret, defaultTopicPerm: PUB, defaultGroupPerm: DENY}
"""


def pull_request(topic: str, queue: int, offset: int) -> RemotingCommand:
    fields = {
        "consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=fields)


def read_queue(
    broker: BrokerDaemon, topic: str, queue: int = 0, credentials: SessionCredentials | None = None
) -> list[StoredMessage]:
    """Every message of a queue, as an operator's tool reads it."""
    found: list[StoredMessage] = []
    with connect(broker.address) as stream:
        while True:
            offset = found[-1].queue_offset + 1 if found else 0
            reply = exchange(stream, signed(pull_request(topic, queue, offset), credentials))
            if reply.code != ResponseCode.SUCCESS:
                return found
            found += decode_records(reply.body)


def read_records(broker: BrokerDaemon, credentials: SessionCredentials | None = None) -> list[MeteringRecord]:
    return [decode_metering_record(message.body) for message in read_queue(broker, RMQ_SYS_METERING, 0, credentials)]


def read_topic(broker: BrokerDaemon) -> list[StoredMessage]:
    return [message for queue in range(QUEUES) for message in read_queue(broker, TOPIC, queue)]


def counted(records: list[MeteringRecord]) -> tuple[int, int, int]:
    """(messages, bytes, units) that the records say were sent to the topic."""
    rows = [row for record in records for row in record.messages_in if row.topic == TOPIC]
    return sum(row.messages for row in rows), sum(row.bytes for row in rows), sum(row.units for row in rows)


def assert_tiled(records: list[MeteringRecord]) -> None:
    assert records[0].start_offset == 0
    for before, after in itertools.pairwise(records):
        assert before.end_offset == after.start_offset, f"{before.key} ends where {after.key} does not begin"
    keys = [record.key for record in records]
    assert len(set(keys)) == len(keys)
    assert keys == sorted(keys)


def assert_exact(broker: BrokerDaemon) -> list[MeteringRecord]:
    """Once metering has come to the log's end, its records are the log's content."""
    stored = read_topic(broker)
    expected = (
        len(stored),
        sum(len(message.body) for message in stored),
        sum(units_of(len(message.body)) for message in stored),
    )
    wait_until(
        lambda: counted(read_records(broker))[0] >= expected[0], timeout_s=WAIT_S, what="everything sent is recorded"
    )
    records = read_records(broker)
    assert counted(records) == expected
    assert_tiled(records)
    return records


@contextmanager
def load(namesrv: str) -> Iterator[None]:
    """Two senders that go on whatever happens."""
    over = threading.Event()

    def run(number: int) -> None:
        with Producer(
            namesrv,
            f"load-{number}",
            timeout_ms=1000,
            retry_times_when_send_failed=0,
            compress_msg_body_over_howmuch=-1,
        ) as producer:
            for count in itertools.count():
                if over.is_set():
                    return
                try:
                    producer.send(Message(TOPIC, b"x" * (1 + count * 37 % 6000)))
                except HighwaterError:
                    over.wait(0.05)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def wait_for_more(broker: BrokerDaemon) -> None:
    """Returns when there is another record of this epoch, and messages after it: the open interval is not empty."""
    before = len(read_records(broker))
    wait_until(lambda: len(read_records(broker)) > before, timeout_s=WAIT_S, what="another record")
    stored = len(read_topic(broker))
    wait_until(lambda: len(read_topic(broker)) > stored, timeout_s=WAIT_S, what="more messages")


def test_known_traffic_of_three_accounts_is_reported_exactly(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS, "utf-8")
    conf = {**INTERVAL, "aclEnable": "true", "aclConfigFile": str(accounts), "messageDelayLevel": "1s 2s"}
    with DaemonCluster.start(tmp_path, conf) as cluster:
        broker = cluster.broker
        create_topic(broker.address, TOPIC, queues=QUEUES, credentials=OPERATOR, namesrv=cluster.namesrv)
        sizes = [1, 10, 4096, 4097, 9000]
        with producer(cluster.namesrv, SHOP) as sender:
            for size in sizes:
                sender.send(Message(TOPIC, os.urandom(size)))
            sender.send_batch([Message(TOPIC, b"a" * 3), Message(TOPIC, b"b" * 4)])
            sender.send(Message(TOPIC, b"later", delay_time_level=1))
        with producer(cluster.namesrv, TILL) as sender:
            for number in range(4):
                sender.send_ordered(Message(TOPIC, b"%d" % number), "customer-7")
        collector = Collector()
        consumer = PushConsumer(
            cluster.namesrv, "readers", credentials=credentials(SHOP), consume_from=ConsumeFrom.FIRST_OFFSET
        )
        consumer.subscribe(TOPIC, handler=collector)
        with consumer:
            collector.wait(12)
        wait_until(
            lambda: lag_of(read_records(broker, OPERATOR)) == {0}, timeout_s=WAIT_S, what="the group has caught up"
        )
        records = read_records(broker, OPERATOR)
        assert_tiled(records)
        rows = [row for record in records for row in record.messages_in]
        assert sums((row.topic, row.credential, row.kind, row.messages, row.bytes, row.units) for row in rows) == {
            (TOPIC, "shop-key", "normal"): (7, sum(sizes) + 7, 1 + 1 + 1 + 2 + 3 + 2),
            (TOPIC, "shop-key", "delayed"): (1, 5, 1),
            (TOPIC, "till-key", "ordered"): (4, 4, 4),
        }
        pulled = [row for record in records for row in record.messages_out if row.topic == TOPIC]
        assert sums((row.group, row.credential, "", row.messages, row.bytes, row.units) for row in pulled) == {
            ("readers", "shop-key", ""): (12, sum(sizes) + 7 + 5 + 4, 15),
        }
        assert read_records(broker, SHOP) == [], "a tenant's ordinary account does not see the topic"


def credentials(keys: SessionCredentials) -> Credentials:
    return Credentials(keys.access_key, keys.secret_key)


def producer(namesrv: str, keys: SessionCredentials) -> Producer:
    return Producer(namesrv, "senders", credentials=credentials(keys), compress_msg_body_over_howmuch=1024 * 1024)


def lag_of(records: list[MeteringRecord]) -> set[int]:
    """What the last record says of the group's lag in the topic's queues."""
    return (
        {row.lag_messages for row in records[-1].lag if row.topic == TOPIC and row.group == "readers"}
        if records
        else set()
    )


def sums(rows: Iterator[tuple[str, str, str, int, int, int]]) -> dict[tuple[str, str, str], tuple[int, ...]]:
    total: dict[tuple[str, str, str], tuple[int, ...]] = {}
    for topic, credential, kind, *counts in rows:
        known = total.get((topic, credential, kind), (0, 0, 0))
        total[topic, credential, kind] = tuple(map(sum, zip(known, counts, strict=True)))
    return total


def test_killed_under_load_and_started_again_the_records_are_the_logs_content(tmp_path: Path) -> None:
    with DaemonCluster.start(tmp_path, INTERVAL) as cluster:
        broker = cluster.broker
        create_topic(broker.address, TOPIC, queues=QUEUES, namesrv=cluster.namesrv)
        with load(cluster.namesrv):
            for _ in range(2):
                wait_for_more(broker)
                broker.kill()
                broker.start()
            wait_for_more(broker)
        records = assert_exact(broker)
        assert {record.epoch for record in records} == {1, 2, 3}
        assert any(record.recounted for record in records)


def test_a_clean_stop_leaves_nothing_to_count_again(tmp_path: Path) -> None:
    with DaemonCluster.start(tmp_path, {"meteringIntervalMs": "3600000"}) as cluster:
        broker = cluster.broker
        create_topic(broker.address, TOPIC, queues=QUEUES, namesrv=cluster.namesrv)
        with Producer(cluster.namesrv, "p") as sender:
            sender.send(Message(TOPIC, b"one"))
        assert broker.stop() == 0
        broker.start()
        (record,) = assert_exact(broker)
        assert not record.recounted


def test_a_stop_that_takes_seconds_bills_each_pull_that_it_answers(tmp_path: Path) -> None:
    with DaemonCluster.start(tmp_path, {"meteringIntervalMs": "600000"}) as cluster:
        broker = cluster.broker
        create_topic(broker.address, TOPIC, queues=1, namesrv=cluster.namesrv)
        with Producer(cluster.namesrv, "p", compress_msg_body_over_howmuch=-1) as producer:
            for _ in range(10):
                producer.send(Message(TOPIC, b"x" * 100))
        os.kill(cluster.name_server.pid, signal.SIGSTOP)  # the stop waits for it
        try:
            codes: list[int] = []
            reader = threading.Thread(target=pull_until_closed, args=(broker, codes))
            reader.start()
            wait_until(lambda: len(codes) > 3, timeout_s=WAIT_S, what="messages are handed out")
            assert broker.stop() == 0
            reader.join()
        finally:
            os.kill(cluster.name_server.pid, signal.SIGCONT)
        assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.FLOW_CONTROL}
        broker.start()
        wait_until(lambda: is_recorded(broker), timeout_s=WAIT_S, what="everything is recorded")
        records = read_records(broker)
        assert handed_out(records) == 10 * codes.count(ResponseCode.SUCCESS)
        assert {record.pulls_lost_ms for record in records} == {0}


def pull_until_closed(broker: BrokerDaemon, codes: list[int]) -> None:
    """Pull all of queue 0 again and again until the connection ends; `codes` are those of the answers."""
    with connect(broker.address) as stream, suppress(OSError):
        while True:
            codes.append(exchange(stream, pull_request(TOPIC, 0, 0)).code)


def is_recorded(broker: BrokerDaemon) -> bool:
    """Has the open interval recorded: serves no client from then on."""
    with connect(broker.address) as stream:
        request = RemotingCommand.request(HighwaterRequestCode.METERING_CLOSE)
        return exchange(stream, request).ext_fields["recorded"] == "true"


def test_a_killed_broker_still_knows_what_it_handed_out(tmp_path: Path) -> None:
    with DaemonCluster.start(tmp_path, {"meteringIntervalMs": "600000"}) as cluster:
        broker = cluster.broker
        create_topic(broker.address, TOPIC, queues=1, namesrv=cluster.namesrv)
        with Producer(cluster.namesrv, "p", compress_msg_body_over_howmuch=-1) as producer:
            for _ in range(10):
                producer.send(Message(TOPIC, b"x" * 100))
        for _ in range(3):
            assert len(read_queue(broker, TOPIC)) == 10
        journal = next(tmp_path.rglob(JOURNAL))
        wait_until(lambda: b'"messages":30' in journal.read_bytes(), timeout_s=WAIT_S, what="the pulls are noted")
        broker.kill()
        broker.start()
        wait_until(lambda: is_recorded(broker), timeout_s=WAIT_S, what="everything is recorded")
        records = read_records(broker)
        assert (handed_out(records), counted(records)[0]) == (30, 10)
        assert max(record.pulls_lost_ms for record in records) == 1000


def test_a_promoted_slave_goes_on_without_gap_or_overlap(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, {**INTERVAL, "haSendHeartbeatInterval": "500"}) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        with load(group.namesrv):
            wait_for_more(group[0])
            group[0].kill()
            promote(group, 1)
            wait_for_more(group[1])
        records = assert_exact(group[1])
        assert {record.epoch for record in records} == {1, 2}
        group[0].start()
        wait_level(group, 1)
        wait_until(
            lambda: read_records(group[0])[: len(records)] == records,
            timeout_s=WAIT_S,
            what="the former master has the same records",
        )


def test_an_elected_leader_goes_on_without_gap_or_overlap(tmp_path: Path) -> None:
    with quorum_group(tmp_path, conf=INTERVAL) as group:
        first = wait_leader(group)
        create_topic(group[first].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        with load(group.namesrv):
            wait_for_more(group[first])
            group[first].kill()
            second = wait_leader(group, first)
            wait_for_more(group[second])
        records = assert_exact(group[second])
        assert len({record.epoch for record in records}) >= 2


def handed_out(records: list[MeteringRecord]) -> int:
    return sum(row.messages for record in records for row in record.messages_out if row.topic == TOPIC)


def test_what_slaves_and_a_former_master_hand_out_is_recorded_by_the_master(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, INTERVAL) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        with Producer(group.namesrv, "p") as sender:
            for number in range(5):
                sender.send(Message(TOPIC, b"%d" % number))
        wait_level(group)
        wait_until(lambda: max_offset(group[1]) == 5, timeout_s=WAIT_S, what="the slave's readers see all")
        # Until it knows the topic it hands out nothing; then all at once.
        wait_until(lambda: len(read_queue(group[1], TOPIC)) == 5, timeout_s=WAIT_S, what="the slave knows the topic")
        wait_until(
            lambda: handed_out(read_records(group[0])) == 5, timeout_s=WAIT_S, what="the slave's five are recorded"
        )
        assert len(read_queue(group[0], TOPIC)) == 5
        demote(group, 0)
        promote(group, 1)
        wait_until(
            lambda: handed_out(read_records(group[1])) >= 10,
            timeout_s=WAIT_S,
            what="the new master records what the old one handed out",
        )
        assert handed_out(read_records(group[1])) == 10


def test_pulls_that_a_killed_master_recorded_in_what_its_slave_never_got_are_recorded_by_the_new_one(
    tmp_path: Path,
) -> None:
    with ReplicaGroup.start(tmp_path, INTERVAL) as group:
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        with Producer(group.namesrv, "p") as sender:
            for number in range(5):
                sender.send(Message(TOPIC, b"%d" % number))
        wait_level(group)
        group[1].kill()
        assert len(read_queue(group[0], TOPIC)) == 5
        wait_until(lambda: handed_out(read_records(group[0])) == 5, timeout_s=WAIT_S, what="the five are recorded")
        group[0].kill()
        group[1].start()
        promote(group, 1)
        assert handed_out(read_records(group[1])) == 0
        group[0].start()
        wait_until(
            lambda: handed_out(read_records(group[1])) >= 5,
            timeout_s=WAIT_S,
            what="the new master records what the old one had recorded",
        )
        assert handed_out(read_records(group[1])) == 5


def max_offset(broker: BrokerDaemon) -> int:
    """Where the queue ends for readers of this very replica; -1 while it does not know the topic."""
    header = GetTopicStatsInfoRequestHeader(topic=TOPIC)
    try:
        reply = call(broker.address, RemotingCommand.request(RequestCode.GET_TOPIC_STATS_INFO, header))
    except Refused:
        return -1
    (queue,) = TopicStatsTable.from_json(reply.body).offset_table.values()
    return queue.max_offset
