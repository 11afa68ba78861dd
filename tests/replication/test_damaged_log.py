"""A master whose log is damaged where recovery does not look puts that right with its slave's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqwire.codes import ResponseCode
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, read_all, send_raw, status, wait_leads, wait_level

TOPIC = "orders"
BODIES = [b"%03d" % number + b"." * 500 for number in range(40)]

pytestmark = pytest.mark.timeout(240)


def rot(replica: BrokerDaemon, offset: int) -> None:
    with min((replica.folder / "store" / "commitlog").iterdir()).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_it_fetches_the_record_from_its_slave_and_leads_on(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, {"haSendHeartbeatInterval": "1000"}) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        for body in BODIES:
            assert send_raw(group[0], TOPIC, body) == ResponseCode.SUCCESS
        wait_level(group)
        group[0].stop()
        rot(group[0], 9000)
        group[0].start()  # recovery begins at the checkpoint, past the damage
        wait_leads(group, 0)
        wait_level(group)
        epoch = status(group[0]).epoch
        assert len(read_all(group[0], TOPIC)) < len(BODIES)
        wait_until(
            lambda: [bytes(message.body) for message in read_all(group[0], TOPIC)] == BODIES,
            timeout_s=WAIT_S,
            what="the master has every message whole again",
        )
        assert (status(group[0]).accepts_sends, status(group[0]).epoch) == (True, epoch)
        assert send_raw(group[0], TOPIC) == ResponseCode.SUCCESS
        wait_level(group)
