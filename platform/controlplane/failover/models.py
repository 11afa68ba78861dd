"""Leadership of broker groups, the last word of each replica, and failovers with their timelines."""

from typing import ClassVar

from django.conf import settings
from django.db import models

from controlplane.accounts.models import ApiToken
from controlplane.clusters.models import BrokerGroup, Cluster, Operation, OperationState, Replica
from controlplane.common.models import BaseModel
from controlplane.common.sentences import SentenceField, say
from controlplane.consumers.models import PacedSending


class GroupLeadership(BaseModel):
    """Which epoch a group is in. `epoch` only grows, by `filter(pk=…, epoch=E).update(epoch=higher)` or, where the promotion's row
    changes with it, under a lock on both (promotion/rows.py): of two workers that raise it, one wins.

    `leader` is who was last seen leading in the newest epoch; None when no one was. `led_…` is of the moment at which it
    was last seen doing so: what was down before, and stayed down, cannot have led since. `asked` was told last to lead, in
    `asked_epoch`: written before it was, for its answer may be lost. The leader of `topics_epoch` was given its topics.
    `foreign_epoch` is of promotion/verdict.py.
    """

    group = models.OneToOneField(BrokerGroup, on_delete=models.CASCADE, related_name="leadership")
    epoch = models.BigIntegerField(default=0)
    leader = models.ForeignKey(Replica, on_delete=models.SET_NULL, null=True, related_name="+")
    led_at = models.DateTimeField(null=True)
    led_epoch = models.BigIntegerField(null=True)
    led_to_offset = models.BigIntegerField(null=True, help_text="where its log ended")
    asked = models.ForeignKey(Replica, on_delete=models.SET_NULL, null=True, related_name="+")
    asked_epoch = models.BigIntegerField(null=True)
    foreign_epoch = models.BigIntegerField(null=True)
    topics_epoch = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return f"{self.group} epoch {self.epoch}"


class ReplicaSample(BaseModel):
    """What a replica last reported of itself. Unknown is null, never 0; all offsets are of the CommitLog, in bytes.

    While it does not answer (`unreachable_since`), the rest is as old as `last_seen_at`.
    """

    replica = models.OneToOneField(Replica, on_delete=models.CASCADE, related_name="sample")
    sampled_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(null=True)
    unreachable_since = models.DateTimeField(null=True)
    error = models.CharField(max_length=512, blank=True)
    process_ended_at = models.DateTimeField(null=True, help_text="when the supervisor saw it end, while it is away")
    ran_unseen = models.BooleanField(
        default=False, help_text="its process ran again since it ended, and it never answered"
    )
    role = models.CharField(max_length=16, blank=True, help_text="master or slave; empty before it ever answered")
    epoch = models.BigIntegerField(null=True)
    log_epoch = models.BigIntegerField(null=True)
    end_offset = models.BigIntegerField(null=True)
    durable_offset = models.BigIntegerField(null=True)
    held_offset = models.BigIntegerField(null=True)
    confirm_offset = models.BigIntegerField(null=True)
    gap_bytes = models.BigIntegerField(
        null=True, help_text="behind the master, as the master counts; null when unknown"
    )
    gap_messages = models.BigIntegerField(null=True)
    in_sync = models.BooleanField(null=True)
    accepts_sends = models.BooleanField(null=True)
    refusal = models.CharField(max_length=512, blank=True)
    claims = models.BooleanField(
        null=True, help_text="it led when it stopped, and waits for every other replica's agreement to lead again"
    )
    promotable = models.BooleanField(null=True)
    not_promotable_because = models.CharField(max_length=512, blank=True)
    log_may_be_incomplete = models.BooleanField(default=False, db_default=False)
    shows_below = models.BooleanField(
        default=False, db_default=False, help_text="a leader shows readers what too few hold, while too few are in sync"
    )
    led_last_epoch = models.BooleanField(
        default=False,
        db_default=False,
        help_text="it led in its log's last epoch, and holds all that it has shown in that",
    )
    surely_held_by = models.IntegerField(
        null=True,
        help_text="so many replicas surely hold what is acknowledged, by its mode; null: it does not say",
    )
    follower_ids = models.JSONField(null=True, help_text="replica ids: who followed it when it was last seen leading")
    in_sync_epoch = models.BigIntegerField(
        null=True, help_text="whose leader had shown nothing, until in_sync_until, that"
    )
    in_sync_until = models.DateTimeField(null=True, help_text="this replica does not hold")
    disk = models.CharField(max_length=32, blank=True, db_default="", help_text="the last one whose word counted")
    disk_is_new = models.BooleanField(
        db_default=False,
        default=False,
        help_text="another was seen, and no leader has called one in sync",
    )
    disk_epoch = models.BigIntegerField(
        null=True, help_text="with disk_offset, the most that the disk was seen to hold"
    )
    disk_offset = models.BigIntegerField(null=True)
    diverged_files = models.IntegerField(null=True, help_text="saved cuts of a log that parted from its leader's")
    # Of a group that elects its leader.
    quorum = models.JSONField(null=True, help_text="mqwire's QuorumStatus: state, vote, voters, as it reported them")
    last_pull_at = models.DateTimeField(null=True, help_text="when it last pulled, as its leader counts")

    def __str__(self) -> str:
        return f"{self.replica} at {self.sampled_at:%H:%M:%S}"

    @property
    def answers(self) -> bool:
        """Whether it answered the last time it was asked."""
        return self.last_seen_at is not None and self.unreachable_since is None


