"""Offset resets, kept so that they can be undone."""

from typing import Any, ClassVar
from urllib.parse import quote

from django.db import models

from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel
from controlplane.common.sentences import SentenceField, SentencesField


class ResetTarget(models.TextChoices):
    """Where a group is to go on. UNDO: where it was before another reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    SHIFT = "shift"
    GROUP = "group"
    OFFSETS = "offsets"
    UNDO = "undo"


class OffsetReset(BaseModel):
    """One reset of a group in one topic. It is written before the brokers are asked, so that a crash leaves the old offsets.

    `queues`: list of {broker_name, queue_id, before, after, outcome, error}. `outcome`: done, failed (the broker refused, nothing
    changed), unknown (no answer: done or not).
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="offset_resets")
    consumer_group = models.CharField(max_length=255)
    topic = models.CharField(max_length=255)
    target = models.CharField(max_length=16, choices=ResetTarget.choices)
    details = models.JSONField(default=dict, help_text="timestamp, shift, source_group or offsets, as asked")
    queues: Any = SentencesField(default=list)
    made_by = models.CharField(max_length=254)
    undoes = models.OneToOneField("self", on_delete=models.CASCADE, null=True, related_name="undone_by")

    class Meta:
        ordering: ClassVar = ["-created_at"]
        indexes: ClassVar = [
            models.Index(fields=["cluster", "consumer_group", "-created_at"], name="offset_reset_of_group")
        ]

    def __str__(self) -> str:
        return f"{self.consumer_group} on {self.topic} to {self.target}"

    @property
    def path(self) -> str:
        """The reset's API path."""
        return f"{self.cluster.path}consumer-groups/{quote(self.consumer_group, safe='')}/offset-resets/{self.pk}/"

    @property
    def done_count(self) -> int:
        """Queues that a broker has confirmed."""
        return sum(one["outcome"] == "done" for one in self.queues)


class ReplayTarget(models.TextChoices):
    """RETRY_TOPIC: only the group gets the messages again. ORIGINAL_TOPIC: every group that consumes it does."""

    RETRY_TOPIC = "retry_topic"
    ORIGINAL_TOPIC = "original_topic"


class ReplayState(models.TextChoices):
    """STOPPED: a stop rule ended it."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


class PacedSending(BaseModel):
    """Stored messages that are sent again, at a rate (paced.py). Not an Operation: a cluster has one at a time, and a promotion
    must not wait for this.

    `ranges`: list of what is still to be sent, each with `next` and `end`. A message is noted in `in_flight`, and `next`
    passes it, before it is sent: a worker that goes on after another's death never sends it twice, but reports it as `unknown`.
    `outcomes`: the first of those that were skipped, failed or unknown: its place, `outcome` and `reason`.
    The worker holds `claim` until `lease_until`.
    """

    state = models.CharField(max_length=16, choices=ReplayState.choices, default=ReplayState.RUNNING)
    rate_per_second = models.PositiveIntegerField()
    stop_after_failures = models.PositiveIntegerField()
    ranges: Any = models.JSONField()
    in_flight: Any = models.JSONField(null=True)
    total = models.BigIntegerField()
    sent = models.BigIntegerField(default=0)
    skipped = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    unknown = models.BigIntegerField(default=0)
    failures_before = models.BigIntegerField(default=0, help_text="failed and unknown before it was last continued")
    gone = models.BigIntegerField(default=0, help_text="deleted by retention before their turn")
    outcomes: Any = SentencesField(default=list)
    message = SentenceField(blank=True, help_text="what it waits for, or how it ended")
    made_by = models.CharField(max_length=254)
    claim = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    cluster: Any

    class Meta:
        abstract = True

    @property
    def path(self) -> str:
        """Its API path."""
        raise NotImplementedError  # each kind of paced sending has an address of its own

    @property
    def done(self) -> int:
        """Messages that have had their turn."""
        return self.sent + self.skipped + self.failed + self.unknown + self.gone


class DeadLetterReplay(PacedSending):
    """Dead letters of a group that are sent again.

    A range has broker_name and queue_id too, and its `next` and `end` are offsets of the dead-letter topic. An outcome's place is
    {broker_name, queue_id, offset}.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="dead_letter_replays")
    consumer_group = models.CharField(max_length=255)
    target = models.CharField(max_length=16, choices=ReplayTarget.choices)
    stop_after_new_dead = models.PositiveIntegerField()
    dead_at_start = models.BigIntegerField(help_text="the sum of the dead-letter queues' ends when it began")

    class Meta:
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "consumer_group"],
                condition=models.Q(state="running"),
                name="dead_letter_replay_one_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"dead letters of {self.consumer_group} to {self.target}"

    @property
    def path(self) -> str:
        """The replay's API path."""
        return (
            f"{self.cluster.path}consumer-groups/{quote(self.consumer_group, safe='')}/dead-letter-replays/{self.pk}/"
        )
