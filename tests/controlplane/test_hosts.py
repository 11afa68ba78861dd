"""Hosts: what is sampled, promised and used, who takes most, what fits, and what is wrong over all tenants."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterMode, Health, Operation, OperationState, OperationType, Replica
from controlplane.clusters.services import cluster_create
from controlplane.common.errors import LimitReached
from controlplane.insight.models import ClusterFigures
from controlplane.insight.neighbours import shared_hosts
from controlplane.provisioning import hosts as provisioning_hosts
from controlplane.provisioning.drivers.base import HostUsage, ProcessUsage
from controlplane.provisioning.hosts import (
    Taken,
    capacities,
    crowded,
    fits,
    hosts_sample,
    latest_samples,
    noisy_marked,
    placements,
    restarts,
    samples_by_host,
    taken,
)
from controlplane.provisioning.models import HostSample, PortLease
from controlplane.provisioning.proc import Proc
from controlplane.status.troubles import troubles
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, Json, World, alert_of

GIB = 2**30


def host_usage(name: str, **changes: Any) -> HostUsage:
    values: dict[str, Any] = {
        "host": name,
        "cores": 2,
        "cpu_busy_s": 100.0,
        "cpu_total_s": 1000.0,
        "load": 0.5,
        "memory_bytes": 8 * GIB,
        "memory_available_bytes": 6 * GIB,
        "disk_bytes": 100 * GIB,
        "disk_free_bytes": 60 * GIB,
        "descriptors": 1000,
        "descriptors_max": None,
    }
    return HostUsage(**(values | changes))


def usage(name: str, host: str, **changes: Any) -> ProcessUsage:
    values: dict[str, Any] = {
        "life": "1-1",
        "cpu_s": 10.0,
        "memory_bytes": 64 * 2**20,
        "read_bytes": 0,
        "written_bytes": 1000,
        "descriptors": 40,
    }
    return ProcessUsage(name=name, host=host, **(values | changes))


@pytest.fixture
def driver(world: World, tmp_path: Path) -> DriverTwin:
    """A host with the daemons of the cluster orders, all of which run."""
    found = DriverTwin(tmp_path)
    placed = placements()
    found.hosts = [host_usage(placed[0].host)]
    found.usages = [usage(one.process, one.host) for one in placed]
    return found


def earlier(seconds: float) -> None:
    """Have all samples be older."""
    for sample in HostSample.objects.all():
        sample.sampled_at -= timedelta(seconds=seconds)
        sample.save()


def test_a_host_without_a_sample_is_not_known_and_never_0(world: World) -> None:
    (host,) = capacities(placements())
    assert (host.cpu_used, host.memory_used_bytes, host.disk_used_bytes) == (None, None, None)
    (single, *_) = fits([host])
    assert {what for what, room in single.rooms.items() if room is not None} == {"ports"}


def test_a_sample_that_is_old_is_not_believed(driver: DriverTwin) -> None:
    hosts_sample(driver)
    earlier(400)
    assert latest_samples() == []


def test_a_processor_that_was_busy_long_ago_is_not_shown_as_busy_now(driver: DriverTwin) -> None:
    hosts_sample(driver)
    earlier(60)
    driver.hosts = [replace(driver.hosts[0], cpu_busy_s=150.0, cpu_total_s=1100.0)]
    hosts_sample(driver)
    assert [host.cpu_used for host in capacities(placements())] == [0.5]
    earlier(400)
    assert [host.cpu_used for host in capacities(placements())] == [None]


def test_what_a_host_has_promises_and_uses(driver: DriverTwin, settings: Any) -> None:
    settings.HIGHWATER_DAEMON_MEMORY_MIB = 1024
    settings.HIGHWATER_MEMORY_OVERCOMMIT = 1.0
    hosts_sample(driver)
    placed = placements()
    (host,) = capacities(placed)
    assert host.memory_used_bytes == 2 * GIB
    assert host.disk_used_bytes == 40 * GIB
    assert host.memory_promised_bytes == len(placed) * GIB
    single = fits([host])[0]
    assert single.rooms["memory"] == (8 - len(placed)) // single.daemons


@pytest.mark.parametrize(
    ("changes", "binds", "more"),
    [
        ({"memory_bytes": 6 * GIB}, "memory", 2),  # two daemons are promised two of its six GiB
        ({"disk_free_bytes": 97 * GIB}, "disk", 1),  # the broker that is there may take 55, and the next one 41.25
        ({"descriptors_max": 1000 + 3 * 2 * 40}, "descriptors", 3),
        ({}, "ports", 4),  # of 25, 5 are leased and a cluster of one broker takes as many
    ],
)
def test_what_there_is_least_room_of_says_how_many_clusters_fit(
    world: World, driver: DriverTwin, settings: Any, changes: dict[str, Any], binds: str, more: int
) -> None:
    settings.HIGHWATER_DAEMON_MEMORY_MIB = 1024
    settings.HIGHWATER_MEMORY_OVERCOMMIT = 1.0
    settings.HIGHWATER_LIMITS = {**settings.HIGHWATER_LIMITS, "stored_bytes": 30 * GIB}
    world.acme.limits = {"stored_bytes": 40 * GIB}
    world.acme.save()
    settings.HIGHWATER_PORT_RANGE = "20000-20024"
    host = placements()[0].host
    for port in range(20000, 20005):
        PortLease.objects.create(host=host, port=port, cluster_id=world.cluster.pk, holder=uuid.uuid4(), purpose="x")
    roomy = {"memory_bytes": 100 * GIB, "disk_free_bytes": 900 * GIB}
    driver.hosts = [host_usage(host, **(roomy | changes))]
    hosts_sample(driver)
    single = fits(capacities(placements()))[0]
    assert (single.mode, single.binds, single.more) == ("single", binds, more)


def test_how_busy_a_processor_was_takes_two_samples(driver: DriverTwin) -> None:
    hosts_sample(driver)
    assert capacities(placements())[0].cpu_used is None
    earlier(60)
    driver.hosts = [host_usage(driver.hosts[0].host, cpu_busy_s=160.0, cpu_total_s=1120.0)]
    hosts_sample(driver)
    assert capacities(placements())[0].cpu_used == 0.5


def test_what_a_cluster_took_is_counted_across_a_restart(driver: DriverTwin) -> None:
    hosts_sample(driver)
    earlier(100)
    host = driver.hosts[0].host
    driver.hosts = [host_usage(host, cpu_busy_s=150.0, cpu_total_s=1200.0)]
    first, *others = driver.usages
    driver.usages = [
        usage(first.name, host, cpu_s=20.0, written_bytes=5000, life="1-1"),
        *(usage(one.name, host, cpu_s=4.0, written_bytes=300, life="2-9") for one in others),
    ]
    hosts_sample(driver)
    rows, busy = taken(host, placements(), samples_by_host(timedelta(hours=1))[host])
    (row,) = rows
    assert row.cpu == pytest.approx((10 + 4 * len(others)) / 100 / 2, rel=0.05)
    assert row.written_per_s == pytest.approx((4000 + 300 * len(others)) / 100, rel=0.05)
    assert busy == 0.25


def test_what_flows_through_a_cluster_is_told_beside_what_it_takes(world: World, driver: DriverTwin) -> None:
    hosts_sample(driver)
    (host,) = shared_hosts("1h")
    assert [(one.in_per_second, one.out_per_second) for one in host.clusters] == [(None, None)]
    for rate in (10.0, 20.0, None):
        ClusterFigures.objects.create(cluster=world.cluster, sampled_at=timezone.now(), in_per_second=rate)
    (host,) = shared_hosts("1h")
    assert [(one.in_per_second, one.out_per_second) for one in host.clusters] == [(15.0, None)]


def test_a_daemon_that_no_one_may_look_at_is_not_known(driver: DriverTwin) -> None:
    driver.usages = []
    hosts_sample(driver)
    host = driver.hosts[0].host
    rows, _ = taken(host, placements(), samples_by_host(timedelta(hours=1))[host])
    assert [(row.cpu, row.memory_bytes, row.read_per_s) for row in rows] == [(None, None, None)]


def took(cluster: Cluster, cpu: float | None) -> Taken:
    return Taken(cluster, "10.0.0.1", cpu, None, None, None, is_noisy=False)


@pytest.mark.parametrize(
    ("cpus", "busy", "noisy"),
    [
        ([0.7, 0.2], 0.95, [True, False]),
        ([0.7, 0.2], 0.5, [False, False]),  # no one waits
        ([0.9, 0.0], 0.95, [False, False]),  # no one else wants any
        ([0.45, 0.45], 0.95, [False, False]),
        ([0.7, None], None, [False, False]),
    ],
)
def test_who_is_noisy(world: World, cpus: list[float | None], busy: float | None, noisy: list[bool]) -> None:
    assert [row.is_noisy for row in noisy_marked([took(world.cluster, cpu) for cpu in cpus], busy)] == noisy


def test_replicas_of_one_group_on_one_host_are_named(world: World) -> None:
    assert crowded(placements()) == []
    group = world.cluster.broker_groups.get()
    Replica.objects.create(group=group, broker_id=1, host=group.replicas.get().host)
    (found,) = crowded(placements())
    assert (found.group, found.replicas) == (group.name, (0, 1))


def test_a_cluster_that_does_not_fit_is_refused_and_nothing_of_it_stays(
    world: World, driver: DriverTwin, settings: Any
) -> None:
    settings.HIGHWATER_DAEMON_MEMORY_MIB = 2048
    settings.HIGHWATER_MEMORY_OVERCOMMIT = 0.75  # 6 GiB: three daemons
    hosts_sample(driver)
    with pytest.raises(LimitReached, match="no room") as refused:
        cluster_create(actor=SYSTEM, tenant=world.acme, slug="large", mode=ClusterMode.SYNC)
    assert refused.value.code == "no_room"
    assert not Cluster.objects.filter(slug="large").exists()


def test_a_cluster_whose_brokers_could_fill_the_disk_for_the_others_is_refused_by_name(
    world: World, driver: DriverTwin, settings: Any
) -> None:
    hosts_sample(driver)
    disk_gib = driver.hosts[0].disk_bytes // GIB
    settings.HIGHWATER_DISK_OVERCOMMIT = 1.0
    world.acme.limits = {"stored_bytes": disk_gib * GIB // 2}  # one broker is there, and this cluster has two
    world.acme.save()
    with pytest.raises(LimitReached, match=f"GiB of disk, and {disk_gib} GiB may be") as refused:
        cluster_create(actor=SYSTEM, tenant=world.acme, slug="large", mode=ClusterMode.SYNC)
    assert refused.value.code == "no_room"
    world.acme.limits = {"stored_bytes": disk_gib * GIB // 8}
    world.acme.save()
    cluster_create(actor=SYSTEM, tenant=world.acme, slug="large", mode=ClusterMode.SYNC)


@pytest.mark.parametrize(("overcommit", "sampled"), [(0.0, True), (0.1, False), (16.0, True)])
def test_a_cluster_is_not_refused(
    world: World, driver: DriverTwin, settings: Any, overcommit: float, sampled: bool
) -> None:
    settings.HIGHWATER_MEMORY_OVERCOMMIT = overcommit
    if sampled:
        hosts_sample(driver)
    cluster_create(actor=SYSTEM, tenant=world.acme, slug="another")


def test_a_daemon_that_begins_again_and_again_is_seen(driver: DriverTwin) -> None:
    name = driver.usages[0].name
    for life in range(5):
        driver.usages = [usage(name, driver.hosts[0].host, life=f"{life}-1"), *driver.usages[1:]]
        hosts_sample(driver)
        earlier(60)
    assert {process: times for process, (times, _) in restarts().items()} == {name: 4}


def test_what_is_older_than_a_day_is_forgotten(driver: DriverTwin) -> None:
    hosts_sample(driver)
    earlier(26 * 3600)
    hosts_sample(driver)
    assert HostSample.objects.count() == 1


def test_proc_is_read_as_linux_writes_it(tmp_path: Path) -> None:
    files = {
        "stat": "cpu  100 0 50 800 40 0 10 0 7 0\ncpu0 1 2 3\n",
        "meminfo": "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n",
        "sys/fs/file-nr": "1216\t0\t9223372036854775807\n",
        "loadavg": "0.25 0.1 0.1 1/2 3\n",
        "7/stat": "7 (a (b) c) S 1 " + " ".join(str(number) for number in range(5, 40)),
        "7/statm": "100 50 1 1 1 1 1\n",
        "7/io": "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 8192\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = Proc(tmp_path).host("10.0.0.1", tmp_path)
    assert (host.cpu_busy_s, host.cpu_total_s) == (1.6, 10.0)
    assert (host.memory_bytes, host.memory_available_bytes) == (1_024_000, 409_600)
    assert (host.load, host.descriptors, host.descriptors_max) == (0.25, 1216, None)
    found = Proc(tmp_path).process("hw-a", "10.0.0.1", 7)
    assert found is not None
    # Fields 14, 15 and 22 of proc(5), which begin here at 4 with 1.
    assert (found.cpu_s, found.life) == (0.29, "7-22")
    assert (found.read_bytes, found.written_bytes, found.descriptors) == (4096, 8192, None)
    assert Proc(tmp_path).process("hw-b", "10.0.0.1", 8) is None


def test_this_machine_tells_of_itself() -> None:
    host = Proc().host("here", Path("/"))
    assert 0 < host.cpu_busy_s < host.cpu_total_s
    assert 0 < host.memory_available_bytes <= host.memory_bytes


def kinds() -> list[str]:
    return [one.kind for one in troubles()]


def test_nothing_is_wrong_where_nothing_is(world: World, driver: DriverTwin) -> None:
    hosts_sample(driver)
    assert kinds() == []


def test_troubles_of_all_tenants_are_listed_the_critical_first(world: World, driver: DriverTwin) -> None:
    driver.hosts = [host_usage(driver.hosts[0].host, disk_free_bytes=10 * GIB)]
    hosts_sample(driver)
    alert_of(world.cluster, "leader_missing", subject="broker-a")
    alert_of(world.cluster, "lag_seconds", subject="billing on payments")  # the tenant's own
    Replica.objects.filter(group__cluster=world.cluster).update(
        health=Health.DOWN, health_since=timezone.now(), health_message="Broker broker-a is down."
    )
    Operation.objects.create(
        tenant=world.acme,
        cluster=world.cluster,
        type=OperationType.CLUSTER_CREATE,
        state=OperationState.FAILED,
        resource=world.cluster.path,
        requested_by="alice@example.com",
    )
    found = troubles()
    assert {one.kind for one in found} == {"leader_missing", "daemon_down", "operation_failed", "host_disk"}
    assert all(one.since is not None for one in found)
    assert found[-1].severity == "warning"


def test_a_drill_that_failed_is_a_trouble_for_a_day(world: World, driver: DriverTwin) -> None:
    hosts_sample(driver)
    Operation.objects.create(
        tenant=world.acme,
        cluster=world.cluster,
        type=OperationType.GROUP_DRILL,
        state=OperationState.FAILED,
        resource=world.cluster.path,
        requested_by="alice@example.com",
    )
    assert kinds() == ["operation_failed"]
    Operation.objects.update(updated_at=timezone.now() - timedelta(hours=25))
    assert kinds() == []


def test_a_host_whose_samples_ended_is_a_trouble(driver: DriverTwin) -> None:
    hosts_sample(driver)
    earlier(provisioning_hosts.STALE_AFTER.total_seconds() + 60)
    assert kinds() == ["host_silent"]


def test_operators_read_all_of_it_by_the_api(world: World, driver: DriverTwin, api: Callable[..., Json]) -> None:
    hosts_sample(driver)
    world.alice.is_staff = True
    world.alice.save()
    client = api(world.alice)
    found = client.call("GET", "/api/v1/operator/hosts/").json()
    assert [host["daemons"] for host in found["hosts"]] == [len(found["placements"])]
    assert client.call("GET", "/api/v1/operator/hosts/taken/?window=15m").json()[0]["clusters"][0]["cpu"] is None
    assert client.call("GET", "/api/v1/operator/troubles/").json() == []
