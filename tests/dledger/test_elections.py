"""Real brokers elect: three of them, killed, stopped, cut off and asked to stop, with a producer that goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from highwater import BrokerError, HighwaterError, Message, Producer
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from tests.daemons import ReplicaGroup
from tests.dledger.groups import WAIT_S, quorum_group, status, wait_all_level, wait_leader
from tests.processes import wait_until
from tests.remoting import Refused, call, create_topic
from tests.replication.replicas import read_all, registered, send_raw, send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaGroup]:
    """One group for all tests here: each leaves three replicas that run and are level."""
    with quorum_group(tmp_path_factory.mktemp("elections")) as running:
        create_topic(running[wait_leader(running)].address, TOPIC, queues=1, namesrv=running.namesrv)
        wait_all_level(running)
        yield running


@pytest.fixture
def producer(group: ReplicaGroup) -> Iterator[Producer]:
    with Producer(group.namesrv, "election-tests", retry_times_when_send_failed=0) as made:
        yield made


def bodies(group: ReplicaGroup, number: int) -> list[bytes]:
    return [bytes(message.body) for message in read_all(group[number], TOPIC)]


def test_the_leader_is_broker_0_and_the_others_are_readable_slaves(group: ReplicaGroup, producer: Producer) -> None:
    send_until_ok(producer, TOPIC, b"for all")
    wait_all_level(group)
    wait_until(
        lambda: registered(group).get(0) == group[wait_leader(group)].address and len(registered(group)) == 3,
        timeout_s=WAIT_S,
        what="the leader is registered as broker 0, and two others beside it",
    )
    for number in range(3):
        assert b"for all" in bodies(group, number)
        reported = status(group[number])
        assert (reported.mode, reported.flush_disk_type) == ("dledger", "SYNC_FLUSH")
        assert reported.quorum is not None
        assert (reported.quorum.state == "leader", reported.quorum.voters) == (reported.role == "master", [0, 1, 2])


def test_a_killed_leader_is_replaced_and_finds_its_place_again(group: ReplicaGroup, producer: Producer) -> None:
    former = wait_leader(group)
    send_until_ok(producer, TOPIC, b"before the kill")
    group[former].kill()
    epoch = status(group[wait_leader(group, former)]).epoch
    send_until_ok(producer, TOPIC, b"after the kill")
    group[former].start()
    wait_all_level(group)
    for number in range(3):
        assert {b"before the kill", b"after the kill"} <= set(bodies(group, number))
    assert status(group[former]).epoch >= epoch


def test_a_leader_that_stands_still_is_replaced_and_follows_when_it_wakes(
    group: ReplicaGroup, producer: Producer
) -> None:
    former = wait_leader(group)
    os.kill(group[former].pid, signal.SIGSTOP)
    try:
        epoch = status(group[wait_leader(group, former)]).epoch
        send_until_ok(producer, TOPIC, b"while one stands still")
    finally:
        os.kill(group[former].pid, signal.SIGCONT)
    wait_all_level(group)
    assert status(group[former]).epoch >= epoch
    assert b"while one stands still" in bodies(group, former)


def test_a_leader_that_is_asked_to_stop_hands_over_first(group: ReplicaGroup, producer: Producer) -> None:
    former = wait_leader(group)
    send_until_ok(producer, TOPIC, b"before the stop")
    assert group[former].stop() == 0
    wait_leader(group, former)
    send_until_ok(producer, TOPIC, b"after the stop")
    group[former].start()
    wait_all_level(group)


def test_a_minority_takes_no_messages_and_shows_what_is_confirmed(group: ReplicaGroup, producer: Producer) -> None:
    leader = wait_leader(group)
    send_until_ok(producer, TOPIC, b"with everyone")
    wait_all_level(group)
    others = [number for number in range(3) if number != leader]
    for number in others:
        os.kill(group[number].pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not status(group[leader]).accepts_sends, timeout_s=WAIT_S, what="it refuses sends")
        assert send_raw(group[leader], TOPIC, b"alone") == ResponseCode.SERVICE_NOT_AVAILABLE
        reported = status(group[leader])
        assert reported.refusal is not None
        assert b"with everyone" in bodies(group, leader)
        wait_until(lambda: status(group[leader]).role == "slave", timeout_s=WAIT_S, what="it resigns")
        assert b"with everyone" in bodies(group, leader)
    finally:
        for number in others:
            os.kill(group[number].pid, signal.SIGCONT)
    wait_leader(group)
    send_until_ok(producer, TOPIC, b"together again")
    wait_all_level(group)
    assert b"alone" not in bodies(group, leader)


def test_a_send_that_no_majority_confirms_fails_in_every_client(group: ReplicaGroup) -> None:
    """Appended and not confirmed: the answer is an error, and no SendStatus that a program takes for stored."""
    leader = wait_leader(group)
    others = [number for number in range(3) if number != leader]
    with Producer(group.namesrv, "unconfirmed", retry_times_when_send_failed=0) as producer:
        send_until_ok(producer, TOPIC, b"it knows the route")
        for number in others:
            os.kill(group[number].pid, signal.SIGSTOP)
        try:
            with pytest.raises(HighwaterError) as caught:
                producer.send(Message(TOPIC, b"unconfirmed"), timeout_ms=10_000)
        finally:
            for number in others:
                os.kill(group[number].pid, signal.SIGCONT)
    assert isinstance(caught.value, BrokerError)
    assert caught.value.response_code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE)
    wait_leader(group)
    wait_all_level(group)


def test_a_promotion_is_refused_where_replicas_elect(group: ReplicaGroup) -> None:
    leader = wait_leader(group)
    fields = {"group": group.name, "replicaId": "1", "expectedEpoch": "1", "newEpoch": "99"}
    request = RemotingCommand.request(HighwaterRequestCode.REPLICA_PROMOTE, ext_fields=fields)
    with pytest.raises(Refused, match="elects its leader"):
        call(group[1].address, request)
    assert status(group[leader]).epoch < 99


def test_replicas_with_other_peers_than_three_do_not_start(tmp_path: Path) -> None:
    from tests.daemons import BrokerDaemon
    from tests.processes import ChildFailed

    conf = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2", "dLegerSelfId": "n0"}
    with pytest.raises(ChildFailed, match="dLegerPeers: 2 peers cannot outvote a dead one"):
        BrokerDaemon(tmp_path / "broker", "127.0.0.1:9", conf).start()
