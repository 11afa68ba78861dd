"""Reads: the parts' states, open incidents, maintenance, and what was in the last 90 days."""

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from controlplane.clusters.models import Cluster, ClusterState, Health
from controlplane.common.errors import NotFound
from controlplane.common.health import cache_answers
from controlplane.common.sentences import say
from controlplane.insight.models import Job, JobRun, JobRunState
from controlplane.status.judgement import PartState, fleet_state, jobs_state, workers_state, worst
from controlplane.status.models import Incident, Maintenance, Part, WorkerBeat

HISTORY = timedelta(days=90)
FIRST_QUEUE = "celery"
# So long before its start maintenance is shown on every page of the console.
_ANNOUNCED = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class PartView:
    """A part and how it is: as measured, or as an open incident or running maintenance says, whichever is worse."""

    part: Part
    state: PartState

    @property
    def name(self) -> str:
        """What people call it."""
        return self.part.label


@dataclass(frozen=True, slots=True)
class Status:
    """All that the page shows."""

    at: datetime
    parts: list[PartView]
    incidents: list[Incident]
    maintenance: list[Maintenance]

    @property
    def state(self) -> PartState:
        """The worst of the parts' states; one that is not known is no fault."""
        return worst(view.state for view in self.parts if view.state != PartState.UNKNOWN)


def status_now() -> Status:
    """Return how the platform is."""
    now = timezone.now()
    incidents = list(incidents_open())
    maintenance = list(maintenance_ahead(now))
    measured = _measure(now)
    views = []
    for part in Part:
        announced = [PartState(incident.impact) for incident in incidents if part in incident.parts]
        announced += [
            PartState.MAINTENANCE for window in maintenance if part in window.parts and window.starts_at <= now
        ]
        views.append(PartView(part, worst([measured[part], *announced])))
    return Status(now, views, incidents, maintenance)


def incidents_open() -> QuerySet[Incident]:
    """Return the incidents that are not resolved, the newest first."""
    return Incident.objects.filter(resolved_at=None).order_by("-created_at").prefetch_related("updates")


def incident_history() -> QuerySet[Incident]:
    """Return the incidents of the last 90 days, and all open ones."""
    recent = Q(created_at__gte=timezone.now() - HISTORY) | Q(resolved_at=None)
    return Incident.objects.filter(recent).order_by("-created_at").prefetch_related("updates")


def incident_get(incident_id: uuid.UUID) -> Incident:
    """Return one incident; raises NotFound."""
    incident = Incident.objects.filter(pk=incident_id).prefetch_related("updates").first()
    if incident is None:
        raise NotFound(say("There is no such incident."))
    return incident


def maintenance_ahead(now: datetime) -> QuerySet[Maintenance]:
    """Return the windows that are planned or run, the next first."""
    return Maintenance.objects.filter(cancelled_at=None, ends_at__gt=now).order_by("starts_at")


def maintenance_get(maintenance_id: uuid.UUID) -> Maintenance:
    """Return one window; raises NotFound."""
    maintenance = Maintenance.objects.filter(pk=maintenance_id).first()
    if maintenance is None:
        raise NotFound(say("There is no such maintenance."))
    return maintenance


def maintenance_announced() -> QuerySet[Maintenance]:
    """Return the windows that run or begin within a day."""
    now = timezone.now()
    return maintenance_ahead(now).filter(starts_at__lt=now + _ANNOUNCED)


def _measure(now: datetime) -> dict[Part, PartState]:
    """Return what can be seen. The reader of this was answered by the console, which reached the database."""
    beats = dict(WorkerBeat.objects.values_list("queue", "beaten_at"))
    running = Cluster.objects.filter(state=ClusterState.RUNNING).annotate(
        healthy=Count("name_servers", filter=Q(name_servers__health=Health.HEALTHY))
    )
    fleet = running.aggregate(clusters=Count("pk"), without=Count("pk", filter=Q(healthy=0)))
    return {
        Part.CONSOLE: PartState.OPERATIONAL,
        Part.API: PartState.OPERATIONAL if cache_answers() else PartState.DEGRADED,
        Part.WORKERS: workers_state(beats, FIRST_QUEUE, now),
        Part.JOBS: jobs_state(_completed_at_last()),
        Part.NAME_SERVERS: fleet_state(fleet["clusters"], fleet["without"]),
    }


def _completed_at_last() -> dict[str, bool]:
    """Return by job whether its last scheduled run that ended was completed. Two steps into an index for each: anyone may ask."""
    found = {}
    for job in Job:
        runs = JobRun.objects.filter(job=job, is_backfill=False, finished_at__isnull=False).order_by("-finished_at")
        latest = [runs.filter(state=state).first() for state in (JobRunState.COMPLETED, JobRunState.FAILED)]
        ended = [(run.finished_at, run.state) for run in latest if run is not None]
        if ended:
            found[str(job)] = max(ended)[1] == JobRunState.COMPLETED
    return found
