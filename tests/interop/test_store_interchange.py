"""One store folder, opened in turn by our broker and by a real Apache broker 5.5.0, each after a clean stop or kill -9.

Whoever opens it serves every message with equal content, knows the topics, resumes the groups where they were, delivers
what was delayed, and appends more for the other to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.daemons import BrokerDaemon, NameServerDaemon
from tests.interop.apache import ApacheBroker
from tests.interop.clients import Cluster, ConsumerHandle, DriverProcess
from tests.interop.content import KIBIBYTE, MEBIBYTE, Plan, assert_exactly_these, assert_same_message, index_of, plans
from tests.processes import wait_until
from tests.remoting import create_topic, topic_route, wait_for_commits, wait_for_registration

Brand = Literal["apache", "highwater"]
Ending = Literal["clean stop", "kill -9"]

TOPIC, DELAYED_TOPIC, READER = "exchange", "delayed-exchange", "reader"
QUEUES = 4
DELAY_S = 12
CONF = {
    # Small enough for several files of each kind; a record of 4 MiB must still fit.
    "mappedFileSizeCommitLog": str(8 * MEBIBYTE),
    "mappedFileSizeConsumeQueue": str(20 * 400),
    # Index files of 5000 entries: each thousand messages has two or three thousand.
    "maxHashSlotNum": "1000",
    "maxIndexNum": "5000",
    "messageDelayLevel": f"1s {DELAY_S}s",
    "flushConsumerOffsetInterval": "200",
    # Apache then checks the CRC of every record, whoever wrote it, and takes one without for the end of the log:
    # how far back it reads depends on when files were last written to disk.
    "forceVerifyPropCRC": "true",
    "enabledAppendPropCRC": "true",
}
KEYS_LOOKED_UP_EACH = 167
SIZES = [1, 100, KIBIBYTE, 6 * KIBIBYTE, 40 * KIBIBYTE]


@dataclass
class Exchange:
    """The store and what was put into it so far."""

    folder: Path
    client: DriverProcess
    sent: list[Plan] = field(default_factory=list)
    delayed: list[Plan] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    unique_ids: dict[str, str] = field(default_factory=dict)  # seed -> the id that the client gave
    name_server: NameServerDaemon | None = None
    broker: ApacheBroker | BrokerDaemon | None = None

    @property
    def namesrv(self) -> str:
        assert self.name_server is not None, "nothing was opened yet"
        return self.name_server.address

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.namesrv)

    def open(self, brand: Brand) -> None:
        """Starts a broker of that brand on the store."""
        kind: type[ApacheBroker] | type[BrokerDaemon] = ApacheBroker if brand == "apache" else BrokerDaemon
        folder = self.folder / f"{brand}-{len(list(self.folder.iterdir()))}"
        # A new name server each time: it remembers our broker's epoch and would refuse an Apache master, who has none.
        self.name_server = NameServerDaemon(folder / "namesrv").start()
        self.broker = kind(folder, self.namesrv, CONF, self.folder / "store")
        self.broker.start()
        wait_for_registration(self.namesrv, self.broker.properties()["brokerName"])

    def close(self, ending: Ending) -> None:
        assert self.broker is not None
        # The next broker has another address: clients start afresh. Before the end, for they say goodbye to the broker.
        self.client.order("close_producers")
        self.client.order("close_admins")
        if ending == "clean stop":
            self.broker.stop()
        else:
            self.broker.kill()
        assert self.name_server is not None
        self.name_server.stop()

    def create_topics(self) -> None:
        assert self.broker is not None
        for topic in (TOPIC, DELAYED_TOPIC):
            create_topic(self.broker.address, topic, queues=QUEUES, namesrv=self.namesrv)

    def send(self) -> None:
        """A thousand messages in all ways that leave different records behind, and five that are due later."""
        for mode, count in {"sync": 150, "async": 500, "batch": 250, "ordered": 100}.items():
            made = plans(f"{mode}-{len(self.sent)}", count, sizes=SIZES, first_index=len(self.sent))
            outcomes = self.client.produce(self.cluster, TOPIC, made, mode=mode, group="exchange-producer")
            assert {outcome["status"] for outcome in outcomes} == {"SEND_OK"}, outcomes[:2]
            self.sent += made
            self.unique_ids |= {outcome["seed"]: outcome["msg_id"] for outcome in outcomes}
        self.offsets = self.max_offsets()

    def send_delayed(self) -> None:
        made = plans(f"delayed-{len(self.delayed)}", 5, sizes=SIZES, first_index=len(self.delayed))
        for plan in made:
            plan["delay_level"] = 2
        outcomes = self.client.produce(self.cluster, DELAYED_TOPIC, made, group="exchange-producer")
        assert {outcome["status"] for outcome in outcomes} == {"SEND_OK"}, outcomes[:2]
        self.delayed += made

    def max_offsets(self) -> dict[int, int]:
        """Once the queues have all that was sent: Apache writes them after it has answered."""
        queues: list[dict[str, Any]] = []

        def are_full() -> bool:
            queues[:] = self.client.order("offsets", self.cluster, topic=TOPIC)
            return all(sum(queue[name] for queue in queues) == len(self.sent) for name in ("max", "stats_max"))

        wait_until(are_full, timeout_s=60, what="the queues have all messages")
        assert all(queue["min"] == 0 and queue["stats_max"] == queue["max"] for queue in queues)
        return {queue["queue_id"]: queue["max"] for queue in queues}

    def read(self, count: int, group: str | None = None) -> list[dict[str, Any]]:
        with self.client.consumer(self.cluster, TOPIC, group=group) as consumer:
            received = consumer.receive(count)
            if group == READER:  # while it lives: it commits each 5 s, and what it had not noted would come again
                wait_for_commits(self.namesrv, TOPIC, group, len(self.sent))
            return received


@pytest.fixture
def exchange(tmp_path: Path, java_client: DriverProcess) -> Iterator[Exchange]:
    running = Exchange(tmp_path, java_client)
    try:
        yield running
    finally:
        for daemon in (running.broker, running.name_server):
            if daemon is not None:
                daemon.kill()


# Who opens the store, one after the other, and how each ends: both hand over to the other after both endings.
STAGES: list[tuple[Brand, Ending]] = [
    ("highwater", "clean stop"),
    ("apache", "kill -9"),
    ("highwater", "kill -9"),
    ("apache", "clean stop"),
    ("highwater", "clean stop"),
]


@pytest.mark.timeout(400)
def test_each_broker_serves_what_the_other_stored(exchange: Exchange) -> None:
    ending_before: Ending | None = None
    for brand, ending in STAGES:
        exchange.open(brand)
        if ending_before is None:
            exchange.create_topics()
            exchange.send()
            assert_exactly_these(exchange.sent, exchange.read(len(exchange.sent), READER))
            assert_found_by_key(exchange)
        else:
            assert_served_and_resumed(exchange, ending_before)
        exchange.send_delayed()
        exchange.close(ending)
        ending_before = ending


def assert_served_and_resumed(exchange: Exchange, ending_before: Ending) -> None:
    """Topics, offsets, messages, the group's position and delayed messages are those that the broker before left."""
    route = topic_route(exchange.namesrv, TOPIC)
    assert route is not None
    assert [queue.write_queue_nums for queue in route.queue_datas] == [QUEUES], "topics.json was read"
    assert exchange.max_offsets() == exchange.offsets
    assert_found_by_key(exchange)
    with exchange.client.consumer(exchange.cluster, DELAYED_TOPIC) as delayed:
        assert_exactly_these(exchange.sent, exchange.read(len(exchange.sent)))
        before = len(exchange.sent)
        exchange.send()
        assert_resumed(exchange, before, ending_before)
        assert_delivered(exchange.delayed, delayed)


