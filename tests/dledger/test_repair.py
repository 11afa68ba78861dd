"""A replica whose log has rotted below confirmOffset repairs itself from its leader, and leads again afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from highwater import Producer
from tests.dledger.groups import WAIT_S, quorum_group, status, wait_all_level, wait_leader
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import read_all, send_until_ok

pytestmark = pytest.mark.timeout(240)
TOPIC = "orders"
# Recovery reads what no checkpoint covers: without one since the start, that is all.
CONF = {"flushIntervalConsumeQueue": "3600000"}


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
            (log,) = sorted((group[rotten].folder / "store" / "commitlog").iterdir())[:1]
            with log.open("r+b") as file:
                file.seek(9000)
                byte = file.read(1)
                file.seek(9000)
                file.write(bytes([byte[0] ^ 0xFF]))
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
