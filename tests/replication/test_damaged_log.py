"""A master whose log is damaged where recovery does not look takes no more messages, and is repaired once another one leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqwire.codes import ResponseCode
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, demote, promote, read_all, send_raw, status, wait_leads, wait_level

TOPIC = "orders"
BODIES = [b"%03d" % number + b"." * 500 for number in range(40)]

pytestmark = pytest.mark.timeout(240)


def rot(replica: BrokerDaemon, offset: int) -> None:
    with min((replica.folder / "store" / "commitlog").iterdir()).open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_it_refuses_sends_until_another_leads_and_puts_it_right(tmp_path: Path) -> None:
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
        assert len(read_all(group[0], TOPIC)) < len(BODIES)
        wait_until(lambda: not status(group[0]).accepts_sends, timeout_s=WAIT_S, what="the master takes no more sends")
        reported = status(group[0])
        assert "damaged" in (reported.refusal or "")
        assert not reported.promotable
        assert send_raw(group[0], TOPIC) != ResponseCode.SUCCESS
        demote(group, 0)
        promote(group, 1)
        wait_until(
            lambda: [bytes(message.body) for message in read_all(group[0], TOPIC)] == BODIES,
            timeout_s=WAIT_S,
            what="the former master has every message whole again",
        )
        assert send_raw(group[1], TOPIC) == ResponseCode.SUCCESS
        wait_level(group, 1, 0)
        assert status(group[0]).promotable
