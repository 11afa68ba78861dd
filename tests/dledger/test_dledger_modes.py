"""A running group changes its mode in place, under load: async, sync, DLedger, and back. Nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from highwater._cli_admin import app
from tests.daemons import ReplicaGroup
from tests.dledger.groups import WAIT_S, status, wait_all_level, wait_leader
from tests.dledger.history import Disturbance, disturbance, final_content
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import wait_level

pytestmark = pytest.mark.timeout(240)
TOPIC = "modes"
QUEUES = 2
CONF = {"flushDiskType": "SYNC_FLUSH", "haSendHeartbeatInterval": "1000", "haMaxTimeSlaveNotCatchup": "3000"}


def change_mode(group: ReplicaGroup, mode: str, *options: str) -> None:
    """Asks again until it is done: a replica that is busy for a moment is not in sync, and the answer says so."""
    arguments = ["admin", "changeMode", "-n", group.namesrv, "-b", group.name, "--mode", mode, *options]

    def changed() -> bool:
        CliRunner().invoke(app, arguments)
        return all(status(replica).mode == mode for replica in group.replicas)

    wait_until(changed, timeout_s=WAIT_S, what=f"every replica is in mode {mode}", interval_s=0.2)


def more_is_acknowledged(load: Disturbance) -> None:
    wanted = load.history.acknowledged + 40
    wait_until(lambda: load.history.acknowledged >= wanted, timeout_s=WAIT_S, what="sends are acknowledged")


def test_async_sync_dledger_and_back_under_load(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, CONF, replicas=3) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        with disturbance(group, TOPIC, QUEUES) as load:
            for number in range(QUEUES):
                load.write(f"writer-{number}", number)
            load.read_all()
            more_is_acknowledged(load)
            change_mode(group, "sync")
            assert status(group[wait_leader(group)]).in_sync_replicas == 2
            more_is_acknowledged(load)
            change_mode(group, "dledger")
            more_is_acknowledged(load)
            former = wait_leader(group)
            group[former].kill()
            wait_leader(group, former)
            more_is_acknowledged(load)
            group[former].start()
            change_mode(group, "sync", "--in-sync-replicas", "2")
            more_is_acknowledged(load)
            change_mode(group, "async")
            more_is_acknowledged(load)
        wait_all_level(group)
        contents = [final_content(replica, TOPIC, QUEUES) for replica in group.replicas]
        assert contents[0] == contents[1] == contents[2]
        assert load.history.violations(contents[0], dict.fromkeys(range(QUEUES), 0)) == []
