"""Topics. A row mirrors what was created on every master of the cluster."""

import hashlib
from typing import ClassVar
from urllib.parse import quote

from django.db import models

from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel
from controlplane.common.sentences import SentencesField, say
from controlplane.tenants.models import Role, Tenant


class TopicState(models.TextChoices):
    """FAILED: the last request to the brokers failed or went unanswered; asking again is safe."""

    CREATING = "creating"
    ACTIVE = "active"
    DELETING = "deleting"
    FAILED = "failed"


class MessageType(models.TextChoices):
    """RocketMQ 5's topic attribute `message.type`. Topics of before may be TRANSACTION, which brokers do not serve yet."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    MIXED = "MIXED"
    TRANSACTION = "TRANSACTION"


class Topic(BaseModel):
    """`perm` is RocketMQ's: 4 read, 2 write, 6 both. Limits are the whole topic's, which brokers share; null: it has none."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="topics")
    name = models.CharField(max_length=127)
    description = models.CharField(max_length=500, blank=True)
    read_queue_nums = models.PositiveIntegerField(default=8)
    write_queue_nums = models.PositiveIntegerField(default=8)
    perm = models.PositiveSmallIntegerField(default=6)
    message_type = models.CharField(max_length=16, choices=MessageType.choices, default=MessageType.NORMAL)
    retention_hours = models.PositiveIntegerField(null=True, help_text="null: as the brokers keep messages")
    retention_bytes = models.PositiveBigIntegerField(null=True, help_text="the oldest messages go past it")
    quota_messages_per_second = models.PositiveBigIntegerField(null=True, help_text="of its sends")
    quota_bytes_per_second = models.PositiveBigIntegerField(null=True, help_text="of its sends")
    quota_stored_bytes = models.PositiveBigIntegerField(null=True, help_text="past it sends are refused")
    quota_held_pulls = models.PositiveBigIntegerField(null=True, help_text="of pulls that wait for its messages")
    state = models.CharField(max_length=16, choices=TopicState.choices, default=TopicState.CREATING)
    error = SentencesField(null=True, help_text="{cause, hint} of the last failure")

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["cluster", "name"], name="topic_cluster_name")]

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> str:
        """The topic's API path (`%` and `|` are percent-encoded)."""
        return f"{self.cluster.path}topics/{quote(self.name, safe='')}/"


class ResendOutcome(models.TextChoices):
    """SENDING stays when the worker that sent it died: then it may be stored or not, as with UNKNOWN."""

    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"


class MessageResend(BaseModel):
    """A stored message that was sent again as a new one. The `new_…` fields, `message_id` and `status` are of the new one."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="resends")
    broker_name = models.CharField(max_length=127)
    queue_id = models.PositiveIntegerField()
    queue_offset = models.BigIntegerField()
    target_topic = models.CharField(max_length=127)
    outcome = models.CharField(max_length=16, choices=ResendOutcome.choices, default=ResendOutcome.SENDING)
    message_id = models.CharField(max_length=255, blank=True)
    status = models.CharField(max_length=32, blank=True, help_text="RocketMQ's SendStatus")
    new_broker_name = models.CharField(max_length=127, blank=True)
    new_queue_id = models.PositiveIntegerField(null=True)
    new_queue_offset = models.BigIntegerField(null=True)
    made_by = models.CharField(max_length=254)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["topic", "broker_name", "queue_id", "queue_offset"], name="resend_place")
        ]

    def __str__(self) -> str:
        return f"{self.topic} {self.broker_name}/{self.queue_id}/{self.queue_offset} {self.outcome}"


class TopicSchema(BaseModel):
    """Which protobuf message the bodies of a topic are, as a member of the tenant says. See `topics.protobuf_bodies`."""

    topic = models.OneToOneField(Topic, on_delete=models.CASCADE, related_name="schema")
    descriptor_set = models.BinaryField(help_text="a serialized FileDescriptorSet")
    message = models.CharField(max_length=255, help_text="its full name")
    made_by = models.CharField(max_length=254)

    def __str__(self) -> str:
        return f"{self.topic}: {self.message}"

    @property
    def path(self) -> str:
        """The schema's API path."""
        return f"{self.topic.path}schema/"

    @property
    def size_bytes(self) -> int:
        """Bytes of the descriptor set."""
        return len(self.descriptor_set)

    @property
    def sha256(self) -> str:
        """SHA-256 of the descriptor set, in hexadecimal."""
        return hashlib.sha256(self.descriptor_set).hexdigest()


class MaskedPart(models.TextChoices):
    """What a masking rule is about."""

    BODY = "body", say("Body")
    PROPERTY = "property", say("Property")


class MaskingRule(BaseModel):
    """What of the tenant's messages is hidden from roles below `visible_from`. `topic` and `pattern` as in `topics.masking`."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="masking_rules")
    topic = models.CharField(max_length=127, default="*", help_text="a name in any cluster; * and ? may be in it")
    part = models.CharField(max_length=16, choices=MaskedPart.choices)
    pattern = models.CharField(max_length=200)
    withholds = models.BooleanField(default=True, help_text="a body that is no JSON object or array is not shown")
    visible_from = models.CharField(max_length=16, choices=Role.choices, help_text="the least role that sees it")
    created_by = models.CharField(max_length=254)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "topic", "part", "pattern", "visible_from"], name="masking_rule_unique"
            )
        ]

    def __str__(self) -> str:
        return f"{self.part} {self.pattern} of {self.topic}"

    @property
    def path(self) -> str:
        """The rule's API path."""
        return f"{self.tenant.path}masking-rules/{self.pk}/"
