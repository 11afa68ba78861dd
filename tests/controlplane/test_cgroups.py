"""The limits of the machine for daemons: what is written where, and that the kernel enforces it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from controlplane.provisioning import cgroups
from controlplane.provisioning.cgroups import (
    Hierarchies,
    IoLimit,
    disk_of,
    hierarchies,
    io_limit,
    unlimited_reason,
    writes,
)
from controlplane.provisioning.drivers.base import DaemonProcess, ProcessState
from tests.controlplane.real_supervisor import RealSupervisor
from tests.controlplane.test_local_driver import wait

OLD = "cgroup /cg/memory cgroup rw,relatime,memory 0 0\ncgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\nproc /proc proc rw 0 0\n"
GIB = 2**30


def unified(folder: Path, controllers: str = "cpuset cpu io memory pids") -> Path:
    (folder / "cgroup.controllers").write_text(controllers, "utf-8")
    return folder


def test_one_hierarchy_for_each_controller_is_found_by_its_mount_options() -> None:
    assert hierarchies(OLD).by_controller == {"memory": Path("/cg/memory"), "cpu": Path("/cg/cpu")}


def test_the_unified_hierarchy_is_taken_where_it_has_the_controllers(tmp_path: Path) -> None:
    mounts = f"{OLD}cgroup2 {tmp_path} cgroup2 rw 0 0\n"
    assert hierarchies(mounts).unified is None
    unified(tmp_path, "")
    assert hierarchies(mounts).unified is None
    unified(tmp_path)
    assert hierarchies(mounts) == Hierarchies(tmp_path, {})


def test_a_daemon_joins_last_when_all_limits_stand(tmp_path: Path) -> None:
    files = writes(Hierarchies(unified(tmp_path), {}), "c", "broker", GIB, cores=2)
    top = tmp_path / "highwater"
    assert files[:3] == [
        (folder / "cgroup.subtree_control", "+cpu +io +memory +pids") for folder in (tmp_path, top, top / "c")
    ]
    assert (top / "c" / "broker" / "memory.max", str(GIB)) in files
    assert files[-1] == (top / "c" / "broker" / "cgroup.procs", "0")


def test_a_daemon_joins_a_group_in_each_older_hierarchy() -> None:
    files = dict(writes(hierarchies(OLD), "c", "broker", GIB, cores=2))
    assert files[Path("/cg/memory/highwater/c/broker/memory.limit_in_bytes")] == str(GIB)
    assert files[Path("/cg/cpu/highwater/cpu.shares")] == "8192"
    assert files[Path("/cg/memory/highwater/c/broker/cgroup.procs")] == "0"
    assert files[Path("/cg/cpu/highwater/c/broker/cgroup.procs")] == "0"


def test_what_a_daemon_reads_and_writes_is_bounded_in_both_interfaces(tmp_path: Path) -> None:
    io = IoLimit("254:0", 1000)
    older = dict(writes(Hierarchies(None, {"blkio": Path("/cg/blkio")}), "c", "broker", GIB, cores=2, io=io))
    folder = Path("/cg/blkio/highwater/c/broker")
    assert older[folder / "blkio.throttle.read_bps_device"] == older[folder / "blkio.throttle.write_bps_device"]
    assert older[folder / "blkio.throttle.write_bps_device"] == "254:0 1000"
    newer = dict(writes(Hierarchies(unified(tmp_path), {}), "c", "broker", GIB, cores=2, io=io))
    assert newer[tmp_path / "highwater" / "c" / "broker" / "io.max"] == "254:0 rbps=1000 wbps=1000"


def test_the_limit_of_a_part_of_a_disk_is_the_disks(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    part = tmp_path / "vda" / "vda1"
    part.mkdir(parents=True)
    (tmp_path / "vda" / "dev").write_text("254:0\n", "utf-8")
    assert disk_of(tmp_path, tmp_path) is None
    link = tmp_path / f"{os.major(number)}:{os.minor(number)}"
    link.symlink_to(part)
    assert disk_of(tmp_path, tmp_path) == link.name
    (part / "partition").touch()
    assert disk_of(tmp_path, tmp_path) == "254:0"


def test_why_reads_and_writes_have_no_bound_is_said(settings: Any) -> None:
    without = Hierarchies(None, {"memory": Path("/cg/memory")})
    assert "No control groups for disks" in str(io_limit(without))
    with patch.object(cgroups, "disk_of", return_value=None):
        assert "is on no disk" in str(io_limit(Hierarchies(None, {"blkio": Path("/cg/blkio")})))
    settings.HIGHWATER_DAEMON_IO_MIB_PER_S = 0
    assert "HIGHWATER_DAEMON_IO_MIB_PER_S" in str(io_limit(without))


def test_why_daemons_have_no_limits_is_said(tmp_path: Path, settings: Any) -> None:
    with patch("os.geteuid", return_value=1000):
        assert "does not run as root" in unlimited_reason()
    with patch("os.geteuid", return_value=0):
        assert "mounted" in unlimited_reason(Hierarchies(None, {}))
        assert "read-only" in unlimited_reason(Hierarchies(tmp_path / "absent", {}))
        settings.HIGHWATER_DAEMON_MEMORY_MIB = 0
        assert "HIGHWATER_DAEMON_MEMORY_MIB" in unlimited_reason()


def test_without_control_groups_a_daemon_runs_as_it_is() -> None:
    with patch.object(cgroups, "unlimited_reason", return_value="no"):
        assert cgroups.limited(uuid.uuid4(), "broker", ["sleep", "1"]) == ["sleep", "1"]


@pytest.mark.skipif(bool(unlimited_reason()), reason=f"this machine makes no control groups here: {unlimited_reason()}")
def test_a_daemon_that_takes_more_memory_than_it_may_is_ended_and_started_again(
    supervisor: RealSupervisor, settings: Any
) -> None:
    settings.HIGHWATER_DAEMON_MEMORY_MIB = 64
    driver, cluster_id = supervisor.driver, uuid.uuid4()
    program = (
        "import pathlib, time\n"
        "seen = pathlib.Path('seen')\n"
        "if not seen.exists():\n"
        "    seen.touch()\n"
        "    taken = bytearray(200 * 1024 * 1024)\n"
        "    print('took it', flush=True)\n"
        "print(pathlib.Path('/proc/self/cgroup').read_text(), flush=True)\n"
        "time.sleep(600)"
    )
    name = f"hw-{uuid.uuid4().hex[:12]}"
    driver.files_write(cluster_id, {"program.py": program})
    one = DaemonProcess(name, cluster_id, [sys.executable, "program.py"], "")
    driver.process_start(one)
    try:
        wait(driver, one, ProcessState.RUNNING)
        lines = driver.log_tail(cluster_id, name, 40)
        assert any(line.endswith(f"/highwater/{cluster_id}/{name}") for line in lines), lines
        assert "took it" not in lines
    finally:
        driver.process_remove(name)
    assert not [path for root in hierarchies().roots for path in (root / "highwater").glob(f"{cluster_id}*")]


@pytest.mark.skipif(
    bool(unlimited_reason()) or not isinstance(io_limit(hierarchies()), IoLimit),
    reason=f"this machine bounds no daemon's disk here: {unlimited_reason() or io_limit(hierarchies())}",
)
def test_a_daemon_that_syncs_what_it_writes_writes_no_faster_than_it_may(settings: Any, tmp_path: Path) -> None:
    if disk_of(tmp_path) is None:
        pytest.skip(f"{tmp_path} is on no disk of its own, as in memory")
    settings.HIGHWATER_DAEMON_IO_MIB_PER_S = 1
    settings.HIGHWATER_STATE_DIR = tmp_path
    cluster_id, name = uuid.uuid4(), f"hw-{uuid.uuid4().hex[:12]}"
    program = "import os; f = os.open('log', os.O_CREAT | os.O_WRONLY); os.write(f, bytes(2 << 20)); os.fdatasync(f)"
    began_s = time.monotonic()
    try:
        subprocess.run(cgroups.limited(cluster_id, name, [sys.executable, "-c", program]), cwd=tmp_path, check=True)
    finally:
        cgroups.groups_remove(name)
    assert time.monotonic() - began_s > 1.0
