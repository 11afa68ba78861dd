"""Alerts, rules that differ from the defaults, silences; where alerts are sent, and what was sent."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from controlplane.alerts.kinds import KINDS, Severity
from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel
from controlplane.common.sentences import SentenceField, SentencesField, say
from controlplane.tenants.models import Tenant


class AlertState(models.TextChoices):
    """PENDING: wrong, but not for long enough to notify anyone. FIRING -> RESOLVED."""

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
    detail = SentenceField(blank=True)
    since = models.DateTimeField(help_text="when it was first seen to be wrong")
    known_at = models.DateTimeField(help_text="when it was last known to be wrong")
    clear_since = models.DateTimeField(null=True, help_text="it is right again since; it ends when that lasts")
    fired_at = models.DateTimeField(null=True)
    notified_at = models.DateTimeField(null=True, help_text="when it was first put into a delivery")
    resolved_at = models.DateTimeField(null=True)
    resolved_because = SentenceField(blank=True)
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
        indexes: ClassVar = [
            models.Index(fields=["cluster", "state", "-created_at"], name="alert_of_cluster"),
            models.Index(fields=["state", "resolved_at"], name="alert_ended"),
        ]

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


class ChannelKind(models.TextChoices):
    """EMAIL goes to the tenant's owners, admins and operators, and is there from the start; the others are addresses."""

    EMAIL = "email", say("E-mail")
    WEBHOOK = "webhook", "Webhook"
    SLACK = "slack", "Slack"
    DINGTALK = "dingtalk", say("DingTalk")
    FEISHU = "feishu", say("Feishu")
    WECOM = "wecom", say("WeCom")


class AlertChannel(BaseModel):
    """Where a tenant's alerts are sent. Address and secret are encrypted: anyone who has a chat's address may write there."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="alert_channels")
    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=16, choices=ChannelKind.choices)
    address_encrypted = models.BinaryField(default=bytes, help_text="an https URL; empty: e-mail")
    secret_encrypted = models.BinaryField(default=bytes, help_text="what a message is signed with; empty: unsigned")
    is_on = models.BooleanField(default=True)
    critical_only = models.BooleanField(default=False)
    maker = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering: ClassVar = ["created_at", "id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "name"], name="alert_channel_name"),
            models.UniqueConstraint(fields=["tenant"], condition=Q(kind="email"), name="alert_channel_one_email"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """The channel's API path."""
        return f"{self.tenant.path}alert-channels/{self.id}/"


class DeliveryState(models.TextChoices):
    """QUEUED, also between two tries; then DELIVERED, or FAILED after the last try."""

    QUEUED = "queued"
    DELIVERED = "delivered"
    FAILED = "failed"


class AlertDelivery(BaseModel):
    """One message to one channel: all alerts that began or ended in one evaluation.

    A try is a compare-and-set on `attempts` that puts `not_before` off: so a worker that dies costs time only.
    """

    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="deliveries")
    payload = SentencesField(
        help_text="what a webhook gets; other kinds get the same as text, e-mail in its readers' languages"
    )
    state = models.CharField(max_length=16, choices=DeliveryState.choices, default=DeliveryState.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    not_before = models.DateTimeField(help_text="of the next try")
    http_status = models.PositiveSmallIntegerField(null=True, help_text="of the last try, where there was an answer")
    error = SentenceField(blank=True)
    delivered_at = models.DateTimeField(null=True)
    is_again_of = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="repetitions")

    class Meta:
        ordering: ClassVar = ["-created_at"]
        indexes: ClassVar = [models.Index(fields=["state", "not_before"], name="alert_delivery_due")]

    def __str__(self) -> str:
        return f"{self.channel_id} {self.state}"

    @property
    def path(self) -> str:
        """The delivery's API path."""
        return f"{self.channel.tenant.path}alert-deliveries/{self.id}/"


class AlertSilence(BaseModel):
    """Until `until` alerts that fit are sent to no one; they are shown nevertheless. An empty `kind` or `subject` fits all.

    Which alerts fit, `Silences` decides.
    """

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
