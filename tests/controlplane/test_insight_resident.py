"""The worker's resident session, with its real process, whose runs end before Spark starts: they have a bad setting."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from controlplane.insight import resident
from controlplane.insight.models import JobRun
from controlplane.insight.resident import resident_end
from controlplane.insight.services import job_run_execute, job_run_queue
from tests.controlplane.world import SYSTEM, World

PATIENCE_S = 60.0


@pytest.fixture
def session_settings(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr("controlplane.insight.services.current_app.send_task", lambda *args, **options: None)
    settings.HIGHWATER_STATE_DIR = tmp_path
    settings.HIGHWATER_JOB_RESIDENT_IDLE_S = 600.0
    settings.HIGHWATER_LAKE_NAMESPACE = "Not a name"
    yield settings
    resident_end()


def ran() -> JobRun:
    """A run that the session has refused."""
    run = job_run_queue(actor=SYSTEM, job="ingest")
    job_run_execute(run.pk)
    run.refresh_from_db()
    assert (run.state, "namespace" in run.error) == ("failed", True), run.error
    return run


def session() -> resident.ResidentSession:
    assert resident._running is not None
    return resident._running


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_runs_share_a_session_which_is_started_again_when_it_has_died(world: World, session_settings: Any) -> None:
    ran()
    first = session()
    ran()
    assert session() is first
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: first.status is not None)
    ran()
    assert session().pid != first.pid


def test_a_session_that_is_idle_for_long_is_given_back_and_another_comes_when_it_is_needed(
    world: World, session_settings: Any
) -> None:
    session_settings.HIGHWATER_JOB_RESIDENT_IDLE_S = 1.5
    ran()
    first = session()
    wait_until(lambda: first.status is not None)
    assert first.status == 0
    assert "the session is given back" in first.log.read_text()
    ran()
    assert session() is not first


def test_settings_that_change_take_a_new_session(world: World, session_settings: Any) -> None:
    ran()
    first = session()
    session_settings.HIGHWATER_SPARK_CONF = {"spark.driver.memory": "2g"}
    ran()
    assert session() is not first
    assert first.status is not None


def test_a_command_beside_the_worker_has_a_process_of_its_own(world: World, session_settings: Any) -> None:
    ran()
    first = session()
    with pytest.raises(CommandError, match="namespace"):
        call_command("lake", "reread")
    assert session() is first
    assert first.status is None
