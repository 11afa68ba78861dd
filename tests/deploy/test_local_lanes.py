"""`./dev test` without arguments: pytest runs of groups of rooms, three at a time, one outcome."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from deploy.local.lanes import GROUPS, run_lanes
from deploy.local.layout import REPOSITORY
from deploy.local.terminal import Terminal


def _repository(root: Path, **rooms: str) -> Path:
    for room, test in rooms.items():
        folder = root / "tests" / room
        folder.mkdir(parents=True)
        (folder / f"test_{room}.py").write_text(test)
    (root / "pytest.ini").write_text("[pytest]\ntestpaths = tests\naddopts = -ra\n")
    return root


def _run(root: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    status = run_lanes(Path(sys.executable), root, root / "logs", Terminal())
    return status, capfd.readouterr().out


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # these small runs start in a tenth of the time
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # options of plugins that are not loaded


PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert 1 == 2\n"


def test_all_is_well_when_all_groups_pass(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, output = _run(_repository(tmp_path, brokerd=PASSES, console=PASSES), capfd)
    assert (status, output.count("1 passed")) == (0, 4), "each group's own report, and once more at the end"


@pytest.mark.parametrize("failing", ["brokerd", "console"])
def test_a_failure_in_any_group_is_the_outcome_and_stands_at_the_end(
    failing: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rooms = {"brokerd": PASSES, "console": PASSES} | {failing: FAILS}
    status, output = _run(_repository(tmp_path, **rooms), capfd)
    assert status == 1
    assert f"FAILED tests/{failing}/test_{failing}.py::test_fails" in output.split("== all tests")[1]


def test_what_passes_only_when_repeated_stands_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p pytest_rerunfailures --reruns 1 --rerun-show-tracebacks")
    fails_once = "tries = []\ndef test_fails_once():\n    tries.append(1)\n    assert len(tries) == 2\n"
    status, output = _run(_repository(tmp_path, brokerd=fails_once), capfd)
    assert status == 0
    assert "RERUN tests/brokerd/test_brokerd.py::test_fails_once" in output.split("== all tests")[1]


def test_each_group_remembers_what_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _run(_repository(tmp_path, brokerd=FAILS, console=FAILS), capfd)
    records = (tmp_path / ".pytest_cache").glob("*/v/cache/lastfailed")
    failed = sorted(name for record in records for name in json.loads(record.read_text()))
    assert failed == ["tests/brokerd/test_brokerd.py::test_fails", "tests/console/test_console.py::test_fails"]


def test_a_room_that_belongs_to_no_group_runs_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status, output = _run(_repository(tmp_path, console=PASSES, new=FAILS, newer=PASSES), capfd)
    assert status == 1
    assert "others: tests/new tests/newer" in output


def test_the_group_that_mostly_waits_takes_no_lane(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The three lanes end only when it has run."""
    sign = tmp_path / "sign"
    waits = f"""
import pathlib, time

def test_waits():
    until_s = time.monotonic() + 60
    while not pathlib.Path({str(sign)!r}).exists():
        assert time.monotonic() < until_s
        time.sleep(0.05)
"""
    gives = f"import pathlib\n\ndef test_gives():\n    pathlib.Path({str(sign)!r}).touch()\n"
    rooms = dict.fromkeys(("console", "controlplane", "failover"), waits)
    assert _run(_repository(tmp_path, **rooms, nemesis=gives), capfd)[0] == 0


def test_groups_name_rooms_that_exist_and_each_of_them_once() -> None:
    rooms = [room for members in GROUPS.values() for room in members]
    assert len(rooms) == len(set(rooms))
    assert [room for room in rooms if not (REPOSITORY / "tests" / room).is_dir()] == []
