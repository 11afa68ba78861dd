"""Shapes of consumer groups and their offset resets. 64-bit numbers are strings."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.common.strictness import DryRunShape, Shape
from controlplane.consumers.models import OffsetReset, ResetTarget
from controlplane.consumers.reset_plan import ResetPlan
from controlplane.consumers.services import SHIFT_MAX

WAYS = [(value, label) for value, label in ResetTarget.choices if value != ResetTarget.UNDO]


class MemberSerializer(Shape):
    """A client that is connected."""

    client_id = serializers.CharField()
    address = serializers.CharField()
    language = serializers.CharField()
    version = serializers.IntegerField(help_text="ordinal of RocketMQ's MQVersion")


class GroupSubscriptionSerializer(Shape):
    """What the group subscribes to in one topic."""

    topic = serializers.CharField()
    expression = serializers.CharField(allow_blank=True)


class GroupMembersSerializer(Shape):
    """Who is connected in a group now; no one, when `members` is empty."""

    members = MemberSerializer(many=True)
    subscriptions = GroupSubscriptionSerializer(many=True)
    consume_type = serializers.CharField(allow_blank=True, help_text="empty: no one is connected")
    message_model = serializers.CharField(allow_blank=True, help_text="empty: no one is connected")


class OffsetResetCreateSerializer(DryRunShape):
    """Where a group is to go on in a topic."""

    topic = serializers.CharField(max_length=255)
    target = serializers.ChoiceField(choices=WAYS)
    at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="of `time`: the first message stored then or later"
    )
    shift = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=-SHIFT_MAX,
        max_value=SHIFT_MAX,
        help_text="of `shift`: by how many messages in each queue, below 0 for back",
    )
    source_group = serializers.CharField(
        required=False, allow_blank=True, max_length=255, help_text="of `group`: whose offsets to take"
    )


class UndoSerializer(DryRunShape):
    """Undo a reset."""


class QueueResetSerializer(Shape):
    """One queue's part. `before` is null where the group had no offset."""

    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField()
    outcome = serializers.ChoiceField(choices=["planned", "done", "failed", "unknown"])
    error = serializers.CharField(allow_blank=True)


class QueueLeftOutSerializer(Shape):
    """A queue that stays where it is."""

    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    reason = serializers.CharField()


class ResetPlanSerializer(Shape):
    """What a reset would do."""

    again = serializers.CharField(help_text="messages that the group would get again")
    skipped = serializers.CharField(help_text="messages that the group would never get")
    queues = QueueResetSerializer(many=True)
    left_out = QueueLeftOutSerializer(many=True)


class OffsetResetSerializer(Shape):
    """A reset that was made, queue by queue."""

    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    group = serializers.CharField(source="consumer_group")
    topic = serializers.CharField()
    target = serializers.ChoiceField(choices=ResetTarget.choices)
    details = serializers.SerializerMethodField()
    made_by = serializers.CharField()
    undoes = serializers.UUIDField(source="undoes_id", allow_null=True)
    undone_by = serializers.SerializerMethodField()
    queues = QueueResetSerializer(many=True)

    @extend_schema_field(serializers.DictField())
    def get_details(self, reset: OffsetReset) -> Any:
        """Return what was asked for."""
        return reset.details

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_undone_by(self, reset: OffsetReset) -> Any:
        """Return the reset that undid this one."""
        undo = getattr(reset, "undone_by", None)
        return None if undo is None else undo.pk


def plan_shown(plan: ResetPlan) -> dict[str, Any]:
    """Return the plan in the shape of ResetPlanSerializer."""
    return {
        "again": plan.again,
        "skipped": plan.skipped,
        "queues": [
            {
                "broker_name": one.queue.broker_name,
                "queue_id": one.queue.queue_id,
                "before": one.before,
                "after": one.after,
                "outcome": "planned",
                "error": "",
            }
            for one in plan.queues
        ],
        "left_out": [
            {"broker_name": queue.broker_name, "queue_id": queue.queue_id, "reason": reason}
            for queue, reason in plan.left_out
        ],
    }
