"""Shapes of changes of the mode."""

from rest_framework import serializers

from controlplane.clusters.models import ClusterMode
from controlplane.clusters.sizes import VOTERS
from controlplane.common.strictness import DryRunShape, Shape
from controlplane.failover.membership.serializers import PlannedStepSerializer


class ReplicasByGroup(serializers.DictField):
    """Replica ids by group."""

    child = serializers.ListField(child=serializers.IntegerField())


class ModeSerializer(DryRunShape):
    """The mode in which a running cluster is to be."""

    mode = serializers.ChoiceField(choices=ClusterMode.choices)
    replicas = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=max(VOTERS),
        help_text="replicas of each group, the master included; left out: as many as now, as far as the mode allows",
    )


class ModePlanSerializer(Shape):
    """What would happen; nothing was changed."""

    mode_before = serializers.CharField()
    mode_after = serializers.CharField()
    possible = serializers.BooleanField()
    problems = serializers.ListField(child=serializers.CharField())
    path = serializers.ListField(
        child=serializers.CharField(), help_text="the modes to go through, the last one wanted"
    )
    replicas_before = serializers.IntegerField(help_text="of each group")
    replicas_after = serializers.IntegerField()
    adding = ReplicasByGroup(help_text="replica ids by group that would be started")
    removing = ReplicasByGroup(help_text="replica ids by group that would be stopped, and their copies deleted")
    steps = PlannedStepSerializer(many=True)
    looked_at = serializers.DateTimeField()
