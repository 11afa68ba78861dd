"""Shapes of consumer groups and their offset resets. 64-bit numbers are strings."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.common.strictness import DryRunShape, Shape
from controlplane.consumers.dead_letters import BROWSE_MAX
from controlplane.consumers.models import OffsetReset, ReplayState, ReplayTarget, ResetTarget
from controlplane.consumers.paced import OUTCOMES, RATE_MAX, SELECTED_MAX
from controlplane.consumers.reset_plan import ResetPlan
from controlplane.consumers.route_map import MEMBERS_ASKED_MAX
from controlplane.consumers.services import OFFSETS_MAX, SHIFT_MAX
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES
from controlplane.topics.serializers import ShownBodySerializer

WAYS = [(value, label) for value, label in ResetTarget.choices if value != ResetTarget.UNDO]


class OwnSubscriptionSerializer(Shape):
    """How one member subscribes to a topic."""

    topic = serializers.CharField()
    expression = serializers.CharField(allow_blank=True)
    expression_type = serializers.CharField(allow_blank=True, help_text="TAG or SQL92; empty: TAG")


class MemberSerializer(Shape):
    """A client that is connected."""

    client_id = serializers.CharField()
    address = serializers.CharField()
    language = serializers.CharField()
    version = serializers.IntegerField(help_text="ordinal of RocketMQ's MQVersion")
    version_name = serializers.CharField(allow_blank=True, help_text="such as 5.3.3; empty before 4.0.0")
    subscriptions = OwnSubscriptionSerializer(
        many=True, allow_null=True, help_text="its own, without system topics; null: the broker does not know them"
    )


class GroupSubscriptionSerializer(Shape):
    """What the group subscribes to in one topic."""

    topic = serializers.CharField()
    expression = serializers.CharField(allow_blank=True)


class BrokerReplicaSerializer(Shape):
    """A replica as the name servers know it."""

    broker_id = serializers.IntegerField(help_text="0: the master")
    address = serializers.CharField()


class BrokerRouteSerializer(Shape):
    """A broker group's share of a topic, as its broker keeps it. null: not known."""

    broker_name = serializers.CharField()
    has_master = serializers.BooleanField()
    replicas = BrokerReplicaSerializer(many=True)
    perm = serializers.IntegerField(allow_null=True)
    read_queue_nums = serializers.IntegerField(allow_null=True)
    write_queue_nums = serializers.IntegerField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)


class QueueReadersSerializer(Shape):
    """A queue that can be read, and who of the group has it."""

    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    client_ids = serializers.ListField(child=serializers.CharField())
    problem = serializers.CharField(allow_blank=True, help_text="why none has it, or that several have")


class RouteMapSerializer(Shape):
    """Where a topic's queues are, and who reads them."""

    as_of = serializers.DateTimeField()
    brokers = BrokerRouteSerializer(many=True)
    groups = serializers.ListField(child=serializers.CharField(), help_text="those that have consumed the topic")
    group = serializers.CharField(allow_blank=True)
    queues = QueueReadersSerializer(many=True, allow_null=True, help_text="null: no group was asked for")
    silent = serializers.ListField(
        child=serializers.CharField(), help_text=f"members that did not answer, or past the first {MEMBERS_ASKED_MAX}"
    )


class RouteQuerySerializer(Shape):
    """Whose members to ask."""

    group = serializers.CharField(
        max_length=255, required=False, default="", allow_blank=True, help_text="a consumer group; empty: none"
    )


class SubscribedSerializer(Shape):
    """How a topic is subscribed to."""

    expression = serializers.CharField(allow_blank=True)
    expression_type = serializers.CharField(allow_blank=True)


class SubscriptionDifferenceSerializer(Shape):
    """A topic that a member subscribes to otherwise. null: not subscribed."""

    topic = serializers.CharField()
    own = SubscribedSerializer(allow_null=True)
    usual = SubscribedSerializer(allow_null=True)


class OddMemberSerializer(Shape):
    """A member that subscribes otherwise than most."""

    client_id = serializers.CharField()
    differences = SubscriptionDifferenceSerializer(many=True)


class GroupMembersSerializer(Shape):
    """Who is connected in a group now; no one, when `members` is empty."""

    members = MemberSerializer(many=True)
    subscriptions = GroupSubscriptionSerializer(many=True)
    consume_type = serializers.CharField(allow_blank=True, help_text="empty: no one is connected")
    message_model = serializers.CharField(allow_blank=True, help_text="empty: no one is connected")
    odd_members = OddMemberSerializer(
        many=True, help_text="who subscribes otherwise than most members, which makes the group lose messages"
    )
    subscriptions_have_majority = serializers.BooleanField(
        help_text="false: no way to subscribe is the most common, and the difference is to one of the most common"
    )
    not_compared = serializers.IntegerField(
        help_text="members whose own subscriptions the broker does not know: it keeps 16 ways to subscribe for a group"
    )


class MemberRunningQuerySerializer(Shape):
    """Which member, and whether it is to say what its threads do."""

    client_id = serializers.CharField(max_length=512)
    stack = serializers.BooleanField(default=False)


class SettingSerializer(Shape):
    """A setting of the member's client, by that client's own name."""

    name = serializers.CharField(allow_blank=True)
    value = serializers.CharField(allow_blank=True)


class QueueRunningSerializer(Shape):
    """A queue that the member reads."""

    topic = serializers.CharField(allow_blank=True)
    broker_name = serializers.CharField(allow_blank=True)
    queue_id = serializers.IntegerField()
    commit_offset = serializers.CharField(help_text="as the member knows it; the brokers hear of it each few seconds")
    fetched = serializers.IntegerField(help_text="messages that it has, and has not finished")
    locked = serializers.BooleanField(help_text="for consumption in order")
    dropped = serializers.BooleanField(help_text="another member reads it from now on")
    last_pull_at = serializers.DateTimeField(allow_null=True)
    last_consume_at = serializers.DateTimeField(allow_null=True)