class FailoverKind(models.TextChoices):
    """PROMOTE: requested, the master being away. SWITCHOVER: planned, both alive. AUTOMATIC: the detector asked.

    DRILL: the leader's process was stopped on purpose, to measure that.

    REPEAT: the detector gave the last master its role again, which a restart had made it ask for in vain. Of groups that
    elect their leader: TRANSFER, planned, to another voter; ELECTION, which no one ordered, noticed by a sample.
    """

    PROMOTE = "promote", say("Promote")
    SWITCHOVER = "switchover", say("Switchover")
    AUTOMATIC = "automatic", say("Automatic")
    REPEAT = "repeat", say("Promotion repeated")
    DRILL = "drill", say("Failover drill")
    TRANSFER = "transfer", say("Leadership transferred")
    ELECTION = "election", say("Election")


class Failover(BaseModel):
    """One change of a group's master. How far it is, its operation says; what happened, its steps. An election has
    no operation: no one ordered it. A drill's operation has two where the leadership is given back; the newest is under way.
    """

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, null=True, related_name="failovers")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="failovers")
    group_name = models.CharField(max_length=64)
    kind = models.CharField(max_length=16, choices=FailoverKind.choices)
    requested_by = models.CharField(max_length=254)
    candidate_id = models.PositiveIntegerField(help_text="replica id")
    old_master_id = models.PositiveIntegerField(
        null=True, help_text="replica id; null when no replica is known to have led"
    )
    expected_epoch = models.BigIntegerField(null=True, help_text="the fence, which the replicas promise; reserved")
    new_epoch = models.BigIntegerField(null=True, help_text="reserved for the promoted replica, by compare-and-set")
    decided_id = models.PositiveIntegerField(
        null=True, help_text="replica id: who leads in new_epoch, decided once by the promises"
    )
    may_lack = models.BooleanField(
        default=False, db_default=False, help_text="the log of decided_id was known to lack records at its end, perhaps"
    )
    confirmed_loss = models.BooleanField(default=False, help_text="an operator typed the group's name")
    lossless = models.BooleanField(null=True, help_text="nothing acknowledged is lost; null until the master is fenced")
    lossless_because = SentenceField(blank=True)
    bytes_at_risk = models.BigIntegerField(null=True)
    messages_at_risk = models.BigIntegerField(null=True)
    drained_offset = models.BigIntegerField(null=True, help_text="where the master's log ended when sends were held")
    fence = models.CharField(max_length=16, blank=True, help_text="demoted, stopped, or none")
    rejoined_at = models.DateTimeField(null=True)
    writes_stopped_at = models.DateTimeField(null=True, help_text="when the master last took sends, as far as known")
    writes_back_at = models.DateTimeField(null=True)
    measured_how = SentenceField(blank=True, db_default="", help_text="between which two moments")
    superseded_at = models.DateTimeField(null=True, help_text="another epoch began before anything was written")

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.kind} of {self.group_name} replica {self.candidate_id}"

    @property
    def path(self) -> str:
        """The failover's API path."""
        return f"{self.cluster.path}failovers/{self.id}/"

    @property
    def state(self) -> str:
        """in_progress, completed or failed. An election goes on until something is written."""
        if self.operation is not None:
            return self.operation.state
        over = self.writes_back_at is not None or self.superseded_at is not None
        return OperationState.COMPLETED if over else OperationState.IN_PROGRESS

    @property
    def asked_by(self) -> str:
        """Who asked for it, in words."""
        by_itself = self.kind in (FailoverKind.AUTOMATIC, FailoverKind.REPEAT)
        if self.kind == FailoverKind.ELECTION:
            return say("%(group)s itself", group=self.group_name)
        return say("Highwater itself") if by_itself else self.requested_by

    @property
    def outage_ms(self) -> int | None:
        """How long no send was taken, measured; None while that goes on or is not known."""
        if self.writes_stopped_at is None or self.writes_back_at is None:
            return None
        return max(0, round((self.writes_back_at - self.writes_stopped_at).total_seconds() * 1000))


