"""A campaign tells of every run, and loses none to another; a run judges what there is."""

from __future__ import annotations

from pathlib import Path

from tests.daemons import BrokerDaemon, NameServerDaemon, ReplicaGroup
from tests.nemesis.campaign import campaign
from tests.nemesis.clients import PULL_GROUP, Clients
from tests.nemesis.judge import Committed, OffsetAnswer
from tests.nemesis.run import Outcome, becomes_whole, judge, noting
from tests.processes import free_ports

RUNS = [("sync", 1), ("sync", 2), ("sync", 3)]


def run_one(mode: str, seed: int) -> Outcome:
    if seed == 2:
        raise RuntimeError("no more namespaces")
    return Outcome(mode, seed, acknowledged=10 * seed, violations=["fell"] if seed == 3 else [])


def test_runs_go_on_after_one_that_could_not_be_run_and_one_with_a_violation() -> None:
    said: list[str] = []
    assert campaign([*RUNS, ("async", 1)], run_one, said.append) == ["sync --seed 2", "sync --seed 3"]
    assert said[-1] == "4 runs, 2 with violations or not run: sync --seed 2, sync --seed 3"
    assert "  VIOLATION: fell" in said
    assert "  NOT RUN: RuntimeError: no more namespaces" in said


def test_each_run_ends_with_its_row_of_one_table() -> None:
    said: list[str] = []
    campaign(RUNS, run_one, said.append)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said if line.startswith("|")]
    assert rows[0] == ["mode", "seed", "acknowledged", "violations", "wall time"]
    assert rows[1] == ["---"] * 5
    assert [row[:4] for row in rows[2:]] == [
        ["sync", "1", "10", "0"],
        ["sync", "2", "0", "not run"],
        ["sync", "3", "30", "1"],
    ]


def test_a_campaign_without_a_violation_has_no_failures() -> None:
    said: list[str] = []
    assert campaign([("sync", 1)], run_one, said.append) == []
    assert said[-1] == "1 runs, 0 with violations or not run"


def test_what_fails_on_the_way_is_a_violation() -> None:
    found: list[str] = []
    with noting(found, "the weather ended early"):
        raise TimeoutError("the broker did not start")
    assert found == ["the weather ended early: TimeoutError: the broker did not start"]


def test_a_group_that_never_becomes_whole_is_a_violation_and_its_history_is_judged(tmp_path: Path) -> None:
    port = free_ports()  # where no one serves
    replica = BrokerDaemon(tmp_path / "replica", f"127.0.0.1:{port}", port=port)
    group = ReplicaGroup(NameServerDaemon(tmp_path / "namesrv"), [replica])
    outcome = Outcome("single", 1)
    clients = Clients(group, 1)
    clients.history.committed.append(Committed(PULL_GROUP, 0, 2, 5.0))
    clients.history.offset_answers.append(OffsetAnswer(PULL_GROUP, 0, 1, 6.0, 6.1, 0))
    judge(group, clients, outcome, whole=becomes_whole(group, outcome.violations, timeout_s=0.0))
    not_whole, fell = outcome.violations
    assert not_whole.startswith("the group is not whole 0 s after the weather: replica 0 does not answer")
    assert fell == f"group {PULL_GROUP} had committed 2 in queue 0; replica 0 answered 1"
