"""Shapes of the status, incidents and maintenance."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.alerts.kinds import SEVERITY_CHOICES
from controlplane.common.strictness import Shape
from controlplane.status.judgement import PartState
from controlplane.status.models import Impact, IncidentState, Maintenance, Part
from controlplane.status.services import TEXT_LENGTH_MAX, TITLE_LENGTH_MAX

PART_STATES = [(state.value, state.value) for state in PartState]
MAINTENANCE_STATES = [(state, state) for state in ("scheduled", "in_progress", "completed", "cancelled")]


def _parts_field() -> Any:
    return serializers.ListField(child=serializers.ChoiceField(choices=Part.choices), min_length=1, max_length=20)


class PartStatusSerializer(Shape):
    """A part of the platform and how it is."""

    part = serializers.ChoiceField(choices=Part.choices)
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=PART_STATES)


class IncidentUpdateSerializer(Shape):
    """What was said of an incident, and when."""

    state = serializers.ChoiceField(choices=IncidentState.choices)
    text = serializers.CharField()
    created_at = serializers.DateTimeField()


class IncidentSerializer(Shape):
    """Something that operators announce to everyone, with all that they said, the newest first."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    impact = serializers.ChoiceField(choices=Impact.choices)
    state = serializers.ChoiceField(choices=IncidentState.choices)
    parts = _parts_field()
    created_at = serializers.DateTimeField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    updates = IncidentUpdateSerializer(many=True)


class MaintenanceSerializer(Shape):
    """A window of planned work."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    text = serializers.CharField()
    parts = _parts_field()
    state = serializers.SerializerMethodField()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()

    @extend_schema_field(serializers.ChoiceField(choices=MAINTENANCE_STATES))
    def get_state(self, window: Maintenance) -> str:
        return window.state


class StatusSerializer(Shape):
    """How the platform is: the worst of its parts that are known, open incidents, and maintenance that runs or is planned."""

    state = serializers.ChoiceField(choices=PART_STATES)
    at = serializers.DateTimeField()
    parts = PartStatusSerializer(many=True)
    incidents = IncidentSerializer(many=True)
    maintenance = MaintenanceSerializer(many=True)


class IncidentCreateSerializer(Shape):
    """A new incident and the first that is said of it."""

    title = serializers.CharField(max_length=TITLE_LENGTH_MAX)
    text = serializers.CharField(max_length=TEXT_LENGTH_MAX)
    impact = serializers.ChoiceField(choices=Impact.choices)
    parts = _parts_field()
    state = serializers.ChoiceField(choices=IncidentState.choices, default=IncidentState.INVESTIGATING)


class IncidentUpdateCreateSerializer(Shape):
    """What is new of an incident; `resolved` ends it."""

    state = serializers.ChoiceField(choices=IncidentState.choices)
    text = serializers.CharField(max_length=TEXT_LENGTH_MAX)


class MaintenancePlanSerializer(Shape):
    """A new window, at most a week long."""

    title = serializers.CharField(max_length=TITLE_LENGTH_MAX)
    text = serializers.CharField(max_length=TEXT_LENGTH_MAX)
    parts = _parts_field()
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()


class TroubleSerializer(Shape):
    """One thing that is wrong now."""

    kind = serializers.CharField()
    severity = serializers.ChoiceField(choices=SEVERITY_CHOICES)
    what = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    tenant = serializers.CharField(source="cluster.tenant.slug", allow_null=True, default=None)
    cluster = serializers.CharField(source="cluster.slug", allow_null=True, default=None)
    about = serializers.CharField(allow_blank=True, help_text="the host, operation or run that it is about")
