"""Disks of a leader that are full, or that die, under real brokers: the role moves to a replica whose disk is well."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from highwater import HighwaterError, Message, Producer
from tests.daemons import ReplicaGroup
from tests.dledger.disks import fill, make_room, placed_on
from tests.dledger.groups import WAIT_S, quorum_group, status, wait_all_level, wait_leader
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.powercut import Disk, disks_of, why_not
from tests.replication.replicas import read_all, send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
MEBIBYTE = 1024 * 1024
CONF = {"mappedFileSizeCommitLog": str(MEBIBYTE), "mappedFileSizeConsumeQueue": "60000"}
DISK_BYTES = 64 * MEBIBYTE
SCARCE_BYTES = 3 * MEBIBYTE  # less than the tenth that diskSpaceWarningLevelRatio asks for


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Disk]]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with disks_of(tmp_path_factory.mktemp("disks"), 3, size_bytes=DISK_BYTES) as made:
        yield made


@pytest.fixture(scope="module")
def group(disks: list[Disk], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaGroup]:
    with quorum_group(tmp_path_factory.mktemp("group"), conf=CONF, place=placed_on(disks)) as running:
        create_topic(running[wait_leader(running)].address, TOPIC, queues=1, namesrv=running.namesrv)
        yield running


def refusal(producer: Producer) -> str:
    """What a send is refused with; "" when it is taken."""
    try:
        producer.send(Message(TOPIC, b"no"))
    except HighwaterError as error:
        return str(error)
    return ""


def test_a_full_disk_moves_the_role_and_where_all_are_full_the_leader_stays_and_says_so(
    group: ReplicaGroup, disks: list[Disk]
) -> None:
    first = wait_leader(group)
    with Producer(group.namesrv, "full") as producer:
        send_until_ok(producer, TOPIC, b"before")
        fill(disks[first], leave_bytes=SCARCE_BYTES)
        second = wait_leader(group, first)
        send_until_ok(producer, TOPIC, b"where there is room")
        epoch = status(group[second]).epoch
        fill(disks[3 - first - second], leave_bytes=SCARCE_BYTES)
        wait_until(
            lambda: "no majority could store anything" in refusal(producer),
            timeout_s=WAIT_S,
            what="sends are refused that no majority could store",
            interval_s=0.2,
        )
        fill(disks[second], leave_bytes=SCARCE_BYTES)
        wait_until(
            lambda: status(group[second]).role == "master" and "full" in refusal(producer),
            timeout_s=WAIT_S,
            what="the leader stays",
            interval_s=0.2,
        )
        assert status(group[second]).epoch == epoch
        for disk in disks:
            make_room(disk)
        send_until_ok(producer, TOPIC, b"room again")
    wait_all_level(group)
    contents = [[bytes(message.body) for message in read_all(replica, TOPIC)] for replica in group.replicas]
    assert [body for body in contents[0] if body != b"no"] == [b"before", b"where there is room", b"room again"]
    assert contents[0] == contents[1] == contents[2]


def test_a_follower_whose_disk_has_no_byte_left_votes_and_catches_up_when_it_has(
    group: ReplicaGroup, disks: list[Disk]
) -> None:
    leader = wait_leader(group)
    full, other = ((leader + one) % 3 for one in (1, 2))
    fill(disks[full], leave_bytes=0)
    noise = random.Random(1)
    with Producer(group.namesrv, "votes") as producer:
        for _ in range(10):
            send_until_ok(producer, TOPIC, noise.randbytes(MEBIBYTE // 4))  # clients compress what they can
        end = status(group[leader]).end_offset
        assert status(group[full]).end_offset < end
        group[leader].kill()
        wait_until(
            lambda: status(group[other]).role == "master",
            timeout_s=WAIT_S,
            what="the other one leads, by the vote of the full one",
        )
        make_room(disks[full])
        group[leader].start()
        send_until_ok(producer, TOPIC, b"with room")
    wait_all_level(group)


def test_a_leader_whose_disk_dies_steps_down_and_does_not_stand_again(group: ReplicaGroup, disks: list[Disk]) -> None:
    leader = wait_leader(group)
    with Producer(group.namesrv, "dies") as producer:
        send_until_ok(producer, TOPIC, b"last on the disk that dies")
        disks[leader].cut()  # the file system is shut down under the process: every write and sync is an error
        wait_until(
            lambda: refusal(producer) == "" and wait_leader(group) != leader,
            timeout_s=WAIT_S,
            what="another one leads",
            interval_s=0.1,
        )
        reported = status(group[leader])
        assert reported.role == "slave"
        assert reported.quorum is not None
        assert reported.quorum.not_electable_because
        send_until_ok(producer, TOPIC, b"without it")
        group[leader].kill()
        disks[leader].unmount()
        disks[leader].mount()
        group[leader].start()
    wait_all_level(group)
    wait_until(
        lambda: (quorum := status(group[leader]).quorum) is not None and quorum.not_electable_because is None,
        timeout_s=WAIT_S,
        what="it has a voice again",
    )
    bodies = [bytes(message.body) for message in read_all(group[leader], TOPIC)]
    assert bodies[-1] == b"without it"
    assert b"last on the disk that dies" in bodies
