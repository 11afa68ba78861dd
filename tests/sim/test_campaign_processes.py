"""Campaigns over several processes: none holds up the others, none is left over, and one that was ended goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.sim import campaign as campaigns
from tests.sim.campaign import OtherCommitError, campaign
from tests.sim.seed_processes import Result, Task, run_tasks

KINDS = [("sync", "sync"), ("sync", "async")]


def children_of_this_thread() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()


def test_a_seed_that_raises_or_hangs_is_a_violation_and_the_next_one_runs() -> None:
    raising = [Task("no such mode", "sync", 1), Task("no such mode", "sync", 3)]
    results = list(run_tasks([raising[0], Task("dledger", "async", 2), raising[1]], 1, limit_s=0.05))
    assert [result.task.seed for result in results] == [1, 2, 3]
    raised, late, raised_later = (result.violation or "" for result in results)
    assert "no such mode" in raised
    assert late == "it did not end within 0.05 s"
    assert "no such mode" in raised_later


def test_a_campaign_that_is_ended_leaves_no_process() -> None:
    results = run_tasks([Task("no such mode", "sync", 1), Task("dledger", "async", 2)], 1)
    next(results)
    before = children_of_this_thread()
    results.close()
    assert len(children_of_this_thread().split()) == len(before.split()) - 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks that were run, by no process: seed 2 fails, seed 9 is interrupted."""
    tasks_run: list[Task] = []

    def run(tasks: Sequence[Task], jobs: int) -> Iterator[Result]:
        for task in tasks:
            if task.seed == 9:
                raise KeyboardInterrupt
            tasks_run.append(task)
            counts = {
                "SEND_OK": 1000,
                "faults": 3,
                "answered changes judged": 5,
                "answered changes that may be lost": 1,
            }
            yield Result(task, "a promise broken" if task.seed == 2 else None, counts)

    monkeypatch.setattr(campaigns, "run_tasks", run)
    return tasks_run


def test_all_seeds_are_in_one_table_after_each_violation_as_it_came(
    asked: list[Task], capsys: pytest.CaptureFixture[str]
) -> None:
    assert campaign(KINDS, range(1, 4), jobs=2) == 1
    said = capsys.readouterr().out
    assert (
        "sync, async flush, seed 2: a promise broken\nagain: ./dev sim --mode sync --flush async --first-seed 2" in said
    )
    assert "| sync | async | 3 | 3,000 | 9 | 15 of 18 | 1 |" in said


def test_an_interrupted_campaign_prints_the_table_of_what_was_run(
    asked: list[Task], capsys: pytest.CaptureFixture[str]
) -> None:
    assert campaign(KINDS, range(7, 11), jobs=2) == 130
    assert "| sync | sync | 2 | 2,000 |" in capsys.readouterr().out


def test_a_campaign_goes_on_where_the_kept_results_end(asked: list[Task], tmp_path: Path) -> None:
    kept = tmp_path / "results"
    campaign(KINDS, range(1, 3), jobs=2, kept_in=kept)
    asked.clear()
    assert campaign(KINDS, range(1, 4), jobs=2, kept_in=kept) == 1, "a violation found before still counts"
    assert [(task.flush, task.seed) for task in asked] == [("sync", 3), ("async", 3)]


def test_results_of_another_commit_are_refused(asked: list[Task], tmp_path: Path) -> None:
    kept = tmp_path / "results"
    kept.write_text("v0-1-g0000000\n")
    with pytest.raises(OtherCommitError, match="v0-1-g0000000"):
        campaign(KINDS, range(1, 3), jobs=2, kept_in=kept)
