"""Real replicas: pulling, promotion, fencing, rejoining, and what survives each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from highwater import BrokerError, Message, SendStatus
from mqwire.bodies import TopicConfigAndMappingSerializeWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_topic import CreateTopicRequestHeader
from tests.daemons import NameServerDaemon, ReplicaGroup
from tests.processes import free_ports, wait_until
from tests.remoting import call, cluster_info, create_topic
from tests.replication.catch_up import MEBIBYTE, measure
from tests.replication.replicas import (
    PATIENT,
    WAIT_S,
    admin,
    demote,
    producer,
    promote,
    query_key,
    read_all,
    registered,
    same_logs,
    send_raw,
    send_until_ok,
    status,
    wait_leads,
    wait_level,
    wait_registered,
)

TOPIC = "orders"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ReplicaGroup]:
    """Two replicas under synchronous replication and flush."""
    with ReplicaGroup.start(tmp_path, {**PATIENT, "flushDiskType": "SYNC_FLUSH"}, synchronous=True) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=1, namesrv=running.namesrv)
        yield running


@pytest.fixture
def asynchronous(tmp_path: Path) -> Iterator[ReplicaGroup]:
    with ReplicaGroup.start(tmp_path) as running:
        wait_level(running)
        create_topic(running[0].address, TOPIC, queues=1, namesrv=running.namesrv)
        yield running


def bodies(group: ReplicaGroup, number: int, topic: str = TOPIC) -> list[bytes]:
    return [message.body for message in read_all(group[number], topic)]


def test_a_slave_holds_what_was_acknowledged_byte_for_byte(group: ReplicaGroup) -> None:
    assert [send_raw(group[0], TOPIC, b"%d" % number) for number in range(20)] == [ResponseCode.SUCCESS] * 20
    assert status(group[1]).held_offset == status(group[0]).end_offset
    wait_until(
        lambda: bodies(group, 1) == [b"%d" % number for number in range(20)], timeout_s=WAIT_S, what="readers see it"
    )
    assert same_logs(group)


def test_a_promotion_moves_the_role_without_a_restart_and_the_old_master_follows(group: ReplicaGroup) -> None:
    wait_registered(group, {0: 0, 1: 1})
    assert send_raw(group[0], TOPIC, b"before") == ResponseCode.SUCCESS
    reported = demote(group, 0)
    assert (reported.role, reported.accepts_sends, reported.end_offset) == ("slave", False, status(group[1]).end_offset)
    assert send_raw(group[0], TOPIC) == ResponseCode.SERVICE_NOT_AVAILABLE
    promoted = promote(group, 1)
    assert (promoted.role, promoted.epoch) == ("master", reported.epoch + 1)
    assert registered(group)[0] == group[1].address, "brokerId 0 has moved before the answer"
    wait_level(group, 1)
    wait_registered(group, {0: 1, 1: 0})
    assert send_raw(group[1], TOPIC, b"after") == ResponseCode.SUCCESS
    assert send_raw(group[0], TOPIC) == ResponseCode.SERVICE_NOT_AVAILABLE
    wait_until(
        lambda: bodies(group, 0) == [b"before", b"after"], timeout_s=WAIT_S, what="the old master serves as a slave"
    )


def test_a_topic_whose_creation_was_answered_moves_with_the_role(group: ReplicaGroup) -> None:
    wait_level(group)
    header = CreateTopicRequestHeader(
        topic="at-the-last-moment", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip
    call(group[0].address, RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
    demote(group, 0)
    promote(group, 1)
    answer = call(group[1].address, RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG))
    assert "at-the-last-moment" in TopicConfigAndMappingSerializeWrapper.from_json(answer.body).topic_config_table


def test_an_idle_slave_reports_each_ha_send_heartbeat_interval(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, {"haSendHeartbeatInterval": "200"}) as group:
        wait_level(group)
        pulls, last_ms = 0, 0

        def pulled_again() -> bool:
            nonlocal pulls, last_ms
            ago_ms = status(group[0]).followers[0].last_pull_ms_ago
            pulls, last_ms = pulls + (ago_ms < last_ms), ago_ms
            return pulls >= 3

        wait_until(pulled_again, timeout_s=WAIT_S, what="the idle slave has pulled three times more")


def test_two_slaves_follow_one_master_and_then_the_one_of_them_that_was_promoted(tmp_path: Path) -> None:
    conf = {**PATIENT, "flushDiskType": "SYNC_FLUSH"}
    with ReplicaGroup.start(tmp_path, conf, replicas=3, synchronous=True) as group:
        wait_level(group)
        wait_registered(group, {0: 0, 1: 1, 2: 2})
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        assert send_raw(group[0], TOPIC, b"before") == ResponseCode.SUCCESS
        demote(group, 0)
        promote(group, 2)
        wait_level(group, 2)
        wait_registered(group, {0: 2, 1: 1, 2: 0})
        assert send_raw(group[2], TOPIC, b"after") == ResponseCode.SUCCESS
        group[2].kill()
        group[2].start()
        wait_leads(group, 2)
        wait_level(group, 2)
        for number in range(3):
            wait_until(
                partial(shows, group, number, b"before", b"after"),
                timeout_s=WAIT_S,
                what=f"replica {number} shows both",
            )


def shows(group: ReplicaGroup, number: int, *expected: bytes) -> bool:
    return bodies(group, number) == [*expected]


def lists(server: NameServerDaemon, name: str, addresses: dict[int, str]) -> bool:
    groups = cluster_info(server.address).broker_addr_table
    return name in groups and dict(groups[name].broker_addrs) == addresses


def test_a_slave_registers_with_every_name_server(tmp_path: Path) -> None:
    servers = [NameServerDaemon(tmp_path / f"namesrv-{number}").start() for number in (0, 1)]
    conf = {"namesrvAddr": ";".join(server.address for server in servers)}
    try:
        with ReplicaGroup.start(tmp_path, conf, name_server=servers[0]) as group:
            addresses = {number: group[number].address for number in (0, 1)}
            for server in servers:
                wait_until(
                    partial(lists, server, group.name, addresses),
                    timeout_s=WAIT_S,
                    what=f"{server.address} lists master and slave",
                )
    finally:
        servers[1].kill()


def test_of_two_promotions_from_one_epoch_one_wins(group: ReplicaGroup) -> None:
    epoch = demote(group, 0).epoch
    promote(group, 1, epoch + 1)
    wait_level(group, 1)  # by now replica 0 has seen the new epoch too
    with admin(group) as client, pytest.raises(BrokerError, match="epoch"):
        client.promote(group[0].address, group.name, 0, expected_epoch=epoch, new_epoch=epoch + 1)
    assert [status(group[number]).role for number in (0, 1)] == ["slave", "master"]


def test_a_killed_master_comes_back_as_a_slave_of_the_promoted_one(group: ReplicaGroup) -> None:
    assert send_raw(group[0], TOPIC, b"acknowledged") == ResponseCode.SUCCESS
    group[0].kill()
    promote(group, 1)
    assert send_raw(group[1], TOPIC, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
    group[0].start()
    wait_level(group, 1)
    wait_registered(group, {0: 1, 1: 0})
    assert send_raw(group[1], TOPIC, b"together") == ResponseCode.SUCCESS
    assert bodies(group, 1) == [b"acknowledged", b"alone", b"together"]
    wait_until(lambda: bodies(group, 0) == bodies(group, 1), timeout_s=WAIT_S, what="both show the same")


def test_a_promoted_replica_leads_again_after_a_restart_of_itself(group: ReplicaGroup) -> None:
    demote(group, 0)
    epoch = promote(group, 1).epoch
    wait_level(group, 1)
    group[1].kill()
    group[1].start()
    wait_leads(group, 1)
    assert status(group[1]).epoch > epoch
    wait_level(group, 1)
    assert send_raw(group[1], TOPIC) == ResponseCode.SUCCESS


def test_a_master_without_its_slave_waits_for_it_before_it_leads_again(group: ReplicaGroup) -> None:
    group[1].kill()
    group[0].kill()
    group[0].start()
    reported = status(group[0])
    assert (reported.accepts_sends, reported.role) == (False, "slave")
    assert send_raw(group[0], TOPIC) == ResponseCode.SERVICE_NOT_AVAILABLE
    group[1].start()
    wait_leads(group, 0)


def test_both_replicas_are_restarted_together_and_the_master_leads_again(group: ReplicaGroup) -> None:
    assert send_raw(group[0], TOPIC, b"before") == ResponseCode.SUCCESS
    for number in (0, 1):
        group[number].kill()
    for number in (1, 0):
        group[number].start()
    wait_leads(group, 0)
    wait_level(group)
    assert send_raw(group[0], TOPIC, b"after") == ResponseCode.SUCCESS
    assert bodies(group, 0) == [b"before", b"after"]


def test_a_restarted_master_finds_its_slave_at_another_address(group: ReplicaGroup) -> None:
    group[0].kill()
    group[1].kill()
    was = group[1].address
    group[1].port = free_ports()
    group[1].start()
    assert group[1].address != was
    group[0].start()
    wait_leads(group, 0)
    wait_level(group)
    assert [one.address for one in status(group[0]).followers] == [group[1].address]


def test_a_former_master_cuts_what_the_new_one_never_had_and_keeps_it_aside(asynchronous: ReplicaGroup) -> None:
    group = asynchronous
    assert send_raw(group[0], TOPIC, b"both") == ResponseCode.SUCCESS
    wait_level(group)
    group[1].kill()
    lost = [b"lost %d" % number for number in range(3)]
    assert [send_raw(group[0], TOPIC, body) for body in lost] == [ResponseCode.SUCCESS] * 3
    group[0].kill()
    group[1].start()
    promote(group, 1)
    assert send_raw(group[1], TOPIC, b"new") == ResponseCode.SUCCESS
    group[0].start()
    wait_level(group, 1)
    wait_until(
        lambda: bodies(group, 0) == [b"both", b"new"], timeout_s=WAIT_S, what="replica 0 shows the new master's log"
    )
    with admin(group) as client:
        (cut,) = client.diverged_list(group[0].address)
        kept = client.diverged_read(group[0].address, cut.name)
    assert cut.messages == 3
    assert [message.body for message in kept.messages] == lost


def test_every_replica_has_an_index_of_its_own_that_is_cut_with_its_log(asynchronous: ReplicaGroup) -> None:
    group = asynchronous

    def send(number: int, body: bytes, keys: str) -> None:
        assert send_raw(group[number], TOPIC, body, properties=f"KEYS\x01{keys}\x02") == ResponseCode.SUCCESS

    def wait_indexed(number: int, key: str, *bodies: bytes) -> None:
        what = f"replica {number} finds {key}"
        wait_until(lambda: query_key(group[number], TOPIC, key) == list(bodies), timeout_s=WAIT_S, what=what)

    send(0, b"both", "all first")
    wait_indexed(0, "first", b"both")
    wait_indexed(1, "first", b"both")
    group[1].kill()
    send(0, b"lost", "all second")
    wait_indexed(0, "all", b"both", b"lost")
    group[0].kill()
    group[1].start()
    promote(group, 1)
    send(1, b"new", "all third")
    group[0].start()
    wait_level(group, 1)
    for number in (0, 1):
        wait_indexed(number, "all", b"both", b"new")
        assert query_key(group[number], TOPIC, "second") == []
        assert query_key(group[number], TOPIC, "third") == [b"new"]


def test_a_slave_survives_its_masters_restart_and_an_empty_one_fetches_from_the_start(
    asynchronous: ReplicaGroup,
) -> None:
    group = asynchronous
    for number in range(50):
        assert send_raw(group[0], TOPIC, b"%d" % number) == ResponseCode.SUCCESS
    wait_level(group)
    group[0].kill()
    group[0].start()
    wait_leads(group, 0)
    group[1].kill()
    for path in sorted((group[1].folder / "store").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert send_raw(group[0], TOPIC, b"50") == ResponseCode.SUCCESS
    group[1].start()
    wait_level(group)
    wait_until(lambda: len(bodies(group, 1)) == 51, timeout_s=WAIT_S, what="the empty slave has everything")


def test_our_producer_writes_again_after_a_promotion(group: ReplicaGroup) -> None:
    with producer(group) as sender:
        assert sender.send(Message(TOPIC, b"one")).status is SendStatus.SEND_OK
        group[0].kill()
        promote(group, 1)
        group[0].start()
        send_until_ok(sender, TOPIC, b"two")
    assert b"two" in bodies(group, 1)


def test_an_empty_slave_catches_up_while_messages_keep_coming(tmp_path: Path) -> None:
    seen = measure(tmp_path, 16 * MEBIBYTE)
    assert (seen.same_logs, seen.failed_meanwhile) == (True, 0), str(seen)
    assert seen.fetched_bytes >= seen.backlog_bytes, str(seen)
    assert seen.sent_meanwhile > 0, str(seen)
