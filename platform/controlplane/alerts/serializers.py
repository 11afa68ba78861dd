"""Shapes of alerts, their rules and silences."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.alerts.kinds import DURATION_MAX_S, KIND_CHOICES, KINDS, SEVERITY_CHOICES
from controlplane.alerts.models import Alert
from controlplane.alerts.services import SILENCE_MAX
from controlplane.alerts.words import sentence
from controlplane.common.strictness import Shape

_STATES = [("firing", "Firing"), ("resolved", "Resolved")]


class AlertSerializer(Shape):
    """Something that is or was wrong in a cluster."""

    id = serializers.UUIDField()
    cluster = serializers.SlugField(source="cluster.slug")
    kind = serializers.ChoiceField(choices=KIND_CHOICES)
    title = serializers.CharField()
    severity = serializers.ChoiceField(choices=SEVERITY_CHOICES)
    subject = serializers.CharField(allow_blank=True, help_text="what in the cluster it is about; empty: the cluster")
    sentence = serializers.SerializerMethodField()
    state = serializers.ChoiceField(choices=_STATES)
    unit = serializers.SerializerMethodField(help_text="of value and threshold; empty: it is wrong or not")
    value = serializers.FloatField(help_text="when it was last wrong")
    threshold = serializers.FloatField()
    since = serializers.DateTimeField(help_text="when it was first seen to be wrong")
    fired_at = serializers.DateTimeField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolved_because = serializers.CharField(allow_blank=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by = serializers.CharField(allow_blank=True)
    note = serializers.CharField(allow_blank=True)

    @extend_schema_field(serializers.CharField())
    def get_sentence(self, alert: Alert) -> str:
        return sentence(alert.kind, alert.subject, alert.value, alert.detail)

    @extend_schema_field(serializers.CharField())
    def get_unit(self, alert: Alert) -> str:
        return KINDS[alert.kind].unit


class AlertQuerySerializer(Shape):
    """Which alerts."""

    state = serializers.ChoiceField(choices=_STATES, required=False, default="")
    cluster = serializers.SlugField(required=False, default="", help_text="of this cluster only")


class AcknowledgeSerializer(Shape):
    """What the one who has seen an alert wants others to know."""

    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=500)


class RuleSerializer(Shape):
    """What holds for a kind of alert in a cluster."""

    kind = serializers.ChoiceField(choices=KIND_CHOICES, source="kind.name")
    title = serializers.CharField(source="kind.title")
    meaning = serializers.CharField(source="kind.meaning")
    severity = serializers.ChoiceField(choices=SEVERITY_CHOICES, source="kind.severity")
    unit = serializers.CharField(source="kind.unit", help_text="empty: it is wrong or not, and has no threshold")
    is_on = serializers.BooleanField()
    threshold = serializers.FloatField(help_text="it is wrong from here on")
    is_floor = serializers.BooleanField(source="kind.is_floor", help_text="it is wrong at the threshold and below")
    least = serializers.FloatField(source="kind.least", help_text="of a threshold")
    most = serializers.FloatField(source="kind.most", help_text="of a threshold")
    duration_s = serializers.IntegerField(help_text="it fires when it has been wrong for this long")
    is_default = serializers.BooleanField(help_text="nothing was set")


class RuleSetSerializer(Shape):
    """What is to be changed; what is left out stays."""

    is_on = serializers.BooleanField(required=False)
    threshold = serializers.FloatField(required=False, help_text="between the kind's `least` and `most`")
    duration_s = serializers.IntegerField(required=False, min_value=0, max_value=DURATION_MAX_S)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError("Name at least one of is_on, threshold, duration_s.", code="required")
        return attrs


class SilenceSerializer(Shape):
    """Until when no one is notified of alerts that fit."""

    id = serializers.UUIDField()
    cluster = serializers.SlugField(
        source="cluster.slug", allow_null=True, default=None, help_text="null: every cluster"
    )
    kind = serializers.ChoiceField(choices=KIND_CHOICES, allow_blank=True, help_text="empty: every kind")
    subject = serializers.CharField(allow_blank=True, help_text="empty: every subject")
    until = serializers.DateTimeField()
    reason = serializers.CharField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()


class SilenceCreateSerializer(Shape):
    """What is to be silent, and until when: at most 30 days."""

    cluster = serializers.SlugField(required=False, default="", allow_blank=True, help_text="left out: every cluster")
    kind = serializers.ChoiceField(choices=KIND_CHOICES, required=False, default="", allow_blank=True)
    subject = serializers.CharField(required=False, default="", allow_blank=True, max_length=600)
    until = serializers.DateTimeField(help_text=f"In the future, at most {SILENCE_MAX.days} days away; else 400.")
    reason = serializers.CharField(max_length=500)