class FailoverStep(BaseModel):
    """One line of the timeline. Each happens once, however often the work behind it is repeated."""

    failover = models.ForeignKey(Failover, on_delete=models.CASCADE, related_name="timeline")
    name = models.CharField(max_length=32)
    happened_at = models.DateTimeField()
    detail = SentenceField(blank=True)

    class Meta:
        ordering: ClassVar = ["happened_at", "created_at"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["failover", "name"], name="failover_step_once")]

    def __str__(self) -> str:
        return f"{self.failover} {self.name}"


class DrillFault(models.TextChoices):
    """What a drill does to the leader: KILL ends its process at once, HANG has it keep its connections and do nothing, CUT lets
    it run, and nothing in or out.
    """

    KILL = "kill", say("Killed")
    HANG = "hang", say("Hangs")
    CUT = "cut", say("Cut off")


class DrillVerdict(models.TextChoices):
    """PASSED: writes came back, and every acknowledged probe was there. LOST: some were not. NOT_MEASURED: no one can say."""

    PASSED = "passed"
    LOST = "lost"
    NOT_MEASURED = "not_measured", "Not measured"


class Drill(BaseModel):
    """A failover drill, and its report. How far it is, its operation says; what happened, its failover's timeline.

    `probes` is what the prober writes down as it goes: [sent, answered, answer] for each, milliseconds since
    `probing_started_at`. The report is written once, when `judged_at` is.
    """

    operation = models.OneToOneField(Operation, on_delete=models.CASCADE, related_name="drill")
    failover = models.OneToOneField(Failover, on_delete=models.CASCADE, related_name="drill")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drills")
    group_name = models.CharField(max_length=64)
    mode = models.CharField(max_length=16, help_text="the cluster's mode at that time")
    fault = models.CharField(max_length=16, choices=DrillFault.choices, default=DrillFault.KILL)
    gives_back = models.BooleanField(default=False, help_text="the old leader is to lead again afterwards")
    requested_by = models.CharField(max_length=254)
    leader_id = models.PositiveIntegerField(help_text="replica id: who led, and was stopped")
    prober = models.UUIDField(null=True, help_text="whose probes count: a prober that finds another one here ends")
    probing_started_at = models.DateTimeField(null=True)
    probed_at = models.DateTimeField(null=True, help_text="when the prober last wrote")
    probing_until = models.DateTimeField(null=True, help_text="set to end the probing")
    probing_ended_at = models.DateTimeField(null=True)
    probes = models.JSONField(default=list)
    first_queue_offset = models.BigIntegerField(null=True, help_text="of the first probe that was stored")
    fault_at = models.DateTimeField(null=True)
    fault_ended_at = models.DateTimeField(
        null=True, help_text="when the process had surely been killed, or started again"
    )
    judged_at = models.DateTimeField(null=True)
    verdict = models.CharField(max_length=16, choices=DrillVerdict.choices, blank=True)
    verdict_because = SentenceField(blank=True)
    rto_ms = models.BigIntegerField(null=True, help_text="the longest time without an accepted write after the fault")
    outage_from_ms = models.BigIntegerField(null=True, help_text="since probing_started_at")
    probes_sent = models.PositiveIntegerField(null=True)
    probes_acknowledged = models.PositiveIntegerField(null=True)
    probes_missing = models.PositiveIntegerField(
        null=True, help_text="acknowledged, and not in the log afterwards; null when that could not be read"
    )

    class Meta:
        ordering: ClassVar = ["-created_at"]

    def __str__(self) -> str:
        return f"drill of {self.group_name} replica {self.leader_id}"

    @property
    def path(self) -> str:
        """The drill's API path."""
        return f"{self.cluster.path}drills/{self.id}/"

    @property
    def state(self) -> str:
        """in_progress, completed or failed."""
        return self.operation.state


