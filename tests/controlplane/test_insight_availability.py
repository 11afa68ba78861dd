"""Jobs start as soon as Spark is there, without a restart; until the first figures a page says what it waits for."""

import importlib.util
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils.html import strip_tags

from controlplane.insight import services
from controlplane.insight.availability import LATE, SOON, SWITCHED_OFF, figures_awaited, jobs_problem
from controlplane.insight.models import JobRun, JobRunState
from controlplane.insight.process import JobResult
from controlplane.insight.services import SCHEDULE, jobs_dispatch
from controlplane.insight.spark_setup import INTERRUPTED, MISSING
from tests.controlplane.billing_world import make_run
from tests.controlplane.world import Json, World

NOW = datetime.now(UTC)
READY = {"state": "ready", "sentence": "Spark is installed, with /usr.", "updated_at": NOW.isoformat()}
HALF = {"state": "installing", "sentence": "Spark is being installed, 40 %.", "updated_at": NOW.isoformat()}
FAILED = {
    "state": "waiting",
    "sentence": "Spark could not be installed (attempt 1): no route to host",
    "way_out": "check the network.",
    "next_try_at": "2026-11-22T15:07:00+00:00",
    "updated_at": NOW.isoformat(),
}


def just_now(content: str) -> str:
    """The content as the installer writes it at this moment: the run may have begun long before this test."""
    return content.replace(NOW.isoformat(), datetime.now(UTC).isoformat())


@pytest.fixture
def file(settings: Any, tmp_path: Path) -> Path:
    settings.HIGHWATER_JOBS = "auto"
    settings.HIGHWATER_SPARK_SETUP = str(tmp_path / "setup.json")
    settings.HIGHWATER_JOB_INTERVALS_S = {"ingest": 300}
    return tmp_path / "setup.json"


def test_jobs_are_scheduled_from_the_moment_that_spark_is_there(world: World, file: Path) -> None:
    counts = []
    for content in (None, HALF, FAILED, READY):
        if content:
            file.write_text(just_now(json.dumps(content)))
        jobs_dispatch()
        counts.append(JobRun.objects.count())
    assert counts == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", MISSING),
        ("[]", MISSING),
        ('{"state": 7, "updated_at": {}}', MISSING),
        (json.dumps(HALF), HALF["sentence"]),
        (json.dumps({**HALF, "updated_at": (NOW - timedelta(hours=1)).isoformat()}), INTERRUPTED),
        (json.dumps(FAILED), FAILED["sentence"]),
        (json.dumps(READY), ""),
    ],
)
def test_why_no_job_runs_is_what_the_installer_last_said(file: Path, content: str, problem: str) -> None:
    file.write_text(just_now(content))
    assert jobs_problem() == problem


def test_a_platform_that_does_not_install_spark_looks_for_it_each_time(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HIGHWATER_JOBS, settings.HIGHWATER_SPARK_SETUP = "auto", ""
    monkeypatch.setenv("JAVA_HOME", "/somewhere")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "PySpark is not installed here" in jobs_problem()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert jobs_problem() == ""


def test_a_failed_installation_is_reported_with_the_way_out_and_the_next_try(world: World, file: Path) -> None:
    file.write_text(json.dumps(FAILED))
    awaited = figures_awaited(NOW)
    assert awaited is not None
    assert (awaited.sentence, awaited.way_out) == (FAILED["sentence"], "check the network.")
    assert awaited.next_try_at == datetime(2026, 11, 22, 15, 7, tzinfo=UTC)


@pytest.mark.parametrize(("since_s", "sentence"), [(30, SOON), (600, LATE)])
def test_figures_that_take_longer_than_announced_are_said_to(
    world: World, file: Path, since_s: int, sentence: str
) -> None:
    ready_at = NOW - timedelta(seconds=since_s)
    file.write_text(json.dumps({**READY, "ready_at": ready_at.isoformat()}))
    awaited = figures_awaited(NOW)
    assert awaited is not None
    assert awaited.sentence == sentence


def test_the_first_figures_are_announced_and_then_there(world: World, file: Path) -> None:
    file.write_text(json.dumps(READY))
    awaited = figures_awaited(NOW)
    assert awaited is not None
    assert awaited.sentence == SOON
    make_run(JobRunState.FAILED)
    awaited = figures_awaited(NOW)
    assert awaited is not None
    assert awaited.sentence.startswith("The first count of usage failed.")
    make_run()
    assert figures_awaited(NOW) is None


@pytest.mark.parametrize("path", ["/t/acme/usage/", "/operator/jobs/"])
def test_pages_say_how_far_the_installation_is_and_then_that_figures_are_there(
    world: World, file: Path, path: str
) -> None:
    world.alice.is_staff = True
    world.alice.save()
    browser = Json(world.alice)
    file.write_text(just_now(json.dumps(HALF)))
    assert "Spark is being installed, 40 %." in browser.get(path).content.decode()
    file.write_text(json.dumps(FAILED))
    page = browser.get(path).content.decode()
    assert "no route to host The next try is at" in " ".join(strip_tags(page).split())
    assert "check the network." in page
    make_run()
    assert "first-figures" not in browser.get(path).content.decode()
    polled = browser.get(path, headers={"HX-Request": "true"}).content.decode()
    assert "The first figures are there." in polled


def test_jobs_that_are_switched_off_are_said_to_be(world: World, settings: Any) -> None:
    settings.HIGHWATER_JOBS = "off"
    awaited = figures_awaited(NOW)
    assert awaited is not None
    assert awaited.sentence == f"{SWITCHED_OFF} No usage is counted."


def complete_runs(rows_out: int) -> None:
    """All runs were begun 70 s before now, and not before these tests were collected: that may be long ago."""
    begun_at = datetime.now(UTC) - timedelta(seconds=70)
    JobRun.objects.update(state=JobRunState.COMPLETED, rows_out=rows_out, created_at=begun_at)


def test_a_job_that_never_wrote_anything_is_due_each_minute(world: World, file: Path) -> None:
    file.write_text(json.dumps(READY))
    jobs_dispatch()
    complete_runs(rows_out=0)
    jobs_dispatch()
    assert JobRun.objects.count() == 2
    complete_runs(rows_out=5)
    jobs_dispatch()
    assert JobRun.objects.count() == 2


def test_a_platform_without_traffic_is_not_kept_busy(world: World, file: Path) -> None:
    file.write_text(json.dumps(READY))
    for _ in range(services.FIRST_RUNS_MAX + 3):
        jobs_dispatch()
        complete_runs(rows_out=0)
    assert JobRun.objects.count() == services.FIRST_RUNS_MAX


@pytest.mark.parametrize(
    ("error", "attempts"),
    [("SparkException: Python worker failed to connect back.", 3), ("The disk is full.", 1)],
)
@pytest.mark.django_db(transaction=True)
def test_a_run_that_failed_because_the_machine_was_busy_is_retried_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, error: str, attempts: int
) -> None:
    monkeypatch.setattr(services, "run_job", lambda job, config, lock: JobResult(False, error))
    services.job_run_queue(actor=SCHEDULE, job="ingest")
    while run := JobRun.objects.filter(state=JobRunState.QUEUED).first():
        services.job_run_execute(run.pk)
    assert list(JobRun.objects.order_by("attempt").values_list("attempt", "state")) == [
        (attempt, "failed") for attempt in range(1, attempts + 1)
    ]
