"""Shapes of saved cuts and of resends."""

from rest_framework import serializers

from controlplane.common.strictness import Shape
from controlplane.consumers.models import ReplayState
from controlplane.consumers.paced import OUTCOMES, RATE_MAX, SELECTED_MAX
from controlplane.failover.diverged.cuts import PAGE_MAX
from controlplane.topics.bodies import BODY_SHOWN_MAX_BYTES, BodyForm
from controlplane.topics.serializers import ShownBodySerializer
from highwater.diverged import Fate


class TopicCountSerializer(Shape):
    """How many messages of a topic a cut holds."""

    topic = serializers.CharField()
    messages = serializers.CharField()


class CutDoneSerializer(Shape):
    """Who has dealt with a cut, and when."""

    made_by = serializers.CharField()
    made_at = serializers.DateTimeField(source="updated_at")
    note = serializers.CharField(allow_blank=True)


class SavedCutSerializer(Shape):
    """What a replica keeps of what was cut from its log."""

    group = serializers.CharField(source="group_name")
    replica_id = serializers.IntegerField()
    name = serializers.CharField()
    reason = serializers.ChoiceField(
        choices=["diverged", "power_cut"],
        help_text="diverged: the leader never had them; power_cut: recovery could not trust the end of the log",
    )
    why = serializers.CharField()
    epoch = serializers.CharField(allow_null=True)
    cut_at = serializers.DateTimeField(allow_null=True)
    size_bytes = serializers.CharField()
    left_out_bytes = serializers.CharField(help_text="so much at the end of a very long cut was not kept")
    is_counted = serializers.BooleanField(help_text="false: the numbers are of the file's beginning; ask again")
    messages = serializers.CharField()
    own_records = serializers.CharField(help_text="records of the broker's own, which no consumer reads")
    topics = TopicCountSerializer(many=True)
    first_stored_at = serializers.DateTimeField(allow_null=True)
    last_stored_at = serializers.DateTimeField(allow_null=True)
    done = CutDoneSerializer(allow_null=True)


class SilentReplicaSerializer(Shape):
    """A replica that did not say which cuts it keeps."""

    group = serializers.CharField(source="group_name")
    replica_id = serializers.IntegerField()
    error = serializers.CharField()


class SavedCutsSerializer(Shape):
    """Saved cuts of all replicas that answered, newest first. What `silent` ones keep is not known."""

    results = SavedCutSerializer(many=True, source="cuts")
    silent = SilentReplicaSerializer(many=True)


class CutPageQuerySerializer(Shape):
    """Where to read, and how bodies are shown."""

    position = serializers.IntegerField(min_value=0, max_value=2**62, default=0)
    limit = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=20)
    body_limit_bytes = serializers.IntegerField(min_value=0, max_value=BODY_SHOWN_MAX_BYTES, default=4096)
    body_as = serializers.ChoiceField(
        choices=[form.value for form in BodyForm],
        default=BodyForm.AUTO.value,
        help_text="a body that is not of this form is shown as auto does",
    )


class CutMessageSerializer(Shape):
    """A message of a cut, and what the group has of it."""

    position = serializers.CharField(help_text="in the file, as a resend takes it")
    topic = serializers.CharField()
    queue_id = serializers.IntegerField(source="message.queue_id")
    queue_offset = serializers.CharField(source="message.queue_offset")
    born_at = serializers.DateTimeField(source="message.born_at", allow_null=True)
    stored_at = serializers.DateTimeField(source="message.stored_at")
    message_id = serializers.CharField(source="message.message_id")
    tags = serializers.CharField(source="message.tags", allow_blank=True)
    keys = serializers.ListField(source="message.keys", child=serializers.CharField())
    properties = serializers.DictField(source="message.properties", child=serializers.CharField())
    body = ShownBodySerializer(source="message.body")
    masked = serializers.ListField(
        source="message.masked",
        child=serializers.CharField(),
        help_text="what is hidden from your role: body, and names of properties",
    )
    fate = serializers.ChoiceField(
        choices=[one.value for one in Fate if one is not Fate.INTERNAL],
        allow_null=True,
        help_text="what the group has of it now; null: no one answered in time",
    )
    fate_words = serializers.CharField()
    not_sent_because = serializers.CharField(allow_blank=True, help_text="why it can't be sent again; empty: it can")


class CutPageSerializer(Shape):
    """Messages in the order of the log. `next_position` is null at the end."""

    results = CutMessageSerializer(many=True, source="messages")
    own_records = serializers.IntegerField(help_text="records of the broker's own that were passed over")
    next_position = serializers.CharField(allow_null=True)


class CutDoneRequestSerializer(Shape):
    """Whether someone has dealt with the cut."""

    done = serializers.BooleanField(default=True)
    note = serializers.CharField(max_length=500, allow_blank=True, default="")


class CutDeleteSerializer(Shape):
    """`confirm` is the group's name."""

    confirm = serializers.CharField(max_length=64, allow_blank=True, default="")


class ResendCreateSerializer(Shape):
    """Which messages to send again, and how fast. A limit of 0 never stops it."""

    rate_per_second = serializers.IntegerField(min_value=1, max_value=RATE_MAX, default=10)
    stop_after_failures = serializers.IntegerField(min_value=0, max_value=10**6, default=10)
    positions = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=2**62),
        required=False,
        allow_null=True,
        default=None,
        max_length=SELECTED_MAX,
        help_text="where each begins in the file; left out: all",
    )


class ResendOutcomeSerializer(Shape):
    """A message that was not surely sent."""

    position = serializers.CharField()
    topic = serializers.CharField()
    queue_id = serializers.IntegerField()
    offset = serializers.CharField()
    outcome = serializers.ChoiceField(choices=OUTCOMES)
    reason = serializers.CharField()


class DivergedResendSerializer(Shape):
    """A resend with its report. `unknown` ones were sent once without an answer, and are not sent again."""

    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    group = serializers.CharField(source="group_name")
    replica_id = serializers.IntegerField()
    name = serializers.CharField(source="file_name")
    state = serializers.ChoiceField(choices=ReplayState.choices)
    message = serializers.CharField(allow_blank=True)
    made_by = serializers.CharField()
    rate_per_second = serializers.IntegerField()
    stop_after_failures = serializers.IntegerField()
    total = serializers.CharField()
    sent = serializers.CharField()
    skipped = serializers.CharField(help_text="the group has them, or they can't be sent")
    failed = serializers.CharField()
    unknown = serializers.CharField()
    gone = serializers.CharField(help_text="deleted before their turn")
    outcomes = ResendOutcomeSerializer(many=True)
