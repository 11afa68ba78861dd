"""The whole platform as `./dev up` starts it: complete, quick the second time, and never left behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]  # it comes without types
import pytest

from deploy.local import privileges
from deploy.local.environment import Environment
from deploy.local.layout import Layout
from deploy.local.leftovers import find_leftovers
from deploy.local.ports import free_port
from deploy.local.postgres import Postgres, find_postgres
from deploy.local.stack import Stack
from deploy.local.supervisor import MARK
from deploy.local.terminal import DevError, Terminal
from tests.processes import wait_until
from tests.support.migrated import copy_state
from tests.support.platform_stack import PlatformStack, running_platform
from tests.support.servers import kept

PROGRAMS = ["beat", "deliveries", "failovers", "postgres", "redis", "web", "worker"]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformStack]:
    """In a folder whose name is too long for a socket and holds a space."""
    folder = tmp_path_factory.mktemp("long") / "a folder with spaces" / ("so-deep-that-no-socket-fits-in-it-" * 3)
    with running_platform(folder, afresh=True) as found:
        yield found


def pids(platform: PlatformStack) -> dict[str, int]:
    return {process.name: process.pid for process in platform.stack.processes() or []}


def test_everything_runs(platform: PlatformStack) -> None:
    states = {process.name: process.state for process in platform.stack.processes() or []}
    assert states == dict.fromkeys(PROGRAMS, "RUNNING")


def test_the_web_server_is_ready(platform: PlatformStack) -> None:
    assert httpx.get(f"{platform.console_url}/readyz", trust_env=False).status_code == httpx.codes.OK


def listening(server: psutil.Process) -> list[psutil.Process]:
    """The web server's processes that take requests."""
    return [
        process
        for process in server.children()
        if any(connection.status == psutil.CONN_LISTEN for connection in process.net_connections("tcp"))
    ]


def test_a_web_process_that_crashes_is_replaced_while_the_other_answers(platform: PlatformStack) -> None:
    server = psutil.Process(pids(platform)["web"])
    wait_until(lambda: len(listening(server)) == 2, timeout_s=60, what="two web processes")
    first, second = listening(server)
    first.send_signal(signal.SIGSEGV)
    first.wait(60)
    assert httpx.get(f"{platform.console_url}/readyz", trust_env=False).status_code == httpx.codes.OK
    wait_until(lambda: len(listening(server)) == 2, timeout_s=60, what="another web process")
    assert second in listening(server)


def test_mail_lies_in_a_private_folder_and_in_no_log(platform: PlatformStack) -> None:
    """It holds links that reset passwords."""
    printed = platform.stack.manage("sendtestemail", "reader@example.com")
    (mail,) = platform.stack.layout.mail.iterdir()
    assert "reader@example.com" in mail.read_text()
    assert "reader@example.com" not in printed
    assert stat.S_IMODE(mail.parent.stat().st_mode) == 0o700


def test_a_second_up_changes_nothing(platform: PlatformStack, monkeypatch: pytest.MonkeyPatch) -> None:
    # Someone may be editing while the tests run; that is the next test's business.
    known = platform.stack.layout.fingerprint_file.read_text().strip()
    monkeypatch.setattr("deploy.local.stack.code_fingerprint", lambda root: known)
    before = pids(platform)
    platform.stack.up()
    assert pids(platform) == before


def test_changed_code_restarts_what_serves_it_and_not_the_servers(platform: PlatformStack) -> None:
    before = pids(platform)
    platform.stack.layout.fingerprint_file.write_text("of older code")
    platform.stack.up()
    after = pids(platform)
    assert {name for name in PROGRAMS if before[name] != after[name]} == {
        "web",
        "worker",
        "failovers",
        "deliveries",
        "beat",
    }


def test_no_one_else_can_read_what_is_kept(platform: PlatformStack) -> None:
    open_paths = [
        path
        for path in [platform.state_dir, *platform.state_dir.iterdir(), *(platform.state_dir / "supervisor").iterdir()]
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077 and path.name != "dev.lock"
    ]
    assert open_paths == []


def test_another_up_at_the_same_time_is_refused(platform: PlatformStack) -> None:
    with platform.stack._exclusively(), pytest.raises(DevError, match=rf"Another ./dev \(pid {os.getpid()}\)"):
        platform.stack.up()


