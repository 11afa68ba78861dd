"""What senders are answered by a promoted slave whose old master is still away, in a synchronous group of two.

RocketMQ's own words: SLAVE_NOT_AVAILABLE says "stored, and on this one replica only". It is no failure to a stock client, and
what was sent is there to be read. Whoever wants SEND_OK of a single replica says so by enableAutoInSyncReplicas; a promotion
without the old master's answer is no clean one then, for it may have acknowledged alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from highwater._cli_admin import app
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_topic import DeleteTopicRequestHeader
from tests.daemons import BrokerDaemon, ReplicaGroup
from tests.interop.clients import Cluster, DriverProcess
from tests.interop.content import plans
from tests.processes import wait_until
from tests.remoting import connect, create_topic, exchange
from tests.replication.replicas import PATIENT, WAIT_S, promote, read_all, send_raw, status, wait_level

TOPIC = "alone"
CONF = {**PATIENT, "flushDiskType": "SYNC_FLUSH"}
AUTO = {**CONF, "enableAutoInSyncReplicas": "true"}

pytestmark = pytest.mark.timeout(240)


def begin(group: ReplicaGroup) -> None:
    wait_level(group)
    create_topic(group[0].address, TOPIC, queues=1, namesrv=group.namesrv)
    assert send_raw(group[0], TOPIC, b"together") == ResponseCode.SUCCESS
    wait_level(group)


def delete_topic(replica: BrokerDaemon, topic: str) -> int:
    request = RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
    with connect(replica.address) as stream:
        return exchange(stream, request).code


def cli(group: ReplicaGroup, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["admin", *arguments, "-n", group.namesrv, "-b", group.name, "--broker-id", "1"])
    return f"{done.exit_code}: {done.output}"


@pytest.mark.parametrize(
    ("conf", "reported"), [(CONF, "SLAVE_NOT_AVAILABLE"), (AUTO, "SEND_OK")], ids=["default", "auto"]
)
def test_a_stock_producer_goes_on_and_gets_the_true_status(
    java_client: DriverProcess, tmp_path: Path, conf: dict[str, str], reported: str
) -> None:
    with ReplicaGroup.start(tmp_path, conf, synchronous=True) as group:
        begin(group)
        group[0].kill()
        promote(group, 1)
        statuses: list[str | None] = []

        def stored() -> bool:
            (made,) = java_client.produce(
                Cluster(group.namesrv),
                TOPIC,
                plans(f"alone-{len(statuses)}", 1, sizes=[50]),
                group="alone",
                poll_ms=500,
            )
            statuses.append(made["status"])
            return made["status"] is not None

        wait_until(stored, timeout_s=WAIT_S, what="the producer has found the new master")
        assert statuses[-1] == reported
        # The answer does not wait for the flush: more could not come of it than "stored here alone".
        wait_until(
            lambda: len(read_all(group[1], TOPIC)) == 2,
            timeout_s=WAIT_S,
            what="what the only replica holds can be read",
        )


def test_below_min_in_sync_replicas_a_send_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, {**CONF, "minInSyncReplicas": "2"}, synchronous=True) as group:
        begin(group)
        group[0].kill()
        promote(group, 1)
        assert send_raw(group[1], TOPIC, b"alone") == ResponseCode.SERVICE_NOT_AVAILABLE
        group[0].start()
        wait_level(group, 1)
        assert send_raw(group[1], TOPIC, b"together again") == ResponseCode.SUCCESS
        assert [one.body for one in read_all(group[1], TOPIC)] == [b"together", b"together again"]


def test_with_enable_auto_in_sync_replicas_no_promotion_is_clean_without_the_old_master(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, AUTO, synchronous=True) as group:
        begin(group)
        assert status(group[1]).in_sync_replicas == 1
        group[0].kill()
        reported = cli(group, "promote")
        assert reported.startswith("1: ")
        assert "--yes" in reported


def test_without_it_a_slave_that_is_level_holds_all_but_what_the_master_may_have_shown_alone(tmp_path: Path) -> None:
    """The command line can't know whether the old master is dead, or serves readers where no one else reaches it."""
    with ReplicaGroup.start(tmp_path, CONF, synchronous=True) as group:
        begin(group)
        assert status(group[1]).in_sync_replicas == 2
        group[0].kill()
        refused = cli(group, "promote")
        assert refused.startswith("1: ")
        assert "holds everything that was acknowledged, but replica 0 may have shown" in " ".join(refused.split()) or (
            "holds everything that was acknowledged, but the old master may have shown" in " ".join(refused.split())
        )
        assert cli(group, "promote", "--yes").startswith("0: ")
        assert send_raw(group[1], TOPIC, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
        group[0].start()
        wait_level(group, 1)
        assert send_raw(group[1], TOPIC, b"together again") == ResponseCode.SUCCESS


def test_a_deletion_that_one_replica_holds_is_no_more_than_that_when_it_is_asked_for_again(tmp_path: Path) -> None:
    with ReplicaGroup.start(tmp_path, CONF, synchronous=True) as group:
        begin(group)
        group[0].kill()
        promote(group, 1)
        assert delete_topic(group[1], TOPIC) == ResponseCode.SLAVE_NOT_AVAILABLE
        assert delete_topic(group[1], TOPIC) == ResponseCode.SLAVE_NOT_AVAILABLE
        group[0].start()
        wait_level(group, 1)
        assert delete_topic(group[1], TOPIC) == ResponseCode.SUCCESS
