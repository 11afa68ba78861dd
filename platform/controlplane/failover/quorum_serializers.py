"""Shapes of changes of groups that elect their leader."""

from typing import Any

from rest_framework import serializers

from controlplane.clusters.services import VOTERS
from controlplane.failover.quorum_plan import ChangeKind

Shape = serializers.Serializer[Any]

_REPLICA_ID = {"min_value": 0, "max_value": 9999}


class TransferSerializer(Shape):
    """To whom the leadership goes; to the best of the other voters when left out."""

    target = serializers.IntegerField(required=False, allow_null=True, **_REPLICA_ID)


class PreferSerializer(Shape):
    """Whom the group wants as its leader."""

    replica = serializers.IntegerField(allow_null=True, help_text="null: nobody in particular", **_REPLICA_ID)


class ReplaceSerializer(Shape):
    """Which replica an empty one replaces."""

    replica = serializers.IntegerField(**_REPLICA_ID)


class ResizeSerializer(Shape):
    """How many replicas the group is to have."""

    replicas = serializers.ChoiceField(choices=list(VOTERS))
    remove = serializers.ListField(
        child=serializers.IntegerField(**_REPLICA_ID),
        required=False,
        allow_null=True,
        max_length=max(VOTERS),
        help_text="who goes when it shrinks; left out: who is away, then the highest ids, the leader last",
    )


class PlannedStepSerializer(Shape):
    """One step of a preview."""

    title = serializers.CharField()
    does = serializers.CharField()
    stops = serializers.CharField(help_text="what stands still meanwhile")


class QuorumPlanSerializer(Shape):
    """What would happen; nothing was changed."""

    group = serializers.CharField()
    kind = serializers.ChoiceField(choices=[kind.value for kind in ChangeKind])
    possible = serializers.BooleanField()
    problems = serializers.ListField(child=serializers.CharField())
    leader_id = serializers.IntegerField(allow_null=True)
    target = serializers.IntegerField(allow_null=True)
    adding = serializers.ListField(child=serializers.IntegerField())
    removing = serializers.ListField(child=serializers.IntegerField())
    voters_before = serializers.ListField(child=serializers.IntegerField())
    voters_after = serializers.ListField(child=serializers.IntegerField())
    steps = PlannedStepSerializer(many=True)
    looked_at = serializers.DateTimeField()
