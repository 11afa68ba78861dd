"""Clusters and what they are made of; credentials; operations and their steps."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Value

from controlplane.clusters.operation_types import OperationType as OperationType
from controlplane.common.models import BaseModel
from controlplane.common.sentences import SentenceField, SentencesField, say
from controlplane.tenants.models import Tenant
from mqwire.mode import Mode


class ClusterMode(models.TextChoices):
    """The modes of a cluster (architecture.md, section 1): those of its groups, and MULTI for several groups of one replica."""

    SINGLE = Mode.SINGLE.value, say("Single")
    MULTI = "multi", say("Multi")
    ASYNC = Mode.ASYNC.value, say("Async")
    SYNC = Mode.SYNC.value, say("Sync")
    DLEDGER = Mode.DLEDGER.value, "DLedger"


# Groups of these modes have slaves; the leader is assigned, or, in DLEDGER, elected by them.
REPLICATED_MODES = (ClusterMode.ASYNC, ClusterMode.SYNC, ClusterMode.DLEDGER)


def in_sync_replicas_of(mode: str) -> int:
    """Return RocketMQ's inSyncReplicas in a mode."""
    return 2 if mode == ClusterMode.SYNC else 1


class FailoverPolicy(models.TextChoices):
    """What happens when a master is dead: an operator decides, or the control plane when nothing acknowledged is lost."""

    MANUAL = "manual"
    AUTOMATIC_WHEN_LOSSLESS = "automatic_when_lossless"


class FlushType(models.TextChoices):
    """RocketMQ's flushDiskType."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class ClusterState(models.TextChoices):
    """requested -> provisioning -> running; failed can be retried; any but deleted can be deleted.

    running -> suspending -> suspended -> resuming -> running. A deletion is running -> deleting -> deletion_pending, from where
    it is taken back (resuming) until its time is up (deleting -> deleted). A cluster that never ran is deleted at once.
    """

    REQUESTED = "requested"
    PROVISIONING = "provisioning"
    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    FAILED = "failed"
    DELETING = "deleting"
    DELETION_PENDING = "deletion_pending"
    DELETED = "deleted"


class Health(models.TextChoices):
    """What the last sample saw. UNKNOWN is never shown as fine."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    DOWN = "down"


class Cluster(BaseModel):
    """A tenant's cluster. `id` names its data directory; `slug` is its name in URLs and its brokerClusterName."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="clusters")
    slug = models.SlugField(max_length=40)
    name = models.CharField(max_length=100)
    mode = models.CharField(max_length=16, choices=ClusterMode.choices, default=ClusterMode.SINGLE)
    founded_mode = models.CharField(
        max_length=16, blank=True, db_default="", help_text="the mode at its creation, when it is another one by now"
    )
    flush_disk_type = models.CharField(max_length=16, choices=FlushType.choices, default=FlushType.ASYNC_FLUSH)
    failover_policy = models.CharField(
        max_length=32, choices=FailoverPolicy.choices, default=FailoverPolicy.MANUAL, db_default=FailoverPolicy.MANUAL
    )
    state = models.CharField(max_length=16, choices=ClusterState.choices, default=ClusterState.REQUESTED)
    error = SentencesField(null=True, help_text="{cause, hint} of the last failure")
    tls_ca = models.TextField(
        blank=True,
        db_default="",
        help_text="PEM of the CA that signs the daemons' certificates, and of its successor or predecessor; empty: no TLS",
    )
    tls_ca_key_encrypted = models.BinaryField(null=True)
    tls_next_key_encrypted = models.BinaryField(null=True, help_text="of the CA that will sign, while there is one")
    tls_ca_step_at = models.DateTimeField(
        null=True,
        help_text="when the next step of the CA's succession is due, where that is sooner than its end demands",
    )
    tls_renew_at = models.DateTimeField(null=True, help_text="when the daemons get fresh certificates")
    labels = models.JSONField(
        default=dict, db_default=Value({}, models.JSONField()), help_text="key -> value, as the tenant names them"
    )
    # Of one that was stopped on purpose: suspended, or deleted and still to be restored.
    stopped_at = models.DateTimeField(null=True, help_text="when that was asked for")
    stopped_by = models.CharField(max_length=254, blank=True, db_default="")
    stopped_because = models.CharField(max_length=200, blank=True, db_default="")
    delete_at = models.DateTimeField(null=True, help_text="until then a deletion can be taken back")
    deleted_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            # A deleted cluster's row stays for its history, but frees its name.
            models.UniqueConstraint(
                fields=["tenant", "slug"], condition=~models.Q(state="deleted"), name="cluster_tenant_slug"
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant.slug}/{self.slug}"

    @property
    def path(self) -> str:
        """The cluster's API path."""
        return f"{self.tenant.path}clusters/{self.slug}/"

    @property
    def is_replicated(self) -> bool:
        """Whether its groups have slaves."""
        return self.mode in REPLICATED_MODES

    @property
    def elects_leaders(self) -> bool:
        """Whether its groups elect their leaders: no one promotes there, and a majority confirms each send."""
        return self.mode == ClusterMode.DLEDGER

    @property
    def mode_at_creation(self) -> str:
        """The mode in which its groups were founded."""
        return self.founded_mode or self.mode

    @property
    def in_sync_replicas(self) -> int:
        """How many replicas hold a record before its send is acknowledged: RocketMQ's inSyncReplicas. It says nothing of
        a group that elects its leader, whose majority counts.
        """
        return in_sync_replicas_of(self.mode)

    @property
    def is_running(self) -> bool:
        return self.state == ClusterState.RUNNING

    @property
    def name_server_addresses(self) -> list[str]:
        """`host:port` of each name server that has a port, in order."""
        return [server.address for server in self.name_servers.all() if server.port is not None]

    @property
    def namesrv_addr(self) -> str:
        """The value that RocketMQ's clients call namesrvAddr: addresses joined by `;`."""
        return ";".join(self.name_server_addresses)


