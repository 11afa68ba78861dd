"""Offset resets, kept so that they can be undone."""

from typing import Any, ClassVar
from urllib.parse import quote

from django.db import models

from controlplane.clusters.models import Cluster
from controlplane.common.models import BaseModel


class ResetTarget(models.TextChoices):
    """Where a group is to go on. UNDO: where it was before another reset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    SHIFT = "shift"
    GROUP = "group"
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
    details = models.JSONField(default=dict, help_text="timestamp, shift or source_group, as asked")
    queues: Any = models.JSONField(default=list)
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