def eventually_found(exchange: Exchange, operation: str, what: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def is_found() -> bool:
        found[:] = exchange.client.query(operation, exchange.cluster, TOPIC, **arguments)
        return bool(found)

    wait_until(is_found, timeout_s=60, what=f"{what} is found")
    return found


def assert_found_by_key(exchange: Exchange) -> None:
    """Some messages of each broker and way of sending before are found by each of their keys, and by their client's id."""
    for plan in exchange.sent[::KEYS_LOOKED_UP_EACH]:
        own, shared = plan["keys"].split(" ")
        ways = {"own key": ("query_key", {"key": own})}
        if plan["seed"] in exchange.unique_ids:
            ways["id"] = ("view_message", {"msg_id": exchange.unique_ids[plan["seed"]]})
        for way, (operation, what) in ways.items():
            found = eventually_found(exchange, operation, f"{plan['seed']} by its {way}", what)
            assert_one_record(exchange, found, f"{plan['seed']} by its {way}")
            assert_same_message(plan, found[0])
        assert exchange.client.query("query_key", exchange.cluster, TOPIC, key=shared)
    assert exchange.client.query("query_key", exchange.cluster, TOPIC, key="nobody's") == []


def assert_one_record(exchange: Exchange, found: list[dict[str, Any]], what: str) -> None:
    """It is stored once, and our broker tells of it once.

    Apache's may tell twice of the last one that our index had when we were killed: it reads the log again from there, and puts
    the record at endPhyOffset into the index once more (IndexService.buildIndex passes over what lies *before* that).
    """
    assert {one["commit_log_offset"] for one in found} == {found[0]["commit_log_offset"]}, (what, found)
    assert len(found) == 1 or isinstance(exchange.broker, ApacheBroker), (what, found)


def assert_delivered(expected: list[Plan], consumer: ConsumerHandle) -> None:
    """Every delayed message arrives, once at least: how far delivery has come is written down only now and then."""
    missing = set(range(len(expected)))
    while missing:
        received = consumer.poll(1)
        assert received, f"delayed messages never came: {sorted(missing)}"
        for message in received:
            assert_same_message(expected[index_of(message)], message)
            missing.discard(index_of(message))


def assert_resumed(exchange: Exchange, before: int, ending: Ending) -> None:
    """The group gets everything sent after ``before``: after a clean stop nothing else, after kill -9 some of it
    again.
    """
    fresh = exchange.sent[before:]
    if ending == "clean stop":
        assert_exactly_these(fresh, exchange.read(len(fresh), READER))
        return
    missing = set(range(before, len(exchange.sent)))
    with exchange.client.consumer(exchange.cluster, TOPIC, group=READER) as consumer:
        while missing:
            received = consumer.poll(1)
            assert received, f"{len(missing)} messages never came, first {sorted(missing)[:10]}"
            for message in received:
                assert_same_message(exchange.sent[index_of(message)], message)
                missing.discard(index_of(message))
        wait_for_commits(exchange.namesrv, TOPIC, READER, len(exchange.sent))
