"""Runs of jobs: queued, run as processes, lost, retried, backfilled, reported to operators. The job is a twin; all else is real."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import connection

from controlplane.accounts.models import User
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.insight import services
from controlplane.insight.availability import jobs_problem
from controlplane.insight.job_config import spark_conf, spark_conf_problem
from controlplane.insight.locks import job_lock
from controlplane.insight.models import Job, JobRun, JobRunState, LagWindow
from controlplane.insight.process import job_timeout_s, result_of
from controlplane.insight.selectors import counted, failures_open
from controlplane.insight.services import (
    job_run_alert,
    job_run_execute,
    job_run_queue,
    job_runs_expire,
    jobs_dispatch,
    lag_windows_expire,
)
from tests.controlplane.billing_world import lag_window, make_run
from tests.controlplane.world import SYSTEM, Json, World

RUNS = "/api/v1/operator/job-runs/"
FROM, TO = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)
DONE = {
    "state": "completed",
    "rows_in": 12,
    "rows_out": 5,
    "rows_quarantined": 1,
    "range_from": FROM.isoformat(),
    "range_to": TO.isoformat(),
    "error": None,
}
PATIENCE_S = 60.0


@pytest.fixture(autouse=True)
def _no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is enqueued goes nowhere: these tests run what they mean to run."""
    monkeypatch.setattr("controlplane.insight.services.current_app.send_task", lambda *args, **options: None)


@pytest.fixture
def olga(db: None) -> User:
    return User.objects.create_user("olga@example.com", is_staff=True)


