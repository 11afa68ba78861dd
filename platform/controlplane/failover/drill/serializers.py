"""Shapes of failover drills."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.clusters.models import OperationState
from controlplane.common.strictness import DryRunShape, Shape
from controlplane.failover.drill.windows import FARTHEST, LONGEST, SHORTEST
from controlplane.failover.membership.serializers import PlannedStepSerializer
from controlplane.failover.models import Drill, DrillFault, DrillVerdict, DrillWindowState
from controlplane.failover.promotion.serializers import TimelineLineSerializer
from controlplane.failover.selectors import timeline_of


class DrillRequestSerializer(DryRunShape):
    """A drill. `confirm` is the group's name: sends fail or wait while the group has no leader."""

    gives_back = serializers.BooleanField(
        required=False, default=False, help_text="Have the old leader lead again afterwards."
    )
    fault = serializers.ChoiceField(
        choices=DrillFault.choices,
        required=False,
        default=DrillFault.KILL,
        help_text="What the leader's process suffers.",
    )
    confirm = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)


class DrillWindowCreateSerializer(Shape):
    """A drill that begins by itself within a window. `confirm` is the group's name: its leader is stopped then."""

    group = serializers.CharField(max_length=64)
    opens_at = serializers.DateTimeField(help_text=f"At most {FARTHEST.days} days away; one that has passed is now.")
    closes_at = serializers.DateTimeField(
        help_text=(
            f"It begins before this, or is skipped. In the future, {SHORTEST.seconds // 60} minutes to {LONGEST.days} days after"
            " `opens_at`."
        )
    )
    gives_back = serializers.BooleanField(
        required=False, default=False, help_text="Have the old leader lead again afterwards."
    )
    fault = serializers.ChoiceField(
        choices=DrillFault.choices,
        required=False,
        default=DrillFault.KILL,
        help_text="What the leader's process suffers.",
    )
    confirm = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)


class DrillWindowSerializer(Shape):
    """A drill that was ordered for a window, and what became of it."""

    id = serializers.UUIDField()
    path = serializers.CharField()
    group = serializers.CharField(source="group_name")
    fault = serializers.ChoiceField(choices=DrillFault.choices)
    gives_back = serializers.BooleanField()
    opens_at = serializers.DateTimeField()
    closes_at = serializers.DateTimeField()
    state = serializers.ChoiceField(choices=DrillWindowState.choices)
    because = serializers.CharField(
        allow_blank=True,
        help_text="why it did not begin at the last look, or was skipped; empty before the window opens",
    )
    requested_by = serializers.CharField()
    drill_id = serializers.UUIDField(allow_null=True, help_text="once it has begun")
    created_at = serializers.DateTimeField()


class DrillPlanSerializer(Shape):
    """What a drill would do; nothing was changed."""

    group = serializers.CharField()
    possible = serializers.BooleanField()
    problems = serializers.ListField(child=serializers.CharField())
    leader_id = serializers.IntegerField(allow_null=True, help_text="who is stopped")
    candidate_id = serializers.IntegerField(allow_null=True, help_text="who is expected to lead then")
    elects = serializers.BooleanField(help_text="the group elects its next leader")
    clean = serializers.BooleanField(source="cleanness.clean")
    because = serializers.CharField(source="cleanness.because")
    gives_back = serializers.BooleanField()
    fault = serializers.ChoiceField(choices=DrillFault.choices)
    steps = PlannedStepSerializer(many=True)


class DrillSerializer(Shape):
    """A failover drill and its report; figures are null until it is measured, or where no one can say."""

    id = serializers.UUIDField()
    path = serializers.CharField()
    operation_id = serializers.UUIDField()
    failover_id = serializers.UUIDField()
    group = serializers.CharField(source="group_name")
    mode = serializers.CharField()
    fault = serializers.ChoiceField(choices=DrillFault.choices)
    gives_back = serializers.BooleanField()
    state = serializers.ChoiceField(choices=OperationState.choices)
    requested_by = serializers.CharField()
    leader_id = serializers.IntegerField(help_text="replica id: who was stopped")
    new_leader_id = serializers.SerializerMethodField()
    verdict = serializers.ChoiceField(choices=DrillVerdict.choices, allow_blank=True)
    verdict_because = serializers.CharField(allow_blank=True)
    rto_ms = serializers.IntegerField(allow_null=True, help_text="the longest time without an accepted write")
    probes_sent = serializers.IntegerField(allow_null=True)
    probes_acknowledged = serializers.IntegerField(allow_null=True)
    probes_missing = serializers.IntegerField(allow_null=True, help_text="acknowledged, and not in the log afterwards")
    fault_at = serializers.DateTimeField(allow_null=True)
    judged_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    timeline = serializers.SerializerMethodField()

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_new_leader_id(self, drill: Drill) -> int | None:
        """Return who led after the fault, once writes were back."""
        return drill.failover.candidate_id if drill.failover.writes_back_at is not None else None

    @extend_schema_field(TimelineLineSerializer(many=True))
    def get_timeline(self, drill: Drill) -> list[dict[str, Any]]:
        """Return the lines in order of time."""
        return list(TimelineLineSerializer(timeline_of(drill.failover), many=True).data)
