"""Incidents with their updates, maintenance windows, and when the workers were last heard of."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from controlplane.common.models import BaseModel
from controlplane.common.sentences import say


class Part(models.TextChoices):
    """What of the platform may fail by itself."""

    CONSOLE = "console", say("Console")
    API = "api", say("API")
    WORKERS = "workers", say("Changes of clusters")
    JOBS = "jobs", say("Usage and billing")
    NAME_SERVERS = "name_servers", say("Clusters")


class Impact(models.TextChoices):
    """What an incident means for the parts that it affects."""

    DEGRADED = "degraded", say("Degraded")
    DOWN = "down", say("Down")


class IncidentState(models.TextChoices):
    """How far those who look into it are."""

    INVESTIGATING = "investigating", say("Investigating")
    IDENTIFIED = "identified", say("Identified")
    MONITORING = "monitoring", say("Monitoring")
    RESOLVED = "resolved", say("Resolved")


class Incident(BaseModel):
    """Something that an operator announces to everyone. Its state is that of its newest update."""

    title = models.CharField(max_length=120)
    impact = models.CharField(max_length=16, choices=Impact.choices)
    parts = models.JSONField()
    state = models.CharField(max_length=16, choices=IncidentState.choices)
    resolved_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["created_at"], name="incident_open", condition=Q(resolved_at=None)),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def path(self) -> str:
        """Where the API has it for operators."""
        return f"/api/v1/operator/incidents/{self.pk}/"


class IncidentUpdate(BaseModel):
    """What an operator said, and when."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="updates")
    state = models.CharField(max_length=16, choices=IncidentState.choices)
    text = models.TextField()

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.state}: {self.text[:40]}"


class Maintenance(BaseModel):
    """A window of planned work."""

    title = models.CharField(max_length=120)
    text = models.TextField()
    parts = models.JSONField()
    starts_at = models.DateTimeField(db_index=True)
    ends_at = models.DateTimeField()
    cancelled_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(ends_at__gt=F("starts_at")), name="maintenance_ends_after_its_start")
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def path(self) -> str:
        """Where the API has it for operators."""
        return f"/api/v1/operator/maintenance/{self.pk}/"

    def state_at(self, now: datetime) -> str:
        """Return scheduled, in_progress, completed or cancelled."""
        if self.cancelled_at is not None:
            return "cancelled"
        if now < self.starts_at:
            return "scheduled"
        return "in_progress" if now < self.ends_at else "completed"

    @property
    def state(self) -> str:
        """Its state now."""
        return self.state_at(timezone.now())


class WorkerBeat(models.Model):
    """When a worker of a queue last did the task that only says so."""

    queue = models.CharField(max_length=32, primary_key=True)
    beaten_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.queue