def test_another_database_needs_a_down_first(platform: PlatformStack) -> None:
    variables = {"DATABASE_URL": "postgresql://somebody@127.0.0.1/else"}
    other = Stack(platform.stack.layout, Environment.current(), Terminal(quiet=True), variables=variables)
    with pytest.raises(DevError, match="uses another database"):
        other.up()


def test_a_failing_management_command_says_why(platform: PlatformStack) -> None:
    with pytest.raises(DevError, match="There is no tenant 'nobody'"):
        platform.stack.manage("issue_token", "nobody")


def test_down_finds_everything_when_the_supervisor_was_killed(platform: PlatformStack) -> None:
    pid_file = platform.stack.layout.supervisor_pid
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    assert platform.stack.down()
    assert find_leftovers(platform.state_dir) == []
    platform.stack.up()  # stale files are in no one's way
    assert sorted(pids(platform)) == PROGRAMS


def test_down_finds_what_a_process_that_it_stops_has_just_started(tmp_path: Path) -> None:
    """Which is a worker's own worker, when the supervisor that would have stopped both was killed."""
    layout = Layout(tmp_path / "state")
    layout.state.mkdir()
    program = (
        "import os, signal, subprocess\n"
        "def end(*_): subprocess.Popen(['sleep', '60']); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "signal.pause()\n"
    )
    environment = {**os.environ, MARK: str(layout.state)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert Stack(layout, Environment.current(), Terminal(quiet=True)).down()
        assert find_leftovers(layout.state) == []


@pytest.mark.parametrize("moment", ["dev.lock", "supervisor/supervisord.pid", "logs/redis.log", "logs/web.log"])
def test_an_interrupted_up_leaves_nothing_that_down_does_not_find(tmp_path: Path, moment: str) -> None:
    layout = Layout(tmp_path / "state")
    if moment == "logs/web.log":
        copy_state(layout, {})  # all migrations before it can take longer than is waited here
    program = (
        # Whoever runs the tests in the background has us, and so this process, ignore it.
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path\n"
        "from deploy.local.environment import Environment\n"
        "from deploy.local.layout import Layout\n"
        "from deploy.local.stack import Stack\n"
        "from deploy.local.terminal import Terminal\n"
        f"stack = Stack(Layout(Path({str(layout.state)!r})), Environment.current(), Terminal(), False, True, {{}})\n"
        "stack.up()\n"
    )
    up = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (layout.state / moment).exists():
        assert time.monotonic() < deadline
        assert up.poll() is None
        time.sleep(0.01)
    os.killpg(up.pid, signal.SIGINT)  # as a terminal's Ctrl-C: to the whole process group
    assert up.wait() != 0, "it came to its end"
    Stack(layout, Environment.current(), Terminal(quiet=True)).down()
    assert find_leftovers(layout.state) == []


def test_down_without_an_up_is_harmless(tmp_path: Path) -> None:
    assert not Stack(Layout(tmp_path / "state"), Environment.current(), Terminal(quiet=True)).down()


def test_reset_keeps_downloads_and_nothing_else(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for path in (tmp_path / "tools" / "chromium", tmp_path / "postgres" / "PG_VERSION", tmp_path / "secrets.json"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    Stack(layout, Environment.current(), Terminal(quiet=True)).reset()
    assert [path.name for path in tmp_path.iterdir()] == ["tools"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has to become another user for PostgreSQL")
@pytest.mark.parametrize("way", [privileges.USER_NAMESPACE, privileges.SET_USER], ids=["user namespace", "other user"])
def test_root_runs_postgres_in_either_way(way: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not privileges._works(way):
        pytest.skip(f"this machine forbids {way[0]}")
    monkeypatch.setattr(privileges, "_works", lambda prefix: prefix == way)
    # Not tmp_path: pytest's folders are closed to other users.
    folder = Path(tempfile.mkdtemp(prefix="highwater-test-"))
    folder.chmod(0o755)
    try:
        postgres = Postgres(
            find_postgres(Environment.current()), folder / "data", free_port(), "admin", "app", throw_away=True
        )
        if way == privileges.SET_USER and not privileges._reachable(postgres.binaries.folder):
            with pytest.raises(DevError, match="refuses to run as root"):
                postgres.initialise()
            return
        postgres.initialise()
        with kept(postgres.command(), "SIGINT", folder / "log"):
            postgres.wait_ready()
            postgres.ensure_database()
        assert re.search("database system is shut down", (folder / "log").read_text())
    finally:
        shutil.rmtree(folder)