class Process(BaseModel):
    """What a name server and a replica share: one daemon with a port, a data directory and a health."""

    host = models.CharField(max_length=253)
    port = models.PositiveIntegerField(null=True, help_text="listenPort; null until allocated")
    data_dir = models.CharField(max_length=1024, blank=True)
    health = models.CharField(max_length=16, choices=Health.choices, default=Health.UNKNOWN)
    health_message = SentenceField(blank=True)
    health_since = models.DateTimeField(null=True, help_text="when `health` took its present value")
    sampled_at = models.DateTimeField(null=True)
    process_state = models.CharField(max_length=32, blank=True, help_text="the supervisor's word")
    process_started_at = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    @property
    def address(self) -> str:
        """`host:port`; raises ValueError before a port is allocated."""
        if self.port is None:
            raise ValueError(f"{self} has no port yet")
        return f"{self.host}:{self.port}"


class NameServer(Process):
    """One namesrvd."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="name_servers")
    position = models.PositiveSmallIntegerField()

    class Meta:
        ordering: ClassVar = ["position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "position"], name="name_server_cluster_position"),
            models.UniqueConstraint(fields=["host", "port"], name="name_server_host_port"),
        ]

    def __str__(self) -> str:
        return f"name server {self.position + 1}"


class BrokerGroup(BaseModel):
    """A CommitLog and its replicas. `name` is RocketMQ's brokerName."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="broker_groups")
    name = models.CharField(max_length=64)
    # Of a group that elects its leader.
    founding_peers = models.CharField(
        max_length=1024,
        blank=True,
        db_default="",
        help_text="dLegerPeers at its foundation; later ones restart no replica",
    )
    preferred_leader = models.PositiveIntegerField(null=True, help_text="replica id, as last asked for")
    replica_ids_used = models.PositiveIntegerField(
        default=0, db_default=0, help_text="ids below this one were given out: an id is never a second replica's"
    )

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["cluster", "name"], name="broker_group_cluster_name")]

    def __str__(self) -> str:
        return self.name


class Replica(Process):
    """One brokerd. `broker_id` is its replica id, stable for life; `broker_role` is its role at its very first start, empty
    in a group that elects its leader. Who leads now is what the failover app samples.
    """

    group = models.ForeignKey(BrokerGroup, on_delete=models.CASCADE, related_name="replicas")
    broker_id = models.PositiveIntegerField(default=0)
    broker_role = models.CharField(max_length=16, default="ASYNC_MASTER", blank=True)
    registered = models.BooleanField(null=True, help_text="known to every name server; null when not sampled")
    fenced = models.BooleanField(
        default=False, db_default=False, help_text="a failover stopped it: no one starts it until that is done"
    )

    class Meta:
        ordering: ClassVar = ["broker_id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["group", "broker_id"], name="replica_group_broker_id"),
            models.UniqueConstraint(fields=["host", "port"], name="replica_host_port"),
        ]

    def __str__(self) -> str:
        return f"{self.group.name} replica {self.broker_id}"


class CredentialRole(models.TextChoices):
    """ADMIN may send admin requests (mqadmin); APP may send and consume."""

    ADMIN = "admin"
    APP = "app"


class CredentialState(models.TextChoices):
    """A credential is ACTIVE once every master took it."""

    PENDING = "pending"
    ACTIVE = "active"
    DELETING = "deleting"


# What a credential may be limited to by itself.
CREDENTIAL_QUOTAS = ("quota_messages_per_second", "quota_bytes_per_second", "quota_connections", "quota_held_pulls")


