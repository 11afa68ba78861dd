"""Alerts, rules that differ from the defaults, and silences."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from controlplane.alerts.kinds import KINDS, Severity
from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel
from controlplane.tenants.models import Tenant


class AlertState(models.TextChoices):
    """PENDING: wrong, but not for long enough to tell anyone. FIRING -> RESOLVED."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


OPEN_STATES = (AlertState.PENDING, AlertState.FIRING)


class Alert(BaseModel):
    """One thing that is or was wrong in a cluster. Written by the evaluation alone, but for who has seen it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=600, help_text="what in the cluster it is about; empty: the cluster")
    state = models.CharField(max_length=16, choices=AlertState.choices, default=AlertState.PENDING)
    value = models.FloatField(help_text="when it was last wrong, in the kind's unit")
    threshold = models.FloatField()
    detail = models.CharField(max_length=1024, blank=True)
    since = models.DateTimeField(help_text="when it was first seen to be wrong")
    known_at = models.DateTimeField(help_text="when it was last known to be wrong")
    clear_since = models.DateTimeField(null=True, help_text="it is right again since; it ends when that lasts")
    fired_at = models.DateTimeField(null=True)
    resolved_at = models.DateTimeField(null=True)
    resolved_because = models.CharField(max_length=256, blank=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=254, blank=True)
    note = models.CharField(max_length=500, blank=True, help_text="of who acknowledged it")

    class Meta:
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "kind", "subject"], condition=~Q(state="resolved"), name="alert_one_open"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["cluster", "state", "-created_at"], name="alert_of_cluster")]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}".strip()

    @property
    def title(self) -> str:
        """What is wrong, in a few words."""
        return KINDS[self.kind].title

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return KINDS[self.kind].severity

    @property
    def path(self) -> str:
        """The alert's API path."""
        return f"{self.cluster.tenant.path}alerts/{self.id}/"


class AlertRule(BaseModel):
    """What a tenant set for a kind in a cluster; without a row the defaults hold."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="alert_rules")
    kind = models.CharField(max_length=32)
    is_on = models.BooleanField(default=True)
    threshold = models.FloatField()
    duration_s = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["cluster", "kind"], name="alert_rule_once")]

    def __str__(self) -> str:
        return f"{self.cluster_id} {self.kind}"


class AlertSilence(BaseModel):
    """Until `until` nobody is told of alerts that fit; they are shown nevertheless. An empty `kind` or `subject` fits all."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="alert_silences")
    cluster = models.ForeignKey(
        Cluster, on_delete=models.CASCADE, null=True, related_name="alert_silences", help_text="null: every cluster"
    )
    kind = models.CharField(max_length=32, blank=True)
    subject = models.CharField(max_length=600, blank=True)
    until = models.DateTimeField()
    reason = models.CharField(max_length=500)
    created_by = models.CharField(max_length=254)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["tenant", "until"], name="alert_silence_of_tenant")]

    def __str__(self) -> str:
        return f"{self.kind or 'all'} until {self.until:%Y-%m-%d %H:%M}"

    def fits(self, alert: Alert) -> bool:
        """Whether the alert is among those that nobody is told of; whether it is over is not asked here."""
        return (
            self.cluster_id in (None, alert.cluster_id)
            and self.kind in ("", alert.kind)
            and self.subject in ("", alert.subject)
        )
