"""The local driver against a real supervisord, with small programs in place of the daemons."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock, patch

import pytest

from controlplane.provisioning import isolation
from controlplane.provisioning.drivers.base import DaemonProcess, ProcessState
from controlplane.provisioning.drivers.local import LocalDriver
from controlplane.provisioning.errors import DriverError
from tests.controlplane.real_supervisor import RealSupervisor

SLEEPS = "import time; print('ready', flush=True); time.sleep(600)"
ENDS_SLOWLY = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit()));"
    " print('ready', flush=True); time.sleep(600)"
)
ENDS = "import sys; sys.exit('the configuration is wrong: 100 %')"


@pytest.fixture
def process(supervisor: RealSupervisor) -> Iterator[Callable[..., DaemonProcess]]:
    made: list[DaemonProcess] = []

    def make(program: str = SLEEPS, configuration: str = "", **environment: str) -> DaemonProcess:
        name = made[0].name if made else f"hw-{uuid.uuid4().hex[:12]}"
        cluster_id = made[0].cluster_id if made else uuid.uuid4()
        made.append(DaemonProcess(name, cluster_id, [sys.executable, "-c", program], configuration, environment))
        supervisor.driver.files_write(cluster_id, {"file": "text"})
        return made[-1]

    yield make
    for one in made:
        supervisor.driver.process_remove(one.name)


def state_of(driver: LocalDriver, process: DaemonProcess) -> ProcessState:
    return driver.process_statuses([process.name])[process.name].state


def wait(driver: LocalDriver, process: DaemonProcess, *states: ProcessState) -> None:
    deadline = time.monotonic() + 60
    while state_of(driver, process) not in states:
        assert time.monotonic() < deadline, driver.process_statuses([process.name])
        time.sleep(0.05)


def pid_of(driver: LocalDriver, process: DaemonProcess) -> int | None:
    return driver.process_statuses([process.name])[process.name].pid


def test_a_started_process_runs_and_its_log_is_read(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    one = process()
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    assert supervisor.driver.log_tail(one.cluster_id, one.name, 5) == ["ready"]


def test_what_a_running_process_uses_is_read(supervisor: RealSupervisor, process: Callable[..., DaemonProcess]) -> None:
    one = process()
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    (usage,) = [usage for usage in supervisor.driver.process_usages() if usage.name == one.name]
    (host,) = supervisor.driver.host_usages()
    assert usage.life.startswith(f"{pid_of(supervisor.driver, one)}-")
    assert 0 < usage.memory_bytes < host.memory_bytes
    assert usage.host == host.host
    assert usage.descriptors is not None
    supervisor.driver.process_remove(one.name)
    assert one.name not in {usage.name for usage in supervisor.driver.process_usages()}


def test_starting_twice_starts_one_process(supervisor: RealSupervisor, process: Callable[..., DaemonProcess]) -> None:
    one = process()
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    pid = pid_of(supervisor.driver, one)
    supervisor.driver.process_start(one)
    assert pid_of(supervisor.driver, one) == pid


def test_a_changed_configuration_restarts_the_process(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    one = process(configuration="listenPort=1")
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    pid = pid_of(supervisor.driver, one)
    supervisor.driver.process_start(process(configuration="listenPort=2"))
    wait(supervisor.driver, one, ProcessState.RUNNING)
    assert pid_of(supervisor.driver, one) != pid


def test_a_killed_process_is_restarted(supervisor: RealSupervisor, process: Callable[..., DaemonProcess]) -> None:
    one = process()
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    pid = pid_of(supervisor.driver, one)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while pid_of(supervisor.driver, one) in (pid, None):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_that_ends_at_once_is_reported_with_its_last_words(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    one = process(ENDS)
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.BACKOFF)
    assert "the configuration is wrong: 100 %" in supervisor.driver.log_tail(one.cluster_id, one.name, 5)


def test_a_removed_process_is_stopped_and_forgotten(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    one = process()
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    supervisor.driver.process_remove(one.name)
    assert state_of(supervisor.driver, one) == ProcessState.MISSING
    assert not list((supervisor.state_dir / "supervisor" / "conf.d").glob(f"{one.name}*"))
    supervisor.driver.process_remove(one.name)  # harmless


def test_a_process_that_is_still_ending_is_waited_for(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    one = process(ENDS_SLOWLY)
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    supervisor.rpc.stop_soon(one.name)  # from now on it is "not running", and supervisord waits for nothing
    supervisor.driver.process_remove(one.name)
    assert state_of(supervisor.driver, one) == ProcessState.MISSING


def test_a_process_that_does_not_end_is_an_error_after_a_bounded_time(tmp_path: Path) -> None:
    driver = LocalDriver(tmp_path, "/nowhere/supervisor.sock")
    moments = iter(range(1000))
    with (
        patch.object(driver, "_rpc", Mock(remove_group=Mock(return_value=False))),
        patch("controlplane.provisioning.drivers.local.time", Mock(monotonic=lambda: next(moments))),
        pytest.raises(DriverError, match="still runs after 17 s"),
    ):
        driver.process_remove("hw-endless")


def test_the_inventory_names_daemons_and_directories_of_clusters_alone(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    daemon = process()
    supervisor.driver.process_start(daemon)
    supervisor.driver.files_write(daemon.cluster_id, {"x/y": ""})
    (supervisor.state_dir / "clusters" / "lost+found").mkdir(parents=True, exist_ok=True)
    found = supervisor.driver.inventory()
    assert (daemon.name in found.processes) is daemon.name.startswith("hw-")
    assert daemon.cluster_id in found.clusters
    assert all(isinstance(one, uuid.UUID) for one in found.clusters)


def test_percent_signs_and_blanks_reach_the_process_unchanged(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    one = process("import os, time; print(os.environ['VALUE'], flush=True); time.sleep(600)", VALUE="50 % of %(x)s")
    supervisor.driver.process_start(one)
    wait(supervisor.driver, one, ProcessState.RUNNING)
    assert supervisor.driver.log_tail(one.cluster_id, one.name, 5) == ["50 % of %(x)s"]


def test_files_are_private_and_go_with_the_cluster(supervisor: RealSupervisor) -> None:
    cluster_id = uuid.uuid4()
    supervisor.driver.files_write(cluster_id, {"broker-a-0/plain_acl.yml": "secret"})
    path = supervisor.driver.cluster_dir(cluster_id) / "broker-a-0" / "plain_acl.yml"
    assert path.read_text() == "secret"
    assert path.stat().st_mode & 0o777 == 0o600
    supervisor.driver.files_remove(cluster_id)
    supervisor.driver.files_remove(cluster_id)
    assert not supervisor.driver.cluster_dir(cluster_id).exists()


def test_a_program_of_a_cluster_whose_folder_is_gone_stops_no_other_from_starting(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess]
) -> None:
    orphan = DaemonProcess("hw-orphan", uuid.uuid4(), [sys.executable, "-c", SLEEPS], "")
    supervisor.driver.process_start(orphan)  # its directory was never there, as after a race with a deletion
    try:
        one = process()
        supervisor.driver.process_start(one)
        wait(supervisor.driver, one, ProcessState.RUNNING)
    finally:
        supervisor.driver.process_remove(orphan.name)


def test_with_its_directory_a_cluster_loses_the_programs_and_logs_that_are_left(supervisor: RealSupervisor) -> None:
    driver = supervisor.driver
    one, other = (
        DaemonProcess(f"hw-left-{number}", uuid.uuid4(), [sys.executable, "-c", SLEEPS], "") for number in range(2)
    )
    try:
        for program in (one, other):
            driver.files_write(program.cluster_id, {"file": "text"})
            driver.process_start(program)
            wait(driver, program, ProcessState.RUNNING)
        driver.files_remove(one.cluster_id)
        assert state_of(driver, one) == ProcessState.MISSING
        assert driver.log_tail(one.cluster_id, one.name, 5) == []
        assert state_of(driver, other) == ProcessState.RUNNING
    finally:
        for program in (one, other):
            driver.process_remove(program.name)


def test_a_port_that_is_listened_on_is_not_free(supervisor: RealSupervisor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not supervisor.driver.port_is_free("127.0.0.1", port)
    assert supervisor.driver.port_is_free("127.0.0.1", port)


def test_a_name_cannot_lead_out_of_the_directory(supervisor: RealSupervisor) -> None:
    with pytest.raises(DriverError):
        supervisor.driver.process_remove("../../etc/passwd")


@pytest.mark.parametrize("text", ["line\nbreak", "a ;comment", "a #comment"])
def test_what_would_break_the_file_for_all_clusters_is_refused(
    supervisor: RealSupervisor, process: Callable[..., DaemonProcess], text: str
) -> None:
    with pytest.raises(DriverError):
        supervisor.driver.process_start(process(text))
    assert supervisor.driver.process_statuses([]) == {}


def test_a_supervisor_that_is_away_is_a_driver_error(supervisor: RealSupervisor) -> None:
    driver = LocalDriver(supervisor.state_dir, "/nowhere/supervisor.sock")
    with pytest.raises(DriverError):
        driver.process_statuses(["x"])


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as other users")


@ROOT_ONLY
def test_a_clusters_daemon_runs_as_a_user_of_its_own_that_reads_no_others_files(supervisor: RealSupervisor) -> None:
    driver = supervisor.driver
    for folder in (supervisor.state_dir, *supervisor.state_dir.parents[:-1]):
        folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    clusters = [uuid.uuid4(), uuid.uuid4()]
    for cluster_id in clusters:
        driver.files_write(cluster_id, {"broker/plain_acl.yml": "secret"})
    paths = [driver.cluster_dir(cluster_id) / "broker" / "plain_acl.yml" for cluster_id in clusters]
    program = f"id -u; cat {paths[0]}; echo; cat {paths[1]} || echo refused; exec sleep 600"
    one = DaemonProcess("hw-own-user", clusters[0], ["sh", "-c", program], "", user=612_345)
    driver.process_start(one)
    try:
        wait(driver, one, ProcessState.RUNNING)
        lines = driver.log_tail(one.cluster_id, one.name, 5)
        assert lines[:2] == ["612345", "secret"]
        assert lines[-1] == "refused"
        driver.files_write(clusters[0], {"broker/tls.key": "key"})
        assert (paths[0].parent / "tls.key").stat().st_uid == 612_345
        # Whoever owned these could have supervisord, which is root, write anywhere.
        folder = driver.cluster_dir(clusters[0])
        assert [path.stat().st_uid for path in (folder, supervisor.state_dir / "supervisor" / "logs")] == [0, 0]
    finally:
        driver.process_remove(one.name)


@ROOT_ONLY
def test_what_is_written_while_a_folder_changes_hands_belongs_to_its_new_owner(supervisor: RealSupervisor) -> None:
    """The health sampling writes a new replica's files at the moment in which an operation starts it."""
    driver, cluster_id = supervisor.driver, uuid.uuid4()
    driver.files_write(cluster_id, {"broker/a": "a", "broker/b": "b"})
    one = DaemonProcess("hw-changing-hands", cluster_id, ["sleep", "600"], "", user=612_345)
    writer = Thread(target=driver.files_write, args=(cluster_id, {"broker/a": "new", "broker/c": "c"}))
    chown = os.chown

    def chown_while_another_writes(*arguments: Any, **options: Any) -> None:
        chown(*arguments, **options)
        if writer.ident is None:
            writer.start()
            writer.join(0.5)

    try:
        with patch("os.chown", chown_while_another_writes):
            driver.process_start(one)
        writer.join(30)
        broker = driver.cluster_dir(cluster_id) / "broker"
        assert {path.name: (path.read_text(), path.stat().st_uid) for path in broker.iterdir()} == {
            "a": ("new", 612_345),
            "b": ("b", 612_345),
            "c": ("c", 612_345),
        }
    finally:
        driver.process_remove(one.name)


def test_why_all_clusters_share_a_user_is_said(tmp_path: Path, settings: Any) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with patch("os.geteuid", return_value=1000):
        assert "does not run as root" in isolation.shared_user_reason()
    with patch("os.geteuid", return_value=0), patch.object(isolation, "_TOOL", "sh"):
        assert "Other users may not enter" in isolation.shared_user_reason([closed])
        assert isolation.shared_user_reason([Path("/usr/bin")]) == ""
        settings.HIGHWATER_DAEMON_USERS = 0
        assert "HIGHWATER_DAEMON_USERS" in isolation.shared_user_reason([])
