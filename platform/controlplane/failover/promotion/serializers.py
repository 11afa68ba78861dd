"""Shapes of the failover API. 64-bit offsets are strings; unknown is null."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.clusters.models import OperationState
from controlplane.common.strictness import DryRunShape, Shape
from controlplane.failover.models import Failover, FailoverKind
from controlplane.failover.promotion.verdict import GroupState
from controlplane.failover.selectors import timeline_of


class Offset(serializers.CharField):
    """A 64-bit number as a string: JavaScript loses what is above 2^53."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_null=True, **options)


class ReplicaStateSerializer(Shape):
    """A replica of the role map. `role` is `unknown` while it does not answer; its offsets are then of `last_seen_at`."""

    replica_id = serializers.IntegerField()
    address = serializers.CharField(allow_blank=True)
    role = serializers.ChoiceField(choices=["master", "slave", "unknown"])
    epoch = Offset()
    end_offset = Offset()
    held_offset = Offset(help_text="durable with SYNC_FLUSH, else the end")
    gap_bytes = Offset(help_text="behind the master, as it counts")
    gap_messages = Offset()
    in_sync = serializers.BooleanField(allow_null=True)
    accepts_sends = serializers.BooleanField(allow_null=True)
    claims = serializers.BooleanField(
        allow_null=True, help_text="it led when it stopped, and waits for every other replica's agreement to lead again"
    )
    promotable = serializers.BooleanField(allow_null=True)
    not_promotable_because = serializers.CharField(allow_blank=True)
    diverged_files = serializers.IntegerField(allow_null=True)
    last_seen_at = serializers.DateTimeField(allow_null=True)
    unreachable_since = serializers.DateTimeField(allow_null=True)
    fenced = serializers.BooleanField(help_text="a failover stopped it")
    election_state = serializers.CharField(
        allow_null=True,
        help_text="leader, follower, candidate, pre-candidate or unattached; null where leaders are not elected, or unknown",
    )
    is_voter = serializers.BooleanField(allow_null=True, help_text="false: an observer, which does not count")
    voted_for = serializers.IntegerField(allow_null=True, help_text="a replica id, in its epoch")
    confirm_offset = Offset()
    last_pull_at = serializers.DateTimeField(allow_null=True, help_text="as its leader counts; null for the leader")
    not_electable_because = serializers.CharField(allow_blank=True)


class ElectorateSerializer(Shape):
    """Who counts in a group that elects its leader."""

    voters = serializers.ListField(child=serializers.IntegerField())
    observers = serializers.ListField(child=serializers.IntegerField())
    preferred_leader = serializers.IntegerField(allow_null=True)
    change_pending = serializers.BooleanField(help_text="of who counts: a majority has not confirmed it yet")
    transferring_to = serializers.IntegerField(allow_null=True)


class GroupSerializer(Shape):
    """A broker group: who leads, who follows how closely, and what that means in words."""

    name = serializers.CharField()
    state = serializers.ChoiceField(choices=[state.value for state in GroupState])
    sentences = serializers.ListField(child=serializers.CharField())
    epoch = Offset()
    master_id = serializers.IntegerField(allow_null=True)
    master_dead_since = serializers.DateTimeField(allow_null=True, source="verdict.master_dead_since")
    candidates = serializers.ListField(child=serializers.IntegerField(), source="verdict.candidates")
    sampled_at = serializers.DateTimeField(allow_null=True)
    electorate = ElectorateSerializer(allow_null=True, help_text="null where leaders are not elected")
    replicas = ReplicaStateSerializer(many=True)


class GroupListSerializer(Shape):
    """The role map."""

    results = GroupSerializer(many=True)


class PromoteSerializer(DryRunShape):
    """Whom to promote. `confirm` is the group's name, needed only when messages may be lost."""

    candidate = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=1000)
    confirm = serializers.CharField(required=False, allow_blank=True, default="", max_length=64)


class SwitchoverSerializer(DryRunShape):
    """To whom to switch."""

    candidate = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=1000)


class PreflightReplicaSerializer(Shape):
    """A replica as it was a moment ago."""

    replica_id = serializers.IntegerField()
    role = serializers.CharField(allow_blank=True)
    answers = serializers.BooleanField()
    epoch = Offset()
    log_epoch = Offset()
    end_offset = Offset()
    held_offset = Offset()
    gap_bytes = Offset()
    gap_messages = Offset()
    last_seen_at = serializers.DateTimeField(allow_null=True)


class PreflightSerializer(Shape):
    """What would happen; nothing was changed."""

    group = serializers.CharField()
    kind = serializers.CharField()
    possible = serializers.BooleanField()
    problems = serializers.ListField(child=serializers.CharField())
    candidate = PreflightReplicaSerializer(allow_null=True)
    old_master = PreflightReplicaSerializer(allow_null=True)
    new_epoch = Offset()
    fence = serializers.CharField(allow_blank=True, help_text="who is fenced, and how")
    clean = serializers.BooleanField(source="cleanness.clean")
    because = serializers.CharField(source="cleanness.because")
    bytes_at_risk = Offset(source="cleanness.bytes_at_risk")
    messages_at_risk = Offset(source="cleanness.messages_at_risk")
    confirmation_needed = serializers.BooleanField()


class TimelineLineSerializer(Shape):
    """One line of the timeline."""

    name = serializers.CharField()
    title = serializers.CharField()
    happened_at = serializers.DateTimeField()
    after_ms = serializers.IntegerField(help_text="since the first line")
    detail = serializers.CharField(allow_blank=True)


class FailoverSerializer(Shape):
    """A change of a group's master, with its timeline."""

    id = serializers.UUIDField()
    path = serializers.CharField()
    operation_id = serializers.UUIDField(allow_null=True, help_text="null for an election: no one ordered it")
    group = serializers.CharField(source="group_name")
    kind = serializers.ChoiceField(choices=FailoverKind.choices)
    state = serializers.ChoiceField(choices=OperationState.choices)
    requested_by = serializers.CharField()
    candidate_id = serializers.IntegerField()
    old_master_id = serializers.IntegerField(allow_null=True)
    expected_epoch = Offset()
    new_epoch = Offset()
    lossless = serializers.BooleanField(allow_null=True, help_text="null until the old master is fenced")
    lossless_because = serializers.CharField(allow_blank=True)
    confirmed_loss = serializers.BooleanField()
    bytes_at_risk = Offset()
    messages_at_risk = Offset()
    fence = serializers.CharField(allow_blank=True)
    writes_stopped_at = serializers.DateTimeField(allow_null=True)
    writes_back_at = serializers.DateTimeField(allow_null=True)
    outage_ms = serializers.IntegerField(allow_null=True)
    measured_how = serializers.CharField(allow_blank=True, help_text="of an election: between which moments")
    superseded_at = serializers.DateTimeField(allow_null=True, help_text="another epoch began before a write")
    rejoined_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    timeline = serializers.SerializerMethodField()

    @extend_schema_field(TimelineLineSerializer(many=True))
    def get_timeline(self, failover: Failover) -> list[dict[str, Any]]:
        """Return the lines in order of time."""
        return list(TimelineLineSerializer(timeline_of(failover), many=True).data)
