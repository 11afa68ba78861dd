"""The platform's status: what figures say of its parts, what operators announce, and what strangers may and may not see."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.clusters.models import Health
from controlplane.common import throttling
from controlplane.common.errors import Conflict, InvalidInput, NotFound
from controlplane.common.models import AuditEvent
from controlplane.insight.models import Job, JobRun, JobRunState
from controlplane.status.judgement import PartState, fleet_state, jobs_state, workers_state, worst
from controlplane.status.models import Incident, Part, WorkerBeat
from controlplane.status.selectors import FIRST_QUEUE, incident_get, incident_history, status_now
from controlplane.status.services import incident_open, incident_update, maintenance_cancel, maintenance_plan
from controlplane.status.tasks import worker_beat_task
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from tests.controlplane.world import SYSTEM, Json, World

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
LATE = NOW - timedelta(minutes=4)


@pytest.mark.parametrize(
    ("beats", "state"),
    [
        ({}, PartState.UNKNOWN),
        ({"deliveries": NOW}, PartState.UNKNOWN),
        ({"celery": NOW, "deliveries": NOW}, PartState.OPERATIONAL),
        ({"celery": NOW, "deliveries": LATE}, PartState.DEGRADED),
        ({"celery": LATE, "deliveries": NOW}, PartState.DOWN),
    ],
)
def test_workers_are_as_their_last_sign_of_life_says(beats: dict[str, datetime], state: PartState) -> None:
    assert workers_state(beats, "celery", NOW) == state


@pytest.mark.parametrize(
    ("runs", "state"),
    [
        ({}, PartState.UNKNOWN),
        ({"ingest": True, "billing": True}, PartState.OPERATIONAL),
        ({"ingest": False, "billing": True}, PartState.DEGRADED),
        ({"ingest": False}, PartState.DOWN),
    ],
)
def test_jobs_are_as_their_last_runs(runs: dict[str, bool], state: PartState) -> None:
    assert jobs_state(runs) == state


@pytest.mark.parametrize(
    ("clusters", "without", "state"),
    [
        (0, 0, PartState.OPERATIONAL),
        (1, 1, PartState.OPERATIONAL),  # one tenant's outage is no one else's business
        (2, 2, PartState.DOWN),
        (100, 4, PartState.OPERATIONAL),
        (100, 5, PartState.DEGRADED),
        (100, 51, PartState.DOWN),
    ],
)
def test_the_fleet_is_judged_as_a_whole(clusters: int, without: int, state: PartState) -> None:
    assert fleet_state(clusters, without) == state


def test_what_is_not_known_is_never_fine() -> None:
    assert worst([PartState.OPERATIONAL, PartState.UNKNOWN]) == PartState.UNKNOWN
    assert worst([PartState.UNKNOWN, PartState.DEGRADED, PartState.DOWN]) == PartState.DOWN
    assert worst([]) == PartState.OPERATIONAL


def state_of(part: Part) -> PartState:
    return next(view.state for view in status_now().parts if view.part == part)


def open_one(**other: object) -> Incident:
    values = {"title": "Slow changes", "text": "We look into it.", "impact": "degraded", "parts": ["workers"], **other}
    return incident_open(actor=SYSTEM, **values)  # type: ignore[arg-type]  # as the form gives them


def test_each_queue_has_its_sign_of_life_in_the_schedule(db: None) -> None:
    tasks = [entry for entry in settings.CELERY_BEAT_SCHEDULE.values() if entry["task"] == "status.worker_beat"]
    assert all(entry["args"] == (entry["options"]["queue"],) for entry in tasks)
    queues = {entry["args"][0] for entry in tasks}
    assert FIRST_QUEUE in queues
    for queue in queues:
        worker_beat_task(queue)
        worker_beat_task(queue)
    assert WorkerBeat.objects.count() == len(queues)
    assert state_of(Part.WORKERS) == PartState.OPERATIONAL


def test_an_incident_makes_its_parts_worse_until_it_is_resolved(db: None) -> None:
    worker_beat_task(FIRST_QUEUE)
    incident = open_one(impact="down")
    assert (state_of(Part.WORKERS), state_of(Part.CONSOLE)) == (PartState.DOWN, PartState.OPERATIONAL)
    assert status_now().state == PartState.DOWN
    incident_update(actor=SYSTEM, incident=incident, state="monitoring", text="A fix is out.")
    assert state_of(Part.WORKERS) == PartState.DOWN
    incident_update(actor=SYSTEM, incident=incident, state="resolved", text="All is well.")
    assert state_of(Part.WORKERS) == PartState.OPERATIONAL
    found = incident_get(incident.pk)
    assert found.resolved_at is not None
    assert [update.state for update in found.updates.all()] == ["resolved", "monitoring", "investigating"]
    with pytest.raises(Conflict):
        incident_update(actor=SYSTEM, incident=found, state="monitoring", text="Again.")
    actions = list(AuditEvent.objects.order_by("sequence").values_list("action", flat=True))
    assert actions == ["incident.open", "incident.update", "incident.update"]


def test_of_a_jobs_runs_the_one_that_ended_last_counts(db: None) -> None:
    now = timezone.now()
    for job, state, ended_h in (
        (Job.INGEST, JobRunState.FAILED, 3),
        (Job.INGEST, JobRunState.COMPLETED, 2),
        (Job.COMPACTION, JobRunState.COMPLETED, 2),
        (Job.COMPACTION, JobRunState.FAILED, 1),
    ):
        JobRun.objects.create(job=job, state=state, finished_at=now - timedelta(hours=ended_h), requested_by="beat")
    JobRun.objects.create(
        job=Job.INGEST, state=JobRunState.FAILED, finished_at=now, requested_by="an operator", is_backfill=True
    )
    assert state_of(Part.JOBS) == PartState.DEGRADED
    JobRun.objects.filter(job=Job.COMPACTION, state=JobRunState.FAILED).delete()
    assert state_of(Part.JOBS) == PartState.OPERATIONAL


@pytest.mark.parametrize("path", ["/status/", "/status/feed/"])
def test_one_address_has_so_many_pages_a_minute(db: None, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttling, "STRANGER_PAGES_A_MINUTE", 2)
    monkeypatch.setattr("time.time", lambda: NOW.timestamp())
    client = Client()
    assert [client.get(path).status_code for _ in range(2)] == [200, 200]
    refused = client.get(path)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "60")
    assert Client(REMOTE_ADDR="192.0.2.9").get(path).status_code == 200


def test_maintenance_counts_while_it_runs(db: None) -> None:
    now = timezone.now()
    plan = partial(maintenance_plan, actor=SYSTEM, title="New disks", text="Short breaks.", parts=["console"])
    later = plan(starts_at=now + timedelta(hours=1), ends_at=now + timedelta(hours=2))
    assert state_of(Part.CONSOLE) == PartState.OPERATIONAL
    running = plan(starts_at=now - timedelta(hours=1), ends_at=now + timedelta(hours=1))
    assert state_of(Part.CONSOLE) == PartState.MAINTENANCE
    assert [later.state, running.state] == ["scheduled", "in_progress"]
    maintenance_cancel(actor=SYSTEM, maintenance=running)
    assert state_of(Part.CONSOLE) == PartState.OPERATIONAL
    with pytest.raises(Conflict):
        maintenance_cancel(actor=SYSTEM, maintenance=running)


@pytest.mark.parametrize(
    "wrong",
    [
        {"title": " "},
        {"title": "A\u202etitle"},
        {"text": ""},
        {"text": "x" * 2001},
        {"parts": []},
        {"parts": ["acme"]},
        {"state": "resolved"},
    ],
)
def test_an_incident_without_a_text_is_refused(db: None, wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        open_one(**wrong)


@pytest.mark.parametrize(("begin_h", "end_h"), [(2, 1), (-2, -1), (0, 24 * 7 + 1)])
def test_a_window_ends_after_its_start_and_within_a_week(db: None, begin_h: int, end_h: int) -> None:
    begin, end = (timezone.now() + timedelta(hours=hours) for hours in (begin_h, end_h))
    with pytest.raises(InvalidInput):
        maintenance_plan(actor=SYSTEM, title="x", text="x", parts=["api"], starts_at=begin, ends_at=end)


def test_only_operators_of_the_platform_announce_anything(world: World) -> None:
    with pytest.raises(NotFound):
        incident_open(actor=world.alice, title="x", text="x", impact="down", parts=["api"])
    assert not Incident.objects.exists()


def test_the_history_goes_back_90_days_and_has_all_that_is_open(db: None) -> None:
    old, old_but_open, recent = (open_one(title=title) for title in ("old", "open", "recent"))
    for incident in (old, recent):
        incident_update(actor=SYSTEM, incident=incident, state="resolved", text="Done.")
    Incident.objects.filter(pk__in=[old.pk, old_but_open.pk]).update(created_at=timezone.now() - timedelta(days=91))
    assert [incident.title for incident in incident_history()] == ["recent", "open"]


def test_a_stranger_sees_parts_and_incidents_and_no_tenant(world: World) -> None:
    world.cluster.name_servers.update(health=Health.DOWN)
    open_one(text="<script>alert(1)</script>")
    answer = Client().get("/api/v1/status/")
    assert answer.status_code == 200
    reported = answer.json()
    assert [part["part"] for part in reported["parts"]] == Part.values
    assert {part["part"]: part["state"] for part in reported["parts"]}["name_servers"] == "operational"
    assert reported["incidents"][0]["updates"][0]["state"] == "investigating"
    texts = [answer.content, *(Client().get(path).content for path in ("/status/", "/status/feed/"))]
    for text in texts:
        assert b"acme" not in text
        assert b"orders" not in text
        assert world.alice.email.encode() not in text
    assert b"<script>alert" not in texts[1]
    assert b"<script>alert" not in texts[2]


def test_the_feed_is_atom_with_each_update(db: None) -> None:
    incident = open_one()
    incident_update(actor=SYSTEM, incident=incident, state="resolved", text="All is well.")
    answer = Client().get("/status/feed/")
    assert answer.headers["Content-Type"].startswith("application/atom+xml")
    text = answer.content.decode()
    assert text.count("<entry>") == 2
    assert "Slow changes (resolved)" in text
    assert f"/status/#incident-{incident.pk}" in text


def test_an_operator_announces_an_incident_and_a_window_by_the_api(world: World, api: Callable[..., Json]) -> None:
    world.alice.is_staff = True
    world.alice.save()
    token = api_token_issue(
        actor=SYSTEM, tenant=world.acme, name="op", user=world.alice, scopes=(*ALL_SCOPES, OPERATE_SCOPE)
    )
    client = api(token=token.text)
    body = {"title": "Slow", "text": "We look.", "impact": "degraded", "parts": ["api", "console"]}
    made = client.call("POST", "/api/v1/operator/incidents/", body)
    assert made.status_code == 201
    address = made.headers["Location"]
    resolved = client.call("POST", f"{address}updates/", {"state": "resolved", "text": "Done."})
    assert (resolved.status_code, resolved.json()["state"]) == (201, "resolved")
    assert client.call("POST", f"{address}updates/", {"state": "resolved", "text": "Done."}).status_code == 409
    assert client.call("GET", address).json()["parts"] == ["console", "api"]
    now = timezone.now()
    times = {"starts_at": (now + timedelta(hours=1)).isoformat(), "ends_at": (now + timedelta(hours=2)).isoformat()}
    window = client.call(
        "POST", "/api/v1/operator/maintenance/", {"title": "Disks", "text": "x", "parts": ["jobs"], **times}
    )
    assert (window.status_code, window.json()["state"]) == (201, "scheduled")
    assert [one["title"] for one in Client().get("/api/v1/status/").json()["maintenance"]] == ["Disks"]
    assert client.call("DELETE", window.headers["Location"]).status_code == 204
    assert client.call("GET", window.headers["Location"]).json()["state"] == "cancelled"
