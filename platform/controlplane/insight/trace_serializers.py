"""Shapes of the answer to “where is my message?”."""

from datetime import datetime

from rest_framework import serializers

from controlplane.common.strictness import Shape
from controlplane.insight.whereabouts import Holding, standing_next_at, traced_at
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES
from controlplane.topics.search import KEY_MAX_LENGTH
from controlplane.topics.serializers import MessageSerializer
from highwater.trace_story import TracedDelivery, TracedSend, TracedTransaction
from highwater.whereabouts import Cause, GroupStanding, Standing


class TraceQuerySerializer(Shape):
    """What to look for: a key or a message id, whole; in one topic or in all."""

    q = serializers.CharField(max_length=KEY_MAX_LENGTH, help_text="a key, the client's id (UNIQ_KEY) or the broker's")
    topic = serializers.CharField(max_length=255, required=False, default="", allow_blank=True)
    trace_topic = serializers.CharField(
        max_length=127,
        required=False,
        default="",
        allow_blank=True,
        help_text="where clients write trace records; empty: RMQ_SYS_TRACE_TOPIC",
    )
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)


class TracedSendSerializer(Shape):
    """A send by its producer's word; `address` is where it came from."""

    at = serializers.SerializerMethodField()
    address = serializers.CharField()
    group = serializers.CharField(allow_blank=True)
    topic = serializers.CharField(allow_blank=True)
    store_host = serializers.CharField(allow_blank=True)
    cost_ms = serializers.IntegerField(allow_null=True, help_text="until the broker's answer")
    body_size_bytes = serializers.IntegerField(allow_null=True)
    message_type = serializers.CharField(allow_blank=True)
    is_success = serializers.BooleanField()
    is_from_sender = serializers.BooleanField(
        allow_null=True, help_text="false: the message came from another address, so another program says this"
    )

    def get_at(self, send: TracedSend) -> datetime | None:
        """Return when it was sent."""
        return traced_at(send.at_ms)


class TracedDeliverySerializer(Shape):
    """A delivery by its consumer's word."""

    began_at = serializers.SerializerMethodField()
    address = serializers.CharField()
    group = serializers.CharField(allow_blank=True)
    retried = serializers.IntegerField(allow_null=True, help_text="deliveries before this one")
    cost_ms = serializers.IntegerField(allow_null=True, help_text="the handler's time")
    result = serializers.CharField(
        allow_blank=True,
        help_text="success, time_out, exception, returned_null or failed; empty: no record is about its end",
    )
    end_names_group = serializers.BooleanField(
        help_text="false: the record of its end names no group, so another program at this address may have written it"
    )

    def get_began_at(self, delivery: TracedDelivery) -> datetime | None:
        """Return when its handler began."""
        return traced_at(delivery.began_ms)


class TracedTransactionSerializer(Shape):
    """How a producer ended a transaction, by its word."""

    at = serializers.SerializerMethodField()
    address = serializers.CharField()
    group = serializers.CharField(allow_blank=True)
    state = serializers.CharField(allow_blank=True)
    is_from_sender = serializers.BooleanField(allow_null=True, help_text="as for a send")

    def get_at(self, transaction: TracedTransaction) -> datetime | None:
        """Return when it was ended."""
        return traced_at(transaction.at_ms)


class TraceStorySerializer(Shape):
    """What clients with tracing on recorded of a message, oldest first: their own word."""

    sends = TracedSendSerializer(many=True)
    deliveries = TracedDeliverySerializer(many=True)
    transactions = TracedTransactionSerializer(many=True)


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
    traces = TraceStorySerializer(allow_null=True, help_text="null: no message, or not known")