class Credential(BaseModel):
    """An AccessKey and its secret, which is encrypted at rest. Its own quotas hold at each broker; null: the tenant's limits
    alone.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="credentials")
    name = models.CharField(max_length=100)
    access_key = models.CharField(max_length=64)
    secret_encrypted = models.BinaryField()
    role = models.CharField(max_length=16, choices=CredentialRole.choices, default=CredentialRole.APP)
    # The control plane's own; never listed, shown or deletable.
    is_control = models.BooleanField(default=False)
    state = models.CharField(max_length=16, choices=CredentialState.choices, default=CredentialState.PENDING)
    default_topic_perm = models.CharField(max_length=16, default="PUB|SUB")
    default_group_perm = models.CharField(max_length=16, default="SUB")
    topic_perms = models.JSONField(default=dict, help_text="topic -> DENY | PUB | SUB | PUB|SUB")
    group_perms = models.JSONField(default=dict, help_text="group -> DENY | SUB")
    quota_messages_per_second = models.PositiveBigIntegerField(null=True, help_text="of its sends, and of its pulls")
    quota_bytes_per_second = models.PositiveBigIntegerField(null=True, help_text="of its sends, and of its pulls")
    quota_connections = models.PositiveBigIntegerField(null=True)
    quota_held_pulls = models.PositiveBigIntegerField(null=True, help_text="pulls that wait for messages")
    ends_at = models.DateTimeField(null=True, help_text="refused everywhere from then on, and deleted")
    replaced_by = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="replaces")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "access_key"], name="credential_cluster_access_key"),
            models.UniqueConstraint(
                fields=["cluster"], condition=models.Q(is_control=True), name="credential_one_control"
            ),
        ]

    def __str__(self) -> str:
        return self.access_key

    @property
    def own_quotas(self) -> dict[str, int | None]:
        """Its own quotas, by field."""
        return {field: getattr(self, field) for field in CREDENTIAL_QUOTAS}


class CredentialKnower(BaseModel):
    """A person who made a credential, or looked at its secret: who leaves the tenant knows it still."""

    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, related_name="knowers")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    made = models.BooleanField(default=False, help_text="they made it; else they have seen its secret")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["credential", "user"], name="credential_knower_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user} knows {self.credential}"


class ConfigurationChange(BaseModel):
    """One change of what a cluster's brokers are to be configured with. The newest says what is wanted now."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="configuration_changes")
    number = models.PositiveIntegerField(help_text="1 for the first, without gaps")
    changes = models.JSONField(help_text="key -> [before, after]")
    configuration = models.JSONField(help_text="key -> value after it, without those that have their default")
    changed_by = models.CharField(max_length=254)
    put_back = models.PositiveIntegerField(null=True, help_text="number of the change that it takes back")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "number"], name="configuration_change_cluster_number")
        ]

    def __str__(self) -> str:
        return f"{self.cluster} configuration {self.number}"


# They change who leads a group, and nothing else.
LEADERSHIP = (
    OperationType.GROUP_PROMOTE,
    OperationType.GROUP_SWITCHOVER,
    OperationType.GROUP_TRANSFER,
    OperationType.GROUP_DRILL,
)


class OperationState(models.TextChoices):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Operation(BaseModel):
    """Long work on a resource: what the API answers 202 with and what the progress bar shows."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="operations")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="operations")
    type = models.CharField(max_length=32, choices=OperationType.choices)
    state = models.CharField(max_length=16, choices=OperationState.choices, default=OperationState.IN_PROGRESS)
    resource = models.CharField(max_length=512, help_text="API path of what is being changed")
    requested_by = models.CharField(max_length=254)
    waits = models.BooleanField(default=False, help_text="for other operations of its tenant; nothing of it has begun")
    metadata = SentencesField(default=dict)
    error = SentencesField(null=True, help_text="{cause, hint, step}")
    started_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster"], condition=models.Q(state="in_progress"), name="operation_one_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"{self.type} {self.resource}"

    @property
    def path(self) -> str:
        """The operation's API path."""
        return f"/api/v1/operations/{self.id}/"


class StepState(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class OperationStep(BaseModel):
    """One idempotent step.

    PENDING -> RUNNING is a compare-and-set that writes a fresh `claim`; only the holder of the claim may finish the
    step. A claim whose lease ran out (its worker died) is put back to PENDING by a beat task.
    """

    operation = models.ForeignKey(Operation, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveSmallIntegerField()
    name = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=StepState.choices, default=StepState.PENDING)
    claim = models.UUIDField(null=True)
    lease_until = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True, help_text="a waiting step looks again at this time")
    attempts = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    message = SentenceField(blank=True, help_text="what it waits for, or how it ended")

    class Meta:
        ordering: ClassVar = ["position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["operation", "position"], name="operation_step_position")
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.name}"
