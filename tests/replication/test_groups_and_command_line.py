"""Several masters, a slave that starts over after retention, and the command line's promotion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from highwater import Admin
from highwater._cli_admin import app
from mqwire.codes import ResponseCode
from tests.daemons import NameServerDaemon, ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import plans
from tests.processes import wait_until
from tests.remoting import create_topic, topic_route, wait_for_registration
from tests.replication.replicas import (
    PATIENT,
    WAIT_S,
    producer,
    promote,
    read_all,
    registered,
    send_raw,
    send_until_ok,
    status,
    wait_leads,
    wait_level,
    wait_registered,
)

TOPIC = "spread"
SLOW_SENDS: dict[str, Any] = {"poll_ms": 500, "timeout_ms": 15_000}

pytestmark = pytest.mark.timeout(240)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["admin", *arguments], catch_exceptions=False)


def as_json(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_topic_spreads_over_two_masters_and_stock_producers_go_on_with_one(
    java_client: DriverProcess, tmp_path: Path
) -> None:
    names = NameServerDaemon(tmp_path / "namesrv").start()
    with (
        ReplicaGroup.start(tmp_path, replicas=1, name="broker-a", name_server=names) as a,
        ReplicaGroup.start(tmp_path, replicas=1, name="broker-b", name_server=names) as b,
    ):
        wait_for_registration(names.address, "broker-a")
        wait_for_registration(names.address, "broker-b")
        with Admin(names.address) as admin:
            admin.create_topic(TOPIC, cluster="DefaultCluster", read_queue_nums=4, write_queue_nums=4)
        wait_until(
            lambda: (route := topic_route(names.address, TOPIC)) is not None and len(route.queue_datas) == 2,
            timeout_s=WAIT_S,
            what="both groups are in the route",
        )
        cluster = Cluster(names.address)
        first = java_client.produce(cluster, TOPIC, plans("all", 80, sizes=[50]), group="spread", **SLOW_SENDS)
        assert {outcome["status"] for outcome in first} == {"SEND_OK"}
        stored = [sum(len(read_all(one[0], TOPIC, queue=queue)) for queue in range(4)) for one in (a, b)]
        assert sum(stored) == 80
        assert min(stored) > 20, "both groups take their share"
        b[0].kill()
        second = java_client.produce(
            cluster, TOPIC, plans("one", 40, sizes=[50], first_index=80), group="spread", **SLOW_SENDS
        )
        assert {outcome["status"] for outcome in second} == {"SEND_OK"}, "the client goes on with the other group"
        b[0].start()
        wait_for_registration(names.address, "broker-b")
        with java_client.consumer(cluster, TOPIC, group="spread") as consumer:
            assert len(consumer.receive(120)) == 120, "what was unread is delivered after the restart"


def test_a_slave_that_retention_left_behind_starts_over(tmp_path: Path) -> None:
    conf = {
        "mappedFileSizeCommitLog": "65536", "fileReservedTime": "0", "cleanResourceInterval": "200",
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)), "haSendHeartbeatInterval": "1000",
    }  # fmt: skip
    with ReplicaGroup.start(tmp_path, conf) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        send_raw(group[0], TOPIC)
        wait_level(group)
        group[1].kill()
        for _ in range(60):
            assert send_raw(group[0], TOPIC, bytes(6000)) == ResponseCode.SUCCESS
        wait_until(lambda: status(group[0]).min_offset > 65536, timeout_s=WAIT_S, what="retention deletes files")
        group[1].start()
        wait_level(group)
        assert status(group[1]).min_offset >= 65536
        assert send_raw(group[0], TOPIC, b"last") == ResponseCode.SUCCESS
        wait_level(group)
        promoted = promote(group, 1)
        assert promoted.role == "master"
        wait_level(group, 1)


def test_the_command_line_shows_and_moves_the_role(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, {**PATIENT, "haSendHeartbeatInterval": "1000"}, synchronous=True) as group:
        wait_level(group)
        wait_registered(group, {0: 0, 1: 1})
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        with producer(group) as sender:
            send_until_ok(sender, TOPIC, b"one")
            wait_level(group)
            common = ("-n", group.namesrv, "-b", group.name)
            rows = as_json("haStatus", *common)
            assert [(row["id"], row["role"], row["gap_bytes"]) for row in sorted(rows, key=lambda row: row["id"])] == [
                (0, "master", 0),
                (1, "slave", 0),
            ]
            done = as_json("promote", *common, "--broker-id", "1")
            assert (done["broker_id"], done["lost_bytes"]) == (1, 0)
            wait_level(group, 1)
            wait_registered(group, {0: 1, 1: 0})
            send_until_ok(sender, TOPIC, b"two")
        assert as_json("divergedMessages", *common, "--broker-id", "0") == []
        reported = as_json("demote", *common, "--broker-id", "1")
        assert reported["role"] == "slave"
        assert run("promote", *common, "--broker-id", "7").exit_code == 5


def test_the_command_line_asks_before_it_loses_messages(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, {"haSendHeartbeatInterval": "1000"}) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        send_raw(group[0], TOPIC)
        wait_level(group)
        group[0].kill()
        common = ("-n", group.namesrv, "-b", group.name, "--broker-id", "1")
        refused = run("promote", *common)
        assert refused.exit_code == 1
        assert "--yes" in refused.output
        assert status(group[1]).role == "slave"
        assert as_json("promote", *common, "--yes")["epoch"] > 2


def test_a_restarted_master_that_is_registered_nowhere_is_found_by_its_address_and_promoted(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path) as group:
        wait_level(group)
        for replica in group.replicas:
            replica.kill()
        group[0].start()
        wait_until(lambda: status(group[0]).claims, timeout_s=WAIT_S, what="it waits for the other's agreement")
        wait_until(lambda: 1 not in registered(group), timeout_s=WAIT_S, what="the dead slave is not registered")
        common = ("-n", group.namesrv, "-b", group.name)
        refused = run("promote", *common, "--broker-id", "0", "--yes")
        assert (refused.exit_code != 0, "--address HOST:PORT" in refused.output) == (True, True)
        named = (*common, "--address", group[0].address)
        assert [row["id"] for row in as_json("haStatus", *named)] == [0]
        assert as_json("promote", *named, "--broker-id", "0", "--yes")["clean"] is False
        assert status(group[0]).role == "master"


def test_an_address_of_another_group_is_no_replica_of_this_one(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path) as group:
        refused = run("haStatus", "-n", group.namesrv, "-b", "another", "--address", group[0].address)
        assert f"is of group {group.name}, not of another" in refused.output


def test_a_group_is_rid_of_its_slave_and_its_master_leads_alone_from_then_on(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        common = ("-n", group.namesrv, "-b", group.name)
        refused = run("forgetReplica", *common, "--broker-id", "1")
        assert (refused.exit_code != 0, "still answers: stop it first" in refused.output) == (True, True)
        refused = run("changeMode", *common, "--mode", "single")
        assert "belong to the group: stop each" in refused.output
        group[1].stop()
        assert run("forgetReplica", *common, "--broker-id", "1").exit_code == 0
        assert as_json("changeMode", *common, "--mode", "single")["mode"] == "single"
        group[0].kill()
        group[0].start()  # its file still says totalReplicas=2
        wait_leads(group, 0)
        assert send_raw(group[0], TOPIC) == ResponseCode.SUCCESS
        # And back: the slave is started, and the group goes to async.
        group[1].start()
        wait_level(group)
        assert as_json("changeMode", *common, "--mode", "async")["replicas"] == [0, 1]


def test_the_command_line_sends_again_what_the_new_master_never_had(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
        wait_registered(group, {0: 0, 1: 1})
        wait_level(group)
        group[1].kill()
        with producer(group) as sender:
            for body in (b"lost 0", b"lost 1"):
                send_until_ok(sender, TOPIC, body)
        group[0].kill()
        group[1].start()
        promote(group, 1)
        wait_registered(group, {0: 1})
        assert send_raw(group[1], TOPIC, b"new") == ResponseCode.SUCCESS
        group[0].start()
        wait_level(group, 1)
        wait_registered(group, {0: 1, 1: 0})
        replica = ("-n", group.namesrv, "-b", group.name, "--broker-id", "0")
        (cut,) = as_json("divergedMessages", *replica)
        assert (cut["reason"], cut["messages"]) == ("diverged", 2)
        shown = as_json("divergedMessages", *replica, "--name", cut["name"], "--compare")
        assert [(one["body"], one["now"]) for one in shown] == [("lost 0", "replaced"), ("lost 1", "missing")]
        sent = as_json("resendDiverged", *replica, "--name", cut["name"], "--position", str(shown[1]["position"]))
        assert [one["outcome"] for one in sent] == ["sent"]
        assert [message.body for message in read_all(group[1], TOPIC)] == [b"new", b"lost 1"]
        assert run("deleteDiverged", *replica, "--name", cut["name"]).exit_code != 0
        assert as_json("deleteDiverged", *replica, "--name", cut["name"], "--yes")["name"] == cut["name"]
        assert as_json("divergedMessages", *replica) == []
