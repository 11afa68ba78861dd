"""Shapes of changes of groups that elect their leader."""

from typing import Any

from rest_framework import serializers

from controlplane.clusters.sizes import VOTERS
from controlplane.common.strictness import DryRunShape, Shape
from controlplane.failover.membership.plan import ChangeKind


class ReplicaId(serializers.IntegerField):
    """A replica's id: the number in its dLegerSelfId."""

    def __init__(self, **options: Any) -> None:
        super().__init__(min_value=0, max_value=9999, **options)


class TransferSerializer(DryRunShape):
    """To whom the leadership goes; to the best of the other voters when left out."""

    target = ReplicaId(required=False, allow_null=True)


class PreferSerializer(DryRunShape):
    """Whom the group wants as its leader."""

    replica = ReplicaId(allow_null=True, help_text="null: no preference")


class ReplaceSerializer(DryRunShape):
    """Which replica an empty one replaces."""

    replica = ReplicaId()


class RecoverSerializer(DryRunShape):
    """With which replica a group goes on that has lost a majority of its disks for good."""

    replica = ReplicaId()
    confirm = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=64,
        help_text="the group's name: what the lost replicas held is lost",
    )


class ResizeSerializer(DryRunShape):
    """How many replicas the group is to have."""

    replicas = serializers.ChoiceField(choices=list(VOTERS))
    remove = serializers.ListField(
        child=ReplicaId(),
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
    loss = serializers.CharField(help_text="what is lost, to be confirmed with the group's name; empty: nothing")
    looked_at = serializers.DateTimeField()
