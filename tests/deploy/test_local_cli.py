"""What `./dev status`, `logs`, `manage` and `reset` say and do, without a platform that runs."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from deploy.local.cli import main
from deploy.local.layout import Layout
from deploy.local.names import ClusterNames
from deploy.local.stack import Stack
from deploy.local.supervisor import ProcessInfo
from deploy.local.terminal import Terminal

DEMO, OTHER = "0f9d5b52-6f0e-4a3e-9d0e-8f5f4b1f0001", "aabbccdd-6f0e-4a3e-9d0e-8f5f4b1f0002"


def add_cluster(state: Path, cluster_id: str, name: str) -> str:
    """Returns the name of its first broker's process."""
    folder = state / "clusters" / cluster_id
    (folder / "broker-a-0").mkdir(parents=True)
    (folder / "broker-a-0" / "broker.conf").write_text(f"brokerName = broker-a\nbrokerClusterName = {name}\n")
    process = f"hw-{cluster_id.replace('-', '')[:12]}-broker-a-0"
    logs = Layout(state).daemon_logs
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{cluster_id}.{process}.log").write_text("hello\n")
    return process


def test_processes_carry_their_clusters_name(tmp_path: Path) -> None:
    process = add_cluster(tmp_path, DEMO, "demo")
    names = ClusterNames.of(Layout(tmp_path))
    assert names.full(process) == "demo/broker-a-0"
    assert names.full(process.replace("broker-a-0", "namesrv-0")) == "demo/namesrv-0"


def test_clusters_of_one_name_are_distinguished(tmp_path: Path) -> None:
    processes = [add_cluster(tmp_path, cluster_id, "demo") for cluster_id in (DEMO, OTHER)]
    names = ClusterNames.of(Layout(tmp_path))
    assert [names.full(process) for process in processes] == ["demo~0f9d/broker-a-0", "demo~aabb/broker-a-0"]


@pytest.mark.parametrize("name", ["web", "hw-000000000000-broker-a-0", "jobs"])
def test_other_processes_keep_their_names(tmp_path: Path, name: str) -> None:
    add_cluster(tmp_path, DEMO, "demo")
    assert ClusterNames.of(Layout(tmp_path)).full(name) == name


@pytest.mark.parametrize("spelling", ["demo/broker-a-0", "hw-0f9d5b526f0e-broker-a-0"])
def test_a_clusters_log_is_found_by_either_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], spelling: str
) -> None:
    add_cluster(tmp_path, DEMO, "demo")
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    assert main(["logs", spelling]) == 0
    assert capfd.readouterr().out == "hello\n"


def process(name: str, state: str = "RUNNING") -> ProcessInfo:
    return ProcessInfo(name, name, state, 1, "pid 1, uptime 0:00:01", None)


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ({"web": "RUNNING", "spark": "RUNNING", "demo": "STARTING"}, 0),
        ({"web": "RUNNING", "spark": "FATAL"}, 1),
        ({"web": "EXITED"}, 1),
    ],
)
def test_status_fails_for_what_should_run_and_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: dict[str, str], status: int
) -> None:
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(Stack, "console_url", "http://127.0.0.1:8000")
    monkeypatch.setattr(Stack, "processes", lambda self: [process(name, state) for name, state in states.items()])
    assert main(["status"]) == status


def test_status_says_how_far_the_installation_of_spark_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(Stack, "console_url", "http://127.0.0.1:8000")
    monkeypatch.setattr(Stack, "processes", lambda self: [process("web")])
    main(["status"])
    assert "Spark: not installed yet. ./dev up installs it." in capsys.readouterr().out


def test_url_prints_the_address_alone_as_scripts_want_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    (tmp_path / "ports.json").write_text('{"web": 8017}')
    monkeypatch.setattr(Stack, "processes", lambda self: [process("web")])
    assert main(["url"]) == 0
    assert capsys.readouterr().out == "http://127.0.0.1:8017\n"


@pytest.mark.parametrize("command", ["url", "snippets"])
def test_what_needs_the_platform_says_what_to_do_without_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    assert main([command]) == 1
    assert capsys.readouterr().err == "\nThe platform isn't running.\n  Way out: ./dev up\n"


def test_manage_without_a_platform_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    assert main(["manage", "check", "--deploy"]) == 1
    assert capsys.readouterr().err == "\nThe platform isn't running.\n  Way out: ./dev up\n"


@pytest.mark.parametrize(
    ("answer", "removed"), [("y\n", True), ("yes", True), ("n\n", False), ("", False), ("maybe\n", False)]
)
def test_reset_takes_its_answer_from_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, removed: bool
) -> None:
    (tmp_path / "spark").mkdir()
    monkeypatch.setenv("HIGHWATER_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert main(["reset"]) == (0 if removed else 1)
    assert (tmp_path / "spark").exists() is not removed


def test_a_terminal_without_input_means_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert not Terminal().confirm("Really?")
