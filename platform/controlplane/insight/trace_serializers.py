"""Shapes of the answer to “where is my message?”."""

from datetime import datetime

from rest_framework import serializers

from controlplane.common.strictness import Shape
from controlplane.insight.whereabouts import Holding, standing_next_at
from controlplane.topics.gateway import BODY_SHOWN_MAX_BYTES
from controlplane.topics.search import KEY_MAX_LENGTH
from controlplane.topics.serializers import MessageSerializer
from highwater.whereabouts import Cause, GroupStanding, Standing


class TraceQuerySerializer(Shape):
    """What to look for: a key or a message id, whole; in one topic or in all."""

    q = serializers.CharField(max_length=KEY_MAX_LENGTH, help_text="a key, the client's id (UNIQ_KEY) or the broker's")
    topic = serializers.CharField(max_length=255, required=False, default="", allow_blank=True)
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)


class ReplicaHoldingSerializer(Shape):
    """Whether one replica of the message's broker group holds it."""

    replica_id = serializers.IntegerField()
    role = serializers.CharField(allow_blank=True, help_text="master or slave; empty: not known")
    holding = serializers.ChoiceField(choices=[one.value for one in Holding])
    sentence = serializers.CharField()
    as_of = serializers.DateTimeField(allow_null=True)


class GroupStandingSerializer(Shape):
    """Where the message stands for one consumer group."""

    group = serializers.CharField()
    standing = serializers.ChoiceField(choices=[one.value for one in Standing])
    sentence = serializers.CharField()
    offset = serializers.CharField(allow_null=True, help_text="the group's, in the message's queue")
    before = serializers.CharField(allow_null=True, help_text="messages that the group gets first")
    tries = serializers.IntegerField(allow_null=True, help_text="deliveries that failed")
    next_at = serializers.SerializerMethodField(help_text="when it is delivered again")

    def get_next_at(self, standing: GroupStanding) -> datetime | None:
        """Return when it is delivered again."""
        return standing_next_at(standing)


class ReasonSerializer(Shape):
    """One reason why nothing was found."""

    cause = serializers.ChoiceField(choices=[one.value for one in Cause])
    sentence = serializers.CharField()
    attempt = serializers.CharField(help_text="what to try")


class WhereaboutsSerializer(Shape):
    """What is known of a message. `message` is the newest of `matches`, or the original of that copy; null: see `reasons`."""

    message = MessageSerializer(allow_null=True)
    topic = serializers.CharField(allow_blank=True)
    matches = MessageSerializer(many=True)
    original_is_gone = serializers.BooleanField(help_text="only a copy is left, in a retry topic or among dead letters")
    delayed_until = serializers.DateTimeField(allow_null=True)
    is_half = serializers.BooleanField(help_text="of a transaction that was neither committed nor rolled back")
    is_confirmed = serializers.BooleanField(allow_null=True, help_text="below the high watermark; null: not known")
    replicas = ReplicaHoldingSerializer(many=True)
    groups = GroupStandingSerializer(many=True)
    groups_left_out = serializers.IntegerField()
    reasons = ReasonSerializer(many=True)
