"""From a real broker's log to the database: what Spark counts is what was sent and delivered, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_etl.transforms.metering_schema import RECORD_KEY
from tests.daemons import DaemonCluster, ReplicaGroup
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import promote, wait_level
from tests.security.certificates import Authority
from tests.security.test_tls import keys
from tests.spark_etl.database import Database
from tests.spark_etl.job_world import JobWorld
from tests.spark_etl.metered_traffic import consume, send, send_delayed, send_ordered, wait_metered

METERED = {"meteringIntervalMs": "1000"}
TOPIC = "orders"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("etl-authority"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[DaemonCluster]:
    """With TLS beside plain text, which the jobs use."""
    conf = {**METERED, **keys(authority, "broker")}
    folder = tmp_path_factory.mktemp("etl-traffic")
    with DaemonCluster.start(folder, conf, namesrv_conf=keys(authority, "names")) as running:
        create_topic(running.broker.address, TOPIC, queues=2, namesrv=running.namesrv)
        yield running


@pytest.fixture(scope="module")
def metered_world(
    spark: SparkSession,
    database: Database,
    cluster: DaemonCluster,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> JobWorld:
    """Read over TLS and counted once, after known traffic of every kind."""
    world = JobWorld(spark, database, tmp_path_factory.mktemp("etl-world"), cluster.namesrv, "DefaultCluster")
    world.tls_ca = authority.pair.cert_pem
    world.subscribe()
    send(cluster.namesrv, TOPIC, [1, 4096, 4097, 100_000])
    send_ordered(cluster.namesrv, TOPIC, 5)
    send_delayed(cluster.namesrv, TOPIC, 3)
    consume(cluster.namesrv, TOPIC, "workers", 12)
    wait_metered(cluster.namesrv, TOPIC, sent=12, delivered=12)
    return world


def totals(world: JobWorld) -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """(direction, group, kind) -> messages, bytes, units, over all hours."""
    rows = world.database.rows(
        "select direction, consumer_group, kind, sum(messages)::bigint as messages, sum(bytes)::bigint as bytes,"
        " sum(units)::bigint as units from billing_usage where cluster_id = %s and topic = %s and direction <> 'storage'"
        " group by 1, 2, 3",
        world.cluster_id,
        TOPIC,
    )
    return {
        (row["direction"], row["consumer_group"], row["kind"]): (row["messages"], row["bytes"], row["units"])
        for row in rows
    }


def read_and_count(world: JobWorld) -> Any:
    ingested = world.run("ingest")
    assert (ingested.state, ingested.rows_quarantined) == ("completed", 0), ingested.error
    assert world.run("usage_billing").state == "completed"
    return ingested


def test_usage_equals_the_traffic_and_reading_again_changes_nothing(metered_world: JobWorld) -> None:
    assert read_and_count(metered_world).rows_out > 0
    expected = {
        ("in", "", "normal"): (4, 1 + 4096 + 4097 + 100_000, 1 + 1 + 2 + 25),
        ("in", "", "ordered"): (5, 35, 5),
        ("in", "", "delayed"): (3, 21, 3),
        ("out", "workers", ""): (12, 1 + 4096 + 4097 + 100_000 + 56, 29 + 8),
    }
    assert totals(metered_world) == expected
    read_and_count(metered_world)
    assert totals(metered_world) == expected
    checked = metered_world.run("billing_check")
    assert checked.state == "completed", checked.error


def test_lag_of_the_group_is_written(metered_world: JobWorld) -> None:
    metered_world.run("ingest")
    result = metered_world.run("lag_analytics")
    assert result.state == "completed"
    rows = metered_world.database.rows(
        "select * from insight_lag_window where cluster_id = %s and consumer_group = 'workers' and topic = %s"
        " order by window_start desc, queue_id",
        metered_world.cluster_id,
        TOPIC,
    )
    newest = [row for row in rows if row["window_start"] == rows[0]["window_start"]]
    assert [(row["queue_id"], row["broker"]) for row in newest] == [(-1, ""), (0, "broker-a"), (1, "broker-a")]
    assert {(row["drain_state"], row["lag_messages_last"], row["stuck"]) for row in newest} == {("drained", 0, False)}
    before = metered_world.database.rows(
        "select * from insight_lag_window where cluster_id = %s", metered_world.cluster_id
    )
    metered_world.run("lag_analytics")
    after = metered_world.database.rows(
        "select * from insight_lag_window where cluster_id = %s", metered_world.cluster_id
    )
    assert sorted(before, key=str) == sorted(after, key=str)


@pytest.mark.long
def test_an_ingest_that_is_killed_while_it_writes_is_completed_by_the_next(
    metered_world: JobWorld, tmp_path: Path
) -> None:
    """A lake of its own; the process goes as soon as it has begun to write."""
    world = JobWorld(metered_world.spark, metered_world.database, tmp_path, metered_world.namesrv, "DefaultCluster")
    table = tmp_path / "lake" / "metering" / "data"
    job = world.start("ingest")
    try:
        wait_until(table.exists, timeout_s=240, what="the job writes to the lake", interval_s=0.002)
    finally:
        job.kill()
    read_and_count(world)
    assert totals(world)["in", "", "normal"][0] == 4
    with world.lake() as (lake, _):
        records = lake.records()
        assert records.select(*RECORD_KEY).distinct().count() == records.count() > 0
        assert lake.quarantined().count() == 0


@pytest.mark.long
def test_records_in_a_damaged_file_are_read_again_from_the_brokers(metered_world: JobWorld, tmp_path: Path) -> None:
    world = JobWorld(metered_world.spark, metered_world.database, tmp_path, metered_world.namesrv, "DefaultCluster")
    read_and_count(world)
    before = totals(world)
    (file,) = world.data_files()
    content = bytearray(file.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    file.write_bytes(content)
    now = datetime.now(UTC)
    today = {"from": (now - timedelta(days=1)).isoformat(), "to": (now + timedelta(hours=1)).isoformat()}
    damaged = world.run("usage_billing", range=today)
    assert damaged.state == "failed"
    assert "taken out of use, it can't be read: " in damaged.error
    assert str(file) in damaged.error
    assert totals(world) == before, "no bill became smaller"
    assert world.run("repair", repair={"action": "reread", "clusters": [world.cluster_id]}).rows_out == 1
    assert (read_and_count(world).rows_out or 0) > 0
    assert world.run("usage_billing", range=today).state == "completed"
    assert totals(world)["in", "", "normal"] == before["in", "", "normal"]
    checked = world.run("billing_check")
    assert checked.state == "completed", checked.error


def test_a_cluster_that_cannot_be_read_fails_the_run_after_the_others_were_read(
    metered_world: JobWorld, tmp_path: Path
) -> None:
    world = JobWorld(metered_world.spark, metered_world.database, tmp_path, metered_world.namesrv, "DefaultCluster")
    away = JobWorld(world.spark, world.database, tmp_path, "127.0.0.1:1", "away")
    strangers = Authority(tmp_path / "strangers").pair.cert_pem
    other = JobWorld(world.spark, world.database, tmp_path, world.namesrv, "other", tls_ca=strangers)
    result = world.run("ingest", clusters=[away.cluster(), other.cluster(), world.cluster()])
    assert result.state == "failed"
    assert (result.rows_out or 0) > 0
    assert f"away ({away.cluster_id})" in result.error
    assert "can't be read from 127.0.0.1:1:" in result.error
    assert f"other ({other.cluster_id})" in result.error  # another authority's certificates


def test_traffic_around_a_failover_is_counted_exactly(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Two synchronous replicas; the master is killed between two sends and the slave promoted."""
    with ReplicaGroup.start(tmp_path / "group", METERED, synchronous=True) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=2, namesrv=group.namesrv)
        world = JobWorld(spark, database, tmp_path / "world", group.namesrv, "DefaultCluster")
        world.subscribe()
        before = send(group.namesrv, TOPIC, [10] * 40)
        wait_metered(group.namesrv, TOPIC, sent=40)
        read_and_count(world)
        unmetered = send(group.namesrv, TOPIC, [5000] * 7)
        group[0].kill()
        promote(group, 1)
        after = send(group.namesrv, TOPIC, [30] * 20)
        wait_metered(group.namesrv, TOPIC, sent=67)
        read_and_count(world)
        assert totals(world)["in", "", "normal"] == tuple(
            sum(getattr(one, name) for one in (before, unmetered, after)) for name in ("messages", "bytes", "units")
        )
        checked = world.run("billing_check")
        assert checked.state == "completed", checked.error