@pytest.fixture
def twin(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Call it to say what the job does; returns the file that holds what the job saw."""
    settings.HIGHWATER_JOB_COMMAND = ["{python}", str(Path(__file__).with_name("job_twin.py")), "{job}"]
    settings.HIGHWATER_STATE_DIR = tmp_path
    monkeypatch.setenv("SECRET_KEY", "not for jobs")
    monkeypatch.setenv("JOB_TWIN_SEEN", str(tmp_path / "seen.json"))

    def plan(**values: Any) -> Path:
        monkeypatch.setenv("JOB_TWIN", json.dumps(values))
        return tmp_path / "seen.json"

    return plan


def queued(job: str = "usage_billing", **values: Any) -> JobRun:
    return job_run_queue(actor=SYSTEM, job=job, **values)


def ran(run: JobRun) -> JobRun:
    job_run_execute(run.pk)
    run.refresh_from_db()
    return run


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_run_gets_its_configuration_and_leaves_its_result_in_the_row(
    world: World, twin: Callable[..., Path], tmp_path: Path
) -> None:
    seen_file = twin(result=DONE)
    run = ran(queued())
    assert (run.state, run.rows_in, run.rows_out, run.rows_quarantined) == ("completed", 12, 5, 1)
    assert (run.range_from, run.range_to, run.error) == (FROM, TO, "")
    assert run.started_at is not None
    assert run.took is not None
    seen = json.loads(seen_file.read_text())
    assert (seen["job"], seen["mode"], seen["folder_mode"]) == ("usage_billing", 0o600, 0o700)
    config = seen["config"]
    assert set(config) == {
        "run_id",
        "job",
        "master",
        "lake",
        "checkpoints",
        "database",
        "range",
        "late_window_hours",
        "spark",
        "retention",
        "namespace",
        "clusters",
    }
    assert (config["run_id"], config["range"], config["late_window_hours"]) == (str(run.pk), None, 48)
    assert config["database"]["name"] == connection.settings_dict["NAME"]
    (cluster,) = config["clusters"]
    assert (cluster["cluster_id"], cluster["tenant_id"]) == (str(world.cluster.pk), str(world.acme.pk))
    assert cluster["namesrv_addr"].endswith(":2")
    assert len(cluster["secret_key"]) == 40
    assert not {"SECRET_KEY", "DATABASE_URL", "REDIS_URL"} & set(seen["environment"])
    assert not any((tmp_path / "jobs").iterdir())  # the configuration holds secrets


def test_a_backfill_gives_the_job_its_range(world: World, twin: Callable[..., Path]) -> None:
    seen_file = twin(result=DONE)
    run = ran(queued(range_from=FROM, range_to=TO))
    assert run.is_backfill
    assert json.loads(seen_file.read_text())["config"]["range"] == {"from": FROM.isoformat(), "to": TO.isoformat()}


def test_ingest_gets_the_clusters_that_run_and_billing_the_deleted_ones_too(
    world: World, twin: Callable[..., Path]
) -> None:
    Cluster.objects.update(state=ClusterState.DELETED, deleted_at=datetime.now(UTC))
    seen_file = twin(result=DONE)
    ran(queued("ingest"))
    assert json.loads(seen_file.read_text())["config"]["clusters"] == []
    ran(queued())
    (cluster,) = json.loads(seen_file.read_text())["config"]["clusters"]
    assert (cluster["namesrv_addr"], cluster["access_key"], cluster["secret_key"]) == ("", "", "")


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"result": {"state": "failed", "error": "The lake is gone."}, "status": 1}, "The lake is gone."),
        ({"result": {"state": "completed"}, "status": 1}, "ended with status 1"),
        ({"result": {"state": "failed"}, "status": 0, "say": "a last word"}, "a last word"),
        (
            {"status": 3, "say": "java.lang.OutOfMemoryError"},
            "ended with status 3 and left no result.\njava.lang.OutOfMemoryError",
        ),
        ({"result": "no json"}, "can't be read"),
        ({"result": "[]"}, "no JSON object"),
    ],
)
def test_a_run_that_fails_says_why(world: World, twin: Callable[..., Path], plan: dict[str, Any], words: str) -> None:
    twin(**plan)
    run = ran(queued())
    assert run.state == "failed"
    assert words in run.error


def test_no_secret_gets_into_the_row(world: World, twin: Callable[..., Path]) -> None:
    twin(status=1, say="cannot connect with {password}!")
    run = ran(queued())
    assert "cannot connect with …!" in run.error


@pytest.mark.parametrize("value", [-1, 1.5, "7", True, 2**63])
def test_counts_that_are_none_are_unknown(world: World, twin: Callable[..., Path], value: object) -> None:
    twin(result={**DONE, "rows_in": value, "range_to": "yesterday"})
    run = ran(queued())
    assert (run.state, run.rows_in, run.range_from) == ("completed", None, None)


def test_a_run_that_takes_too_long_is_ended_with_all_its_processes(
    world: World, twin: Callable[..., Path], settings: Any, tmp_path: Path
) -> None:
    settings.HIGHWATER_JOB_TIMEOUT_S = 1
    twin(hang=str(tmp_path / "pids"))
    run = ran(queued())
    assert "It took longer than 1 s" in run.error
    wait_until(lambda: not any(alive(pid) for pid in json.loads((tmp_path / "pids").read_text())))


@pytest.mark.parametrize(
    ("begin", "end", "seconds"),
    [(None, None, 1800), ("2026-10-01", "2026-10-02", 1800 + 180), ("2026-10-01", "2027-11-05", 1800 + 400 * 180)],
)
def test_a_backfill_has_time_by_the_days_that_it_counts(
    settings: Any, begin: str | None, end: str | None, seconds: float
) -> None:
    settings.HIGHWATER_JOB_TIMEOUT_S, settings.HIGHWATER_JOB_TIMEOUT_PER_DAY_S = 1800, 180
    asked = begin and end and {"from": f"{begin}T00:00:00+00:00", "to": f"{end}T00:00:00+00:00"}
    assert job_timeout_s({"range": asked}) == seconds


def test_settings_of_spark_are_one_json_object_or_a_file_that_holds_one(settings: Any, tmp_path: Path) -> None:
    given = {"spark.driver.extraJavaOptions": "-Da=1,2 -Db=3", "spark.driver.memory": "2g"}
    (tmp_path / "spark.json").write_text(json.dumps(given))
    for value in (json.dumps(given), str(tmp_path / "spark.json"), given):
        settings.HIGHWATER_SPARK_CONF = value
        assert (spark_conf(), spark_conf_problem()) == (given, "")
    settings.HIGHWATER_SPARK_CONF = ""
    assert spark_conf() == {}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("spark.driver.memory=1g,spark.ui.enabled=false", "is neither a JSON object nor a file that can be read"),
        ("/nowhere/spark.json", "is neither a JSON object nor a file that can be read"),
        ('{"spark.driver.memory": "1g",', "is no JSON"),
        ('{"driver.memory": "1g"}', "has the member 'driver.memory'"),
        ('{"spark.driver.memory": ["1g"]}', "has the member 'spark.driver.memory'"),
    ],
)
def test_settings_of_spark_that_are_none_are_reported_in_a_sentence(settings: Any, value: str, words: str) -> None:
    settings.HIGHWATER_SPARK_CONF = value
    problem = spark_conf_problem()
    assert problem.startswith(f"HIGHWATER_SPARK_CONF {words}")
    assert 'Write it as {"spark.driver.memory": "1g"}' in problem


def test_a_run_is_run_once(world: World, twin: Callable[..., Path]) -> None:
    twin(result=DONE)
    run = queued()
    assert [job_run_execute(run.pk), job_run_execute(run.pk)] == ["completed", "not queued"]


def test_one_run_of_a_job_at_a_time(world: World, twin: Callable[..., Path]) -> None:
    twin(result=DONE)
    run = queued()
    with job_lock("usage_billing") as lock:
        assert lock is not None
        assert lock.is_held()
        assert job_run_execute(run.pk) == "busy"
        with job_lock("usage_billing") as second, job_lock("ingest") as other:
            assert second is None
            assert other is not None
    assert ran(run).state == "completed"


def test_a_run_whose_worker_was_lost_is_failed_and_its_job_goes_on(world: World, twin: Callable[..., Path]) -> None:
    twin(result=DONE)
    lost = queued()
    JobRun.objects.filter(pk=lost.pk).update(state=JobRunState.RUNNING)
    with job_lock("usage_billing"):
        jobs_dispatch()
        lost.refresh_from_db()
        assert lost.state == "running"  # another process holds the lock: it runs
    jobs_dispatch()
    lost.refresh_from_db()
    assert (lost.state, "worker was lost" in lost.error) == ("failed", True)
    assert ran(queued()).state == "completed"


@pytest.mark.django_db(transaction=True)
def test_a_killed_worker_takes_its_job_with_it_and_lets_go_of_the_lock(
    world: World, twin: Callable[..., Path], tmp_path: Path
) -> None:
    twin(hang=str(tmp_path / "pids"))
    run = queued()
    code = (
        "import django; django.setup()\n"
        "import sys, uuid\n"
        "from django.conf import settings\n"
        f"settings.DATABASES['default']['NAME'] = {connection.settings_dict['NAME']!r}\n"
        f"settings.HIGHWATER_JOB_COMMAND = {['{python}', str(Path(__file__).with_name('job_twin.py')), '{job}']!r}\n"
        f"settings.HIGHWATER_STATE_DIR = {str(tmp_path)!r}\n"
        "from controlplane.insight.services import job_run_execute\n"
        f"job_run_execute(uuid.UUID({str(run.pk)!r}))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    del environment["SECRET_KEY"]  # as these tests' own settings have it
    worker = os.spawnve(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code], environment)
    try:
        wait_until((tmp_path / "pids").exists)
        wait_until(lambda: (tmp_path / "pids").read_text().endswith("]"))
        assert JobRun.objects.get().state == "running"
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    wait_until(lambda: not any(alive(pid) for pid in json.loads((tmp_path / "pids").read_text())))
    wait_until(lambda: (jobs_dispatch(), JobRun.objects.get().state)[1] == "failed")
    again = services.job_run_retry(actor=SYSTEM, run=JobRun.objects.get())
    (tmp_path / "jobs").joinpath(str(run.pk)).rename(tmp_path / "left-behind")
    twin(result=DONE)
    assert ran(again).state == "completed"
    assert (again.attempt, again.retry_of_id) == (2, run.pk)


def test_due_jobs_are_queued_once_in_their_interval(world: World, settings: Any) -> None:
    settings.HIGHWATER_JOBS = "on"
    settings.HIGHWATER_JOB_INTERVALS_S = {"ingest": 300, "usage_billing": 600}
    for _ in range(3):
        jobs_dispatch()
    assert sorted(JobRun.objects.values_list("job", "requested_by")) == [
        ("ingest", "schedule"),
        ("usage_billing", "schedule"),
    ]
    written = {"rows_out": 1, "created_at": datetime.now(UTC) - timedelta(seconds=400)}
    JobRun.objects.update(state=JobRunState.COMPLETED, **written)
    jobs_dispatch()
    assert JobRun.objects.filter(job="ingest").count() == 2
    assert JobRun.objects.filter(job="usage_billing").count() == 1


@pytest.mark.parametrize(("how", "scheduled"), [("off", 0), ("on", 1)])
def test_no_job_is_scheduled_where_jobs_are_switched_off(world: World, settings: Any, how: str, scheduled: int) -> None:
    settings.HIGHWATER_JOBS = how
    settings.HIGHWATER_JOB_INTERVALS_S = {"ingest": 300}
    jobs_dispatch()
    assert JobRun.objects.count() == scheduled
    assert bool(jobs_problem()) is (how == "off")


def test_the_same_job_is_enqueued_once_the_oldest_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        "controlplane.insight.services.current_app.send_task", lambda name, args, **options: sent.append(args[0])
    )
    first, _, other = queued(), queued(), queued("ingest")
    sent.clear()
    assert jobs_dispatch() == 2
    assert sent == [str(first.pk), str(other.pk)]


def test_operators_are_mailed_once_when_a_run_fails(world: World, olga: User, twin: Callable[..., Path]) -> None:
    twin(status=1, say="no space left on device")
    run = ran(queued())
    assert [job_run_alert(run.pk), job_run_alert(run.pk)] == [True, False]
    (message,) = mail.outbox
    assert (message.to, message.subject) == (["olga@example.com"], "[Highwater] The job usage_billing failed")
    assert "no space left on device" in message.body
    assert f"/operator/jobs/{run.pk}/" in message.body


def test_a_mail_that_could_not_be_sent_is_sent_later(world: World, olga: User, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(JobRunState.FAILED)

    def refuse(*args: object) -> int:
        raise ConnectionRefusedError("no mail server")

    with monkeypatch.context() as patch:
        patch.setattr(services, "mail_each", refuse)
        with pytest.raises(ConnectionRefusedError):
            job_run_alert(run.pk)
    assert job_run_alert(run.pk)


def test_a_failure_is_open_until_it_is_seen_or_the_job_has_run_again(world: World) -> None:
    run = make_run(JobRunState.FAILED)
    backfill = make_run(JobRunState.FAILED, is_backfill=True)
    assert {one.pk for one in failures_open()} == {run.pk, backfill.pk}
    make_run()
    assert [one.pk for one in failures_open()] == [backfill.pk]
    services.job_run_acknowledge(actor=SYSTEM, run=backfill)
    assert failures_open() == []


def test_an_operator_queues_looks_retries_and_acknowledges(
    olga: User, api: Callable[..., Json], twin: Callable[..., Path]
) -> None:
    client = api(olga)
    body = {"job": "usage_billing", "range_from": FROM.isoformat(), "range_to": TO.isoformat()}
    made = client.call("POST", RUNS, body)
    assert (made.status_code, made.json()["state"], made.json()["is_backfill"]) == (202, "queued", True)
    path = made.headers["Location"]
    assert client.call("POST", f"{path}retry/").status_code == 409
    assert client.call("POST", f"{path}acknowledge/").status_code == 409
    twin(status=1)
    ran(JobRun.objects.get())
    assert client.call("GET", path).json()["state"] == "failed"
    assert client.call("POST", f"{path}acknowledge/").json()["acknowledged_at"] is not None
    again = client.call("POST", f"{path}retry/").json()
    assert (again["attempt"], again["retry_of"], again["range_from"]) == (2, made.json()["id"], "2026-11-01T00:00:00Z")
    assert [run["id"] for run in client.call("GET", RUNS).json()["results"]] == [again["id"], made.json()["id"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["lag_analytics", "ingest", "ingest"]),
        ("?state=failed", ["ingest"]),
        ("?job=ingest", ["ingest", "ingest"]),
        ("?job=lag_analytics&state=failed", []),
    ],
)
def test_runs_are_listed_by_job_and_by_state(
    world: World, olga: User, api: Callable[..., Json], query: str, found: list[str]
) -> None:
    make_run(job=Job.INGEST)
    make_run(JobRunState.FAILED, Job.INGEST)
    make_run(job=Job.LAG_ANALYTICS)
    assert [run["job"] for run in api(olga).call("GET", f"{RUNS}{query}").json()["results"]] == found


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"job": "mining"}, "job"),
        ({"job": "usage_billing", "range_from": FROM.isoformat()}, "range_to"),
        ({"job": "usage_billing", "range_to": TO.isoformat()}, "range_from"),
        ({"job": "usage_billing", "range_from": TO.isoformat(), "range_to": FROM.isoformat()}, "range_to"),
        (
            {"job": "usage_billing", "range_from": "2090-01-01T00:00:00Z", "range_to": "2090-01-02T00:00:00Z"},
            "range_from",
        ),
        ({"job": "usage_billing", "range_from": "2020-01-01T00:00:00Z", "range_to": TO.isoformat()}, "range_to"),
        ({"job": "ingest", "range_from": FROM.isoformat(), "range_to": TO.isoformat()}, "range_from"),
    ],
)
def test_a_bad_range_is_reported_beside_its_field(
    olga: User, api: Callable[..., Json], body: dict[str, str], field: str
) -> None:
    answer = api(olga).call("POST", RUNS, body)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field)
    assert not JobRun.objects.exists()


def test_what_was_counted_spans_the_completed_runs(world: World) -> None:
    assert counted(Job.USAGE_BILLING).until is None
    make_run(since=FROM, until=TO)
    make_run(since=FROM + timedelta(days=2), until=TO + timedelta(days=2))
    make_run(since=FROM - timedelta(days=9), until=FROM, job=Job.INGEST)
    make_run(JobRunState.FAILED, until=TO + timedelta(days=30))
    found = counted(Job.USAGE_BILLING)
    assert (found.since, found.until) == (FROM, TO + timedelta(days=2))


def test_old_lag_windows_are_deleted(world: World) -> None:
    now = datetime.now(UTC)
    lag_window(world.cluster, now - timedelta(days=31))
    kept = lag_window(world.cluster, now - timedelta(days=29))
    assert lag_windows_expire() == 1
    assert LagWindow.objects.get() == kept


# --- old runs ---------------------------------------------------------------------------------------------------------

LONG_PAST = datetime(2020, 1, 1, tzinfo=UTC)


def old_run(day: int, state: JobRunState = JobRunState.COMPLETED, **values: Any) -> JobRun:
    """A run that was queued and ended on a day years ago."""
    moment = LONG_PAST + timedelta(days=day)
    run = make_run(state, until=moment, since=moment - timedelta(hours=1), **values)
    JobRun.objects.filter(pk=run.pk).update(created_at=moment)
    return run


def test_old_runs_are_deleted_and_young_ones_stay(world: World) -> None:
    for day in range(2, 7):
        old_run(day)
    first, last, young = old_run(1), old_run(8), make_run()
    assert job_runs_expire() == 6
    assert set(JobRun.objects.values_list("pk", flat=True)) == {first.pk, young.pk}
    assert not JobRun.objects.filter(pk=last.pk).exists()


def test_what_was_counted_is_the_same_after_old_runs_are_gone(world: World) -> None:
    for day in range(1, 9):
        old_run(day)
        old_run(day, job=Job.LAG_ANALYTICS, is_backfill=day == 8)
    before = {job: counted(job) for job in Job}
    assert job_runs_expire() > 8
    assert {job: counted(job) for job in Job} == before


def test_failures_that_no_one_looked_at_stay_and_are_counted(world: World) -> None:
    old_run(1)
    settled = old_run(2, JobRunState.FAILED)
    old_run(3)
    seen = old_run(4, JobRunState.FAILED)
    services.job_run_acknowledge(actor=SYSTEM, run=seen)
    open_one, backfill = old_run(5, JobRunState.FAILED), old_run(1, JobRunState.FAILED, is_backfill=True)
    before = {run.pk for run in failures_open()}
    assert before == {open_one.pk, backfill.pk}
    job_runs_expire()
    assert {run.pk for run in failures_open()} == before
    assert not JobRun.objects.filter(pk__in=(settled.pk, seen.pk)).exists()


def test_runs_that_wait_or_run_stay_and_batches_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "EXPIRE_BATCH", 2)
    monkeypatch.setattr(services, "EXPIRE_BATCHES_MAX", 2)
    for day in range(1, 9):
        old_run(day)
    waiting = [queued(), queued("ingest")]
    JobRun.objects.filter(pk=waiting[0].pk).update(state=JobRunState.RUNNING)
    assert [job_runs_expire(), job_runs_expire(), job_runs_expire()] == [4, 2, 0]
    assert JobRun.objects.filter(pk__in=[run.pk for run in waiting]).count() == 2


def test_a_retry_outlives_the_run_that_it_retried(world: World) -> None:
    old_run(1)
    failed = old_run(2, JobRunState.FAILED)
    again = old_run(3, retry_of=failed)
    assert job_runs_expire() == 1
    again.refresh_from_db()
    assert again.retry_of is None


def test_how_long_runs_are_kept_is_a_setting(world: World, settings: Any) -> None:
    now = datetime.now(UTC)
    for days in (1, 2, 3):
        make_run(until=now - timedelta(days=days))
    settings.HIGHWATER_JOB_RUN_HISTORY_DAYS = 5
    assert job_runs_expire() == 0
    settings.HIGHWATER_JOB_RUN_HISTORY_DAYS = 1
    assert job_runs_expire() == 1


def test_what_failed_in_one_cluster_is_read_by_its_id_and_what_is_no_id_is_passed_over(tmp_path: Path) -> None:
    cluster = uuid.uuid4()
    result = {"state": "failed", "error": "1 of 2", "cluster_errors": {str(cluster): "no answer", "orders": "none"}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert result_of(tmp_path / "result.json", 1, "", "").cluster_errors == {cluster: "no answer"}