class MemberRunningSerializer(Shape):
    """How a member is doing, by its own word."""

    client_id = serializers.CharField()
    settings = SettingSerializer(many=True)
    subscriptions = GroupSubscriptionSerializer(many=True)
    queues = QueueRunningSerializer(many=True)
    queues_left_out = serializers.IntegerField(help_text="more than 2000 are not listed")
    fetched = serializers.CharField(help_text="messages that it has, and has not finished, in all queues")
    stack = serializers.CharField(
        allow_null=True, allow_blank=True, help_text="what its threads do; null: not asked for, or it doesn't say"
    )
    stack_complete = serializers.BooleanField(help_text="false: cut after 524288 characters")


class OffsetResetCreateSerializer(DryRunShape):
    """Where a group is to go on in a topic."""

    topic = serializers.CharField(max_length=255)
    target = serializers.ChoiceField(choices=WAYS)
    at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="of `time`, which needs it: the first message stored then or later"
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
    offsets = serializers.ListField(
        child=serializers.CharField(max_length=300),
        required=False,
        allow_empty=True,
        max_length=OFFSETS_MAX,
        help_text="of `offsets`: broker:queue:offset of each queue that is to move, within what it holds",
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


class DeadLetterQuerySerializer(Shape):
    """How much to browse."""

    limit = serializers.IntegerField(min_value=1, max_value=BROWSE_MAX, default=50)
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)


class DeadLetterSerializer(Shape):
    """A message that a group never managed to consume."""

    place = serializers.CharField(help_text="broker:queue:offset among the dead letters, as a replay takes it")
    topic = serializers.CharField(allow_blank=True, help_text="to which it was first sent; empty: it doesn't say")
    died_at = serializers.DateTimeField()
    born_at = serializers.DateTimeField(allow_null=True, help_text="as its sender says; null: that is no time")
    tries = serializers.IntegerField(help_text="deliveries that failed")
    tags = serializers.CharField(allow_blank=True)
    keys = serializers.ListField(child=serializers.CharField())
    message_id = serializers.CharField()
    offset_message_id = serializers.CharField()
    body = ShownBodySerializer()
    masked = serializers.ListField(
        child=serializers.CharField(), help_text="what is hidden from your role: body, and names of properties"
    )


class DeadLettersSerializer(Shape):
    """The newest dead letters. `complete` is false when reading stopped at its bounds (10 s, 32 MiB)."""

    results = DeadLetterSerializer(many=True, source="messages")
    total = serializers.CharField()
    complete = serializers.BooleanField()


class ExportQuerySerializer(Shape):
    """How to write the lines."""

    kind = serializers.ChoiceField(choices=["jsonl", "csv"], default="jsonl")


class ReplayCreateSerializer(Shape):
    """Which dead letters to send again, where to and how fast. A limit of 0 never stops it."""

    target = serializers.ChoiceField(choices=ReplayTarget.choices, default=ReplayTarget.RETRY_TOPIC)
    rate_per_second = serializers.IntegerField(min_value=1, max_value=RATE_MAX, default=10)
    stop_after_failures = serializers.IntegerField(min_value=0, max_value=10**6, default=10)
    stop_after_new_dead = serializers.IntegerField(min_value=0, max_value=10**6, default=100)
    places = serializers.ListField(
        child=serializers.CharField(max_length=300),
        required=False,
        allow_null=True,
        default=None,
        max_length=SELECTED_MAX,
        help_text="broker:queue:offset of each; left out: all that are stored now",
    )


class ReplayOutcomeSerializer(Shape):
    """A dead letter that was not surely sent."""

    broker_name = serializers.CharField()
    queue_id = serializers.IntegerField()
    offset = serializers.CharField()
    outcome = serializers.ChoiceField(choices=OUTCOMES)
    reason = serializers.CharField()


class ReplaySerializer(Shape):
    """A replay with its report. `unknown` ones were sent once without an answer, and are not sent again."""

    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    group = serializers.CharField(source="consumer_group")
    target = serializers.ChoiceField(choices=ReplayTarget.choices)
    state = serializers.ChoiceField(choices=ReplayState.choices)
    message = serializers.CharField(allow_blank=True)
    made_by = serializers.CharField()
    rate_per_second = serializers.IntegerField()
    stop_after_failures = serializers.IntegerField()
    stop_after_new_dead = serializers.IntegerField()
    total = serializers.CharField()
    sent = serializers.CharField()
    skipped = serializers.CharField()
    failed = serializers.CharField()
    unknown = serializers.CharField()
    gone = serializers.CharField(help_text="deleted by retention before their turn")
    outcomes = ReplayOutcomeSerializer(many=True)


class MessageConsumeSerializer(Shape):
    """Who is to handle a message: a connected member of a group."""

    group = serializers.CharField(max_length=255)
    client_id = serializers.CharField(max_length=512)


class HandledSerializer(Shape):
    """What the member says: `result` is RocketMQ's CMResult, such as CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION; UNKNOWN for any
    word that is none.
    """

    result = serializers.CharField()
    is_success = serializers.BooleanField(help_text="It would not ask for the message again.")
    remark = serializers.CharField(allow_blank=True)
    spent_ms = serializers.IntegerField()
    orderly = serializers.BooleanField(help_text="It handles messages in order, a queue at a time.")