class DrillWindowState(models.TextChoices):
    """WAITING for its window or for a healthy group. SKIPPED: the window passed, or who ordered it may not any more; `because`
    says which.
    """

    WAITING = "waiting", say("Waiting")
    STARTED = "started", say("Begun")
    SKIPPED = "skipped", say("Skipped")
    CANCELLED = "cancelled", say("Cancelled")


class DrillWindow(BaseModel):
    """A drill that is ordered for a window: it begins once within it, when the group is healthy and nothing else is in progress."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="drill_windows")
    group_name = models.CharField(max_length=64)
    fault = models.CharField(max_length=16, choices=DrillFault.choices, default=DrillFault.KILL)
    gives_back = models.BooleanField(default=False, help_text="the old leader is to lead again afterwards")
    opens_at = models.DateTimeField()
    closes_at = models.DateTimeField(help_text="it begins before this, or not at all; it may end later")
    state = models.CharField(max_length=16, choices=DrillWindowState.choices, default=DrillWindowState.WAITING)
    because = SentenceField(blank=True, help_text="why it did not begin at the last look, or was skipped")
    requested_by = models.CharField(max_length=254)
    # Who is asked for the right again when it begins: at most one of the two. Neither: the platform itself, or who is gone.
    orderer = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    orderer_token = models.ForeignKey(ApiToken, on_delete=models.SET_NULL, null=True, related_name="+")
    by_platform = models.BooleanField(default=False)
    drill = models.OneToOneField(Drill, on_delete=models.SET_NULL, null=True, related_name="window")

    class Meta:
        ordering: ClassVar = ["-created_at"]
        indexes: ClassVar = [
            models.Index(fields=["opens_at"], condition=models.Q(state="waiting"), name="drill_window_waiting")
        ]

    def __str__(self) -> str:
        return f"drill of {self.group_name} from {self.opens_at:%Y-%m-%d %H:%M} on"

    @property
    def path(self) -> str:
        """The window's API path."""
        return f"{self.cluster.path}drill-windows/{self.pk}/"


class DivergedResend(PacedSending):
    """Messages of a saved cut that are sent again. `next` and `end` of its ranges are positions in the file; an outcome's place
    is {position, topic, queue_id, offset}.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="diverged_resends")
    group_name = models.CharField(max_length=64)
    replica_id = models.PositiveIntegerField(help_text="whose disk holds the cut")
    file_name = models.CharField(max_length=128)

    class Meta:
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "group_name", "replica_id", "file_name"],
                condition=models.Q(state="running"),
                name="diverged_resend_one_at_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.file_name} of {self.group_name} replica {self.replica_id}"

    @property
    def path(self) -> str:
        """The resend's API path."""
        return f"{self.cluster.path}diverged-resends/{self.pk}/"


class DivergedDone(BaseModel):
    """Someone has dealt with a saved cut: no one needs to look at it again."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="diverged_done")
    group_name = models.CharField(max_length=64)
    replica_id = models.PositiveIntegerField()
    file_name = models.CharField(max_length=128)
    note = models.CharField(max_length=500, blank=True)
    made_by = models.CharField(max_length=254)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "group_name", "replica_id", "file_name"], name="diverged_done_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.file_name} of {self.group_name} replica {self.replica_id}"
