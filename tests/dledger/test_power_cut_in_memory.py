"""ASYNC_FLUSH under real power cuts: a replica that lost its page cache does not help to elect past those who have not."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater import Producer
from tests.dledger.disks import placed_on
from tests.dledger.groups import WAIT_S, quorum_group, status, wait_all_level, wait_leader
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.powercut import Machine, disks_of, why_not
from tests.replication.replicas import read_all, send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
# Nothing is synced but what a vote or a new file asks for.
NEVER_MS = "3600000"
CONF = {
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": NEVER_MS,
    "flushIntervalConsumeQueue": NEVER_MS,
    "mappedFileSizeCommitLog": str(8 * 1024 * 1024),
}
DISK_BYTES = 64 * 1024 * 1024


def test_what_was_in_memory_survives_the_power_cut_of_one_that_held_it(tmp_path: Path) -> None:
    """Of three: one is away, one loses its power, then the leader is killed. The record is on the leader's disk alone."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    machines = [Machine(tmp_path / f"boot-{number}") for number in range(3)]
    for machine in machines:
        machine.boot()
    with (
        disks_of(tmp_path, 3, size_bytes=DISK_BYTES) as disks,
        quorum_group(tmp_path, conf=CONF, place=placed_on(disks, machines)) as group,
    ):
        leader = wait_leader(group)
        cut, away = ((leader + one) % 3 for one in (1, 2))
        create_topic(group[leader].address, TOPIC, queues=1, namesrv=group.namesrv)
        with Producer(group.namesrv, "memory") as producer:
            wait_all_level(group)
            group[away].kill()
            send_until_ok(producer, TOPIC, b"acknowledged")
        end = status(group[leader]).end_offset
        disks[cut].cut()
        for number in (cut, leader):
            group[number].kill()
        disks[cut].unmount()
        disks[cut].mount()
        machines[cut].boot()
        for number in (cut, away):
            group[number].start()
        assert status(group[cut]).end_offset < end
        asked: set[int] = set()

        def both_have_asked() -> bool:
            for number in (cut, away):
                quorum = status(group[number]).quorum
                if quorum is not None and quorum.state != "unattached":
                    asked.add(number)
            return len(asked) == 2

        wait_until(both_have_asked, timeout_s=WAIT_S, what="both of them ask for votes", interval_s=0.02)
        group[leader].start()
        wait_leader(group)
        wait_all_level(group)
        assert [[bytes(one.body) for one in read_all(replica, TOPIC)] for replica in group.replicas] == [
            [b"acknowledged"]
        ] * 3
