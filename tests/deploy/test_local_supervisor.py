"""supervisord as we configure it, the real one: values arrive as they are, crashes are seen, leftovers are found."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervisor.datatypes import dict_of_key_value_pairs

from deploy.local.environment import Environment
from deploy.local.layout import Layout
from deploy.local.leftovers import find_leftovers, stop_leftovers
from deploy.local.supervisor import Program, Supervisor, alive, render_config, write_config
from deploy.local.terminal import DevError

AWKWARD = "postgresql://a b%20c=d,e:f@h/ü?$HOME=100%s"


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    """A state directory whose name holds what breaks naive configuration files; all that runs in it ends with the test."""
    found = Layout(tmp_path / "with space & 100%")
    found.create()
    yield found
    stop_leftovers(find_leftovers(found.state))
    found.remove_socket()


def launch(layout: Layout, *programs: Program) -> Supervisor:
    write_config(layout, programs)
    return Supervisor.launch(layout, Environment.current())


def python(code: str, **options: object) -> Program:
    return Program("probe", [sys.executable, "-c", code], priority=1, **options)  # type: ignore[arg-type]  # by name


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 20
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline, f"{path} was never written"
        time.sleep(0.02)
    return path.read_text()


def test_commands_variables_and_paths_arrive_as_they_are(layout: Layout) -> None:
    target = layout.state / "seen.json"
    code = f"import json, os, time; json.dump(dict(os.environ), open({str(target)!r}, 'w')); time.sleep(100)"
    supervisor = launch(layout, python(code, environment={"AWKWARD": AWKWARD}, directory=layout.state))
    supervisor.start("probe")
    assert json.loads(wait_for(target))["AWKWARD"] == AWKWARD


def test_daemons_do_not_inherit_passwords(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "of the control plane")
    target = layout.state / "seen.json"
    code = f"import json, os, time; json.dump(dict(os.environ), open({str(target)!r}, 'w')); time.sleep(100)"
    launch(layout, python(code)).start("probe")
    seen = json.loads(wait_for(target))
    assert not {"SECRET_KEY", "DATABASE_URL", "REDIS_URL"} & set(seen)


def test_a_program_that_ends_at_once_is_reported_with_its_last_words(layout: Layout) -> None:
    supervisor = launch(layout, python("raise SystemExit('the disk is on fire')"))
    supervisor.start("probe")
    with pytest.raises(DevError, match=r"probe does not stay up(?s:.*)the disk is on fire(?s:.*)\./dev logs probe"):
        supervisor.settle(["probe"])


def test_starting_what_runs_is_harmless(layout: Layout) -> None:
    supervisor = launch(layout, python("import time; time.sleep(100)"))
    supervisor.start("probe")
    supervisor.settle(["probe"])
    pid = supervisor.processes()[0].pid
    supervisor.start("probe")
    assert supervisor.processes()[0].pid == pid


def test_a_changed_program_is_replaced_and_others_are_left_alone(layout: Layout) -> None:
    other = Program("other", ["sleep", "100"], priority=2)
    supervisor = launch(layout, Program("probe", ["sleep", "100"], priority=1), other)
    for name in ("probe", "other"):
        supervisor.start(name)
    pids = {process.name: process.pid for process in supervisor.processes()}
    changed = [Program("probe", ["sleep", "101"], priority=1), other]
    write_config(layout, changed)
    assert supervisor.adopt(changed) == ["probe"]
    supervisor.start("probe")
    now = {process.name: process.pid for process in supervisor.processes()}
    assert now["other"] == pids["other"]
    assert now["probe"] != pids["probe"]


def test_the_provisioners_programs_are_read_too_and_start_by_themselves(layout: Layout) -> None:
    (layout.supervisor_programs / "broker.conf").write_text("[program:broker]\ncommand=sleep 100\nautostart=true\n")
    supervisor = launch(layout)
    assert [process.name for process in supervisor.processes()] == ["broker"]
    supervisor.settle(["broker"])


def test_shutdown_leaves_nothing(layout: Layout) -> None:
    supervisor = launch(layout, Program("probe", ["sleep", "100"], priority=1))
    supervisor.start("probe")
    supervisor.shutdown()
    assert find_leftovers(layout.state) == []
    assert Supervisor.connect(layout) is None


def test_what_a_killed_supervisor_leaves_is_found_and_stopped(layout: Layout) -> None:
    supervisor = launch(layout, Program("probe", ["sleep", "100"], priority=1))
    supervisor.start("probe")
    child = supervisor.processes()[0].pid
    os.kill(supervisor.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while Supervisor.connect(layout) is not None:
        assert time.monotonic() < deadline
    leftovers = find_leftovers(layout.state)
    assert [leftover.pid for leftover in leftovers] == [child]
    stop_leftovers(leftovers)
    assert not alive(child)


def test_a_stale_socket_counts_as_not_running(layout: Layout) -> None:
    launch(layout).shutdown()
    layout.create_socket_folder()
    layout.supervisor_socket.touch()
    assert Supervisor.connect(layout) is None


def test_a_value_that_supervisord_cannot_carry_is_refused() -> None:
    layout = Layout(Path("/srv/state"))
    with pytest.raises(DevError, match="DATABASE_URL contains a quotation mark"):
        render_config(layout, [Program("web", ["true"], priority=1, environment={"DATABASE_URL": "a\"b'c"})])


def test_a_json_value_reaches_the_program_whole() -> None:
    given = '{"spark.driver.memory": "512m", "spark.jars": "a,b"}'
    program = Program("jobs", ["true"], priority=1, environment={"HIGHWATER_SPARK_CONF": given, "OTHER": "a b"})
    text = render_config(Layout(Path("/srv/state")), [program])
    (line,) = [line for line in text.splitlines() if line.startswith("environment=")]
    carried = dict_of_key_value_pairs(line.removeprefix("environment="))
    assert carried == {"HIGHWATER_SPARK_CONF": given, "OTHER": "a b"}


def test_a_path_that_supervisord_cannot_carry_is_refused() -> None:
    with pytest.raises(DevError, match="contains a character"):
        render_config(Layout(Path("/srv/a;b")), [])
