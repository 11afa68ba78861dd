"""Read/write split with stock clients, consumer offsets across it, and delayed messages across a promotion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqwire.bodies import ConsumerOffsetSerializeWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import UpdateConsumerOffsetRequestHeader
from tests.daemons import ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import plans
from tests.processes import wait_until
from tests.remoting import Refused, call, connect, create_topic, exchange
from tests.replication.replicas import WAIT_S, admin, demote, promote, read_all, send_raw, wait_leads, wait_level

TOPIC = "split"
COUNT = 300
PULL_BATCH = 32  # of a stock consumer
CONF = {"haSendHeartbeatInterval": "1000", "messageDelayLevel": "5s 1s 1s"}

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReplicaGroup]:
    """A master that sends everyone who is behind to its slave."""
    with ReplicaGroup.start(tmp_path, {**CONF, "accessMessageInMemoryMaxRatio": "0"}) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=1, namesrv=running.namesrv)
        yield running


def served(group: ReplicaGroup, number: int) -> int:
    """How many messages this replica has handed out."""
    with admin(group) as client:
        info = client.broker_runtime_info(group[number].address)
    return int(info["msgGetTotalTodayNow"])


def suggestion(group: ReplicaGroup, number: int, offset: int) -> tuple[int, int]:
    """(response code, suggestWhichBrokerId) of one pull."""
    fields = {
        "consumerGroup": "suggested", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    with connect(group[number].address) as stream:
        reply = exchange(stream, RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields=fields))
    return reply.code, int(reply.ext_fields.get("suggestWhichBrokerId", "-1"))


def commit(group: ReplicaGroup, number: int, offset: int, consumer: str = "suggested") -> None:
    header = UpdateConsumerOffsetRequestHeader(consumer_group=consumer, topic=TOPIC, queue_id=0, commit_offset=offset)
    call(group[number].address, RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header))


def committed(group: ReplicaGroup, number: int, consumer: str = "suggested") -> int:
    """What the replica's own table says; one that hears its master answers no consumer's question."""
    with connect(group[number].address) as stream:
        reply = exchange(stream, RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET))
    table = ConsumerOffsetSerializeWrapper.from_json(reply.body).offset_table
    return table.get(f"{TOPIC}@{consumer}", {}).get(0, -1)


def test_the_master_suggests_the_slave_only_for_what_the_slave_holds(group: ReplicaGroup) -> None:
    for _ in range(40):
        send_raw(group[0], TOPIC)
    wait_level(group)
    assert suggestion(group, 0, 0) == (ResponseCode.SUCCESS, 1), (
        "32 messages further there is more, and the slave has it"
    )
    wait_until(
        lambda: suggestion(group, 1, 0) == (ResponseCode.SUCCESS, 0),
        timeout_s=WAIT_S,
        what="the slave knows the topic, and sends its readers back",
    )
    group[1].kill()
    for _ in range(40):
        send_raw(group[0], TOPIC)
    assert suggestion(group, 0, 40) == (ResponseCode.SUCCESS, 0), "the slave lacks what comes next"


def test_a_java_consumer_follows_the_suggestion_and_with_the_master_dead_reads_on_from_the_slave(
    java_client: DriverProcess, group: ReplicaGroup
) -> None:
    cluster = Cluster(group.namesrv)
    sent = plans("split", COUNT, sizes=[200])
    outcomes = java_client.produce(cluster, TOPIC, sent, mode="async", group="split")
    assert {outcome["status"] for outcome in outcomes} == {"SEND_OK"}
    wait_level(group)
    with java_client.consumer(cluster, TOPIC, group="readers") as consumer:
        first = consumer.receive(COUNT)
    assert len({message["msg_id"] for message in first}) == len(first) == COUNT
    assert served(group, 1) > 0, "the master sent it to the slave"
    assert served(group, 0) > PULL_BATCH, "and the slave back to the master: it served more than the first pull"
    java_client.produce(
        cluster, TOPIC, plans("more", COUNT, sizes=[200], first_index=COUNT), mode="async", group="split"
    )
    wait_level(group)
    wait_until(
        lambda: committed(group, 1, "readers") == COUNT, timeout_s=WAIT_S, what="the slave knows the group's offset"
    )
    group[0].kill()
    with java_client.consumer(cluster, TOPIC, group="readers") as consumer:
        second = consumer.receive(COUNT)
    assert len(second) == COUNT
    assert not {message["msg_id"] for message in first} & {message["msg_id"] for message in second}
    wait_until(
        lambda: committed(group, 1, "readers") == 2 * COUNT, timeout_s=WAIT_S, what="offsets are committed on the slave"
    )
    group[0].start()
    wait_leads(group, 0)
    assert committed(group, 0, "readers") == 2 * COUNT, "nothing is consumed twice"


def test_a_slave_that_hears_its_master_names_it_to_who_commits_there(group: ReplicaGroup) -> None:
    for _ in range(20):
        send_raw(group[0], TOPIC)
    wait_level(group)
    suggestion(group, 0, 0)  # its first pull makes the group
    commit(group, 0, 5)
    wait_until(lambda: committed(group, 1) == 5, timeout_s=WAIT_S, what="the slave has the offset")
    with pytest.raises(Refused, match=f"the master is {group[0].address}"):
        commit(group, 1, 12)
    assert (committed(group, 0), committed(group, 1)) == (5, 5)


def test_a_reset_reaches_the_slave_and_is_not_undone_by_it(group: ReplicaGroup) -> None:
    for _ in range(20):
        send_raw(group[0], TOPIC)
    wait_level(group)
    suggestion(group, 0, 0)  # its first pull makes the group
    commit(group, 0, 15)
    wait_until(lambda: committed(group, 1) == 15, timeout_s=WAIT_S, what="the slave has the offset")
    fields = {"topic": TOPIC, "group": "suggested", "queueId": "0", "offset": "3", "timestamp": "-1", "isForce": "true"}
    call(group[0].address, RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=fields))
    wait_until(lambda: committed(group, 1) == 3, timeout_s=WAIT_S, what="the reset reaches the slave")
    assert committed(group, 0) == 3


def test_a_promoted_slave_delivers_the_delayed_messages_of_its_master(group: ReplicaGroup) -> None:
    assert send_raw(group[0], TOPIC, b"later", properties="DELAY\x011") == ResponseCode.SUCCESS
    wait_level(group)
    assert read_all(group[0], TOPIC) == []
    demote(group, 0)
    promote(group, 1)
    wait_until(
        lambda: [one.body for one in read_all(group[1], TOPIC)] == [b"later"], timeout_s=WAIT_S, what="it is delivered"
    )
