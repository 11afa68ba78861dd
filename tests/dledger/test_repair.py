"""A replica whose log has rotted below confirmOffset repairs itself from its leader, and leads again afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater import Admin, Producer
from tests.daemons import BrokerDaemon
from tests.dledger.groups import WAIT_S, quorum_group, status, wait_all_level, wait_leader
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import read_all, send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
# Recovery reads what no checkpoint covers: without one since the start, that is all.
CONF = {"flushIntervalConsumeQueue": "3600000"}


def rot(log: Path, offset: int) -> None:
    with log.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def first_file(replica: BrokerDaemon) -> Path:
    return min((replica.folder / "store" / "commitlog").iterdir())


def test_a_leader_whose_log_is_damaged_where_recovery_does_not_look_fetches_the_record_and_leads_on(
    tmp_path: Path,
) -> None:
    """Found by a reader: it is sent to a replica that has the message whole, and the leader asks that one for it, too."""
    with quorum_group(tmp_path) as group:
        create_topic(group[wait_leader(group)].address, TOPIC, queues=1, namesrv=group.namesrv)
        with Producer(group.namesrv, "repair") as producer:
            bodies = [b"%03d" % number + b"." * 500 for number in range(40)]
            for body in bodies:
                send_until_ok(producer, TOPIC, body)
            wait_all_level(group)
            leader = wait_leader(group)
            group[leader].stop()
            rot(first_file(group[leader]), 9000)
            group[leader].start()  # recovery begins at the checkpoint, past the damage
            wait_all_level(group)
            with Admin(group.namesrv) as admin:
                admin.transfer_leadership(group[wait_leader(group)].address, group.name, leader)
            wait_leader(group, *(number for number in range(3) if number != leader))
            wait_all_level(group)
            epoch = status(group[leader]).epoch
            assert len(read_all(group[leader], TOPIC)) < len(bodies)
            wait_until(
                lambda: [bytes(message.body) for message in read_all(group[leader], TOPIC)] == bodies,
                timeout_s=WAIT_S,
                what="the leader has every message whole again",
            )
            assert status(group[leader]).epoch == epoch, "no one else has led"
            send_until_ok(producer, TOPIC, b"and on")
            wait_all_level(group)


def test_a_rotten_log_is_fetched_again_from_where_it_is_rotten(tmp_path: Path) -> None:
    with quorum_group(tmp_path, conf=CONF) as group:
        create_topic(group[wait_leader(group)].address, TOPIC, queues=1, namesrv=group.namesrv)
        with Producer(group.namesrv, "repair") as producer:
            bodies = [b"%03d" % number + b"." * 500 for number in range(40)]
            for body in bodies:
                send_until_ok(producer, TOPIC, body)
            wait_all_level(group)
            leader = wait_leader(group)
            rotten = (leader + 1) % 3
            group[rotten].kill()
            rot(first_file(group[rotten]), 9000)
            group[rotten].start()
            wait_all_level(group)
            process = group[rotten].process
            assert process is not None
            assert "the log is damaged from" in process.log_path.read_text()
            assert [bytes(message.body) for message in read_all(group[rotten], TOPIC)] == bodies
            wait_until(
                lambda: (quorum := status(group[rotten]).quorum) is not None and quorum.not_electable_because is None,
                timeout_s=WAIT_S,
                what="it has a voice again",
            )
            others = [number for number in range(3) if number != rotten]
            group[others[0]].kill()
            wait_leader(group, others[0])
            send_until_ok(producer, TOPIC, b"with its vote or its lead")
