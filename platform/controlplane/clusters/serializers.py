"""Shapes of the clusters API."""

from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.clusters.certificates import Succession, authority_ends_at, next_signs_at, succession
from controlplane.clusters.credential_services import EXCEPTIONS_MAX, OVERLAP_HOURS_MAX
from controlplane.clusters.labels import KEY_PATTERN, LABELS_MAX, TEXT_CHARACTERS_MAX, VALUE_PATTERN
from controlplane.clusters.lifecycle import REASON_CHARACTERS_MAX
from controlplane.clusters.limits import LIMIT_MAX
from controlplane.clusters.models import (
    Cluster,
    ClusterMode,
    ClusterState,
    CredentialRole,
    CredentialState,
    FailoverPolicy,
    FlushType,
    Health,
    Operation,
    OperationState,
    OperationType,
    StepState,
)
from controlplane.clusters.selectors import cluster_health, operation_view
from controlplane.clusters.services import Growth
from controlplane.common.strictness import Shape
from controlplane.tenants.serializers import NewSlug, TypedSlug


@extend_schema_field(
    {
        "type": "object",
        "maxProperties": LABELS_MAX,
        "propertyNames": {"pattern": f"^{KEY_PATTERN}$"},
        "additionalProperties": {"type": "string", "maxLength": TEXT_CHARACTERS_MAX, "pattern": f"^{VALUE_PATTERN}$"},
        "examples": [{"env": "prod", "team": "checkout"}],
    }
)
class LabelsField(serializers.DictField):
    """`key=value` pairs; services check them, and say which rule one breaks."""

    child = serializers.CharField(max_length=TEXT_CHARACTERS_MAX, allow_blank=True, trim_whitespace=False)


class ErrorSerializer(Shape):
    """Why something failed, and what to do."""

    cause = serializers.CharField()
    hint = serializers.CharField(allow_blank=True, required=False)
    step = serializers.CharField(required=False)


class ClusterHealthSerializer(Shape):
    """As of the last sample. `unknown` when there is none."""

    status = serializers.ChoiceField(choices=Health.choices)
    sentences = serializers.ListField(child=serializers.CharField())
    since = serializers.DateTimeField(allow_null=True)
    sampled_at = serializers.DateTimeField(allow_null=True)


class ProcessSerializer(Shape):
    """One daemon."""

    host = serializers.CharField()
    port = serializers.IntegerField(allow_null=True)
    health = serializers.ChoiceField(choices=Health.choices)
    health_message = serializers.CharField(allow_blank=True)
    health_since = serializers.DateTimeField(allow_null=True)
    sampled_at = serializers.DateTimeField(allow_null=True)


class NameServerSerializer(ProcessSerializer):
    """A namesrvd."""

    position = serializers.IntegerField()


class ReplicaSerializer(ProcessSerializer):
    """A brokerd. `broker_id` is its replica id, stable for life; `groups/` says which replica leads."""

    broker_id = serializers.IntegerField()
    broker_role = serializers.CharField(
        help_text="its role at its very first start; empty where the leader is elected", allow_blank=True
    )
    registered = serializers.BooleanField(allow_null=True)


class BrokerGroupSerializer(Shape):
    """A CommitLog and its replicas."""

    name = serializers.CharField()
    replicas = ReplicaSerializer(many=True, source="replicas.all")


class ClusterStoppedSerializer(Shape):
    """Who suspended or deleted a cluster, and when."""

    since = serializers.DateTimeField(source="stopped_at", help_text="when it was asked for")
    by = serializers.CharField(source="stopped_by")
    reason = serializers.CharField(source="stopped_because", allow_blank=True)
    delete_at = serializers.DateTimeField(
        allow_null=True, help_text="until then the deletion can be taken back; null: it is suspended, or being removed"
    )


class ClusterSerializer(Shape):
    """A cluster."""

    id = serializers.UUIDField()
    slug = serializers.SlugField()
    name = serializers.CharField()
    path = serializers.CharField()
    mode = serializers.ChoiceField(choices=ClusterMode.choices)
    flush_disk_type = serializers.ChoiceField(choices=FlushType.choices)
    failover_policy = serializers.ChoiceField(choices=FailoverPolicy.choices)
    labels = LabelsField()
    state = serializers.ChoiceField(choices=ClusterState.choices)
    error = ErrorSerializer(allow_null=True)
    stopped = serializers.SerializerMethodField()
    health = serializers.SerializerMethodField()
    namesrv_addr = serializers.CharField(help_text="RocketMQ's namesrvAddr; empty until ports are allocated")
    tls_ca = serializers.CharField(
        help_text="PEM of the CA that signs the daemons' certificates, for clients with `useTLS`; empty: no TLS"
    )
    tls_ca_ends_at = serializers.SerializerMethodField(
        help_text="when that CA ends; another one takes its place before"
    )
    tls_ca_changes_at = serializers.SerializerMethodField(
        help_text="from when on the next CA signs: `tls_ca` has both, and programs need it by then; null: none is coming"
    )
    tls_ca_next_step = serializers.SerializerMethodField(
        help_text="of the CA's renewal: what is taken next, and may be taken now by `certificate-authority/renew/`"
    )
    tls_ca_next_step_at = serializers.SerializerMethodField(help_text="when that step is taken by itself")
    name_servers = NameServerSerializer(many=True, source="name_servers.all")
    broker_groups = BrokerGroupSerializer(many=True, source="broker_groups.all")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    @extend_schema_field(ClusterStoppedSerializer(allow_null=True))
    def get_stopped(self, cluster: Cluster) -> dict[str, Any] | None:
        """Return who stopped the cluster on purpose; None when no one did."""
        return None if cluster.stopped_at is None else dict(ClusterStoppedSerializer(cluster).data)

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_tls_ca_ends_at(self, cluster: Cluster) -> datetime | None:
        """Return when the CA ends; None where there is none."""
        return authority_ends_at(cluster.tls_ca) if cluster.tls_ca else None

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_tls_ca_changes_at(self, cluster: Cluster) -> datetime | None:
        """Return when the next CA begins to sign; None when none is coming."""
        return next_signs_at(cluster.tls_ca, cluster.tls_ca_step_at) if cluster.tls_ca else None

    @extend_schema_field(
        serializers.ChoiceField(choices=[(one.value, one.value) for one in Succession], allow_null=True)
    )
    def get_tls_ca_next_step(self, cluster: Cluster) -> str | None:
        """Return the next step of the CA's renewal; None where there is none."""
        return succession(cluster.tls_ca)[0].value if cluster.tls_ca else None

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_tls_ca_next_step_at(self, cluster: Cluster) -> datetime | None:
        """Return when that step is due; None where there is none."""
        return succession(cluster.tls_ca, cluster.tls_ca_step_at)[1] if cluster.tls_ca else None

    @extend_schema_field(ClusterHealthSerializer)
    def get_health(self, cluster: Cluster) -> dict[str, Any]:
        """Return the cluster's health."""
        return dict(ClusterHealthSerializer(cluster_health(cluster)).data)


class ClusterCreateSerializer(Shape):
    """What a new cluster needs."""

    slug = NewSlug()
    name = serializers.CharField(max_length=100, required=False, default="", allow_blank=True)
    mode = serializers.ChoiceField(choices=ClusterMode.choices, default=ClusterMode.SINGLE)
    flush_disk_type = serializers.ChoiceField(
        choices=FlushType.choices, required=False, help_text="left out: SYNC_FLUSH for `dledger`, else ASYNC_FLUSH"
    )
    groups = serializers.IntegerField(
        required=False, allow_null=True, help_text="broker groups; the least that the mode allows when left out"
    )
    replicas = serializers.IntegerField(
        required=False, allow_null=True, help_text="replicas of each group, the master included; as above"
    )
    failover_policy = serializers.ChoiceField(choices=FailoverPolicy.choices, default=FailoverPolicy.MANUAL)
    labels = LabelsField(required=False)


class ClusterUpdateSerializer(Shape):
    """What can be changed of a cluster."""

    name = serializers.CharField(max_length=100, required=False)
    failover_policy = serializers.ChoiceField(choices=FailoverPolicy.choices, required=False)
    labels = LabelsField(required=False, help_text="all of them: those that are left out are taken away")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a request that changes nothing."""
        if not attrs:
            raise serializers.ValidationError("Give `name`, `failover_policy` or `labels`.")
        return attrs


class ClusterSuspendSerializer(Shape):
    """Why a cluster is stopped."""

    reason = serializers.CharField(
        max_length=REASON_CHARACTERS_MAX, required=False, default="", allow_blank=True, help_text="shown to who looks"
    )


class ClusterPurgeSerializer(Shape):
    """The second look at what can't be undone."""

    confirm = TypedSlug(help_text="the cluster's slug, as in the path; anything else is answered with 400")


class ClusterGrowSerializer(Shape):
    """What a cluster grows by."""

    by = serializers.ChoiceField(
        choices=[growth.value for growth in Growth],
        default=Growth.GROUP.value,
        help_text=(
            "`group`: a broker group like the others, in every mode but `single`; `replica`: one more slave in every group, in the"
            " modes `async` and `sync`; in another mode 400"
        ),
    )


_QUOTA_HELP = {
    "quota_messages_per_second": "of its sends, and as many of its pulls",
    "quota_bytes_per_second": "of its sends, and as many of its pulls",
    "quota_connections": "at once",
    "quota_held_pulls": "pulls that wait for messages; a consumer has one for each of its queues",
}


def _quota_field(name: str) -> serializers.IntegerField:
    words = f"{_QUOTA_HELP[name]}; at each broker, at most the tenant's limit; null: that limit alone"
    return serializers.IntegerField(min_value=1, max_value=LIMIT_MAX, allow_null=True, required=False, help_text=words)


class CredentialSerializer(Shape):
    """An account of the cluster, without its secret."""

    access_key = serializers.CharField()
    name = serializers.CharField()
    role = serializers.ChoiceField(choices=CredentialRole.choices)
    state = serializers.ChoiceField(choices=CredentialState.choices)
    default_topic_perm = serializers.CharField()
    default_group_perm = serializers.CharField()
    topic_perms = serializers.DictField(child=serializers.CharField())
    group_perms = serializers.DictField(child=serializers.CharField())
    quota_messages_per_second = serializers.IntegerField(
        allow_null=True, help_text="its own quotas, at each broker; null: the tenant's limit alone"
    )
    quota_bytes_per_second = serializers.IntegerField(allow_null=True)
    quota_connections = serializers.IntegerField(allow_null=True)
    quota_held_pulls = serializers.IntegerField(allow_null=True)
    known_to_former_members = serializers.ListField(
        child=serializers.EmailField(),
        default=list,
        help_text="who made it or saw its secret, and has left the tenant: replace it",
    )
    ends_at = serializers.DateTimeField(
        allow_null=True, help_text="it was replaced, is refused everywhere from then on, and deleted; else null"
    )
    replaced_by = serializers.CharField(
        source="replaced_by.access_key",
        allow_null=True,
        default=None,
        help_text="access key of the pair that replaces it; null if none does",
    )
    created_at = serializers.DateTimeField()


class CredentialWithSecretSerializer(CredentialSerializer):
    """An account with its secret."""

    secret_key = serializers.CharField()
    missing_daemons = serializers.ListField(
        child=serializers.CharField(),
        help_text="brokers and name servers that have not confirmed the key yet; they get it as soon as they answer",
    )


class CredentialChangedSerializer(CredentialSerializer):
    """An account whose quotas were changed."""

    missing_daemons = serializers.ListField(
        child=serializers.CharField(),
        help_text="brokers and name servers that have not confirmed the change yet; they get it as soon as they answer",
    )


class CredentialUpdateSerializer(Shape):
    """The account's own quotas: what is left out stays, null takes one away."""

    quota_messages_per_second = _quota_field("quota_messages_per_second")
    quota_bytes_per_second = _quota_field("quota_bytes_per_second")
    quota_connections = _quota_field("quota_connections")
    quota_held_pulls = _quota_field("quota_held_pulls")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a request that changes nothing."""
        if not attrs:
            raise serializers.ValidationError(f"Give one of {', '.join(f'`{name}`' for name in _QUOTA_HELP)}.")
        return attrs


class CredentialSecretSerializer(Shape):
    """The secret of an account."""

    access_key = serializers.CharField()
    secret_key = serializers.CharField()


class CredentialRotateSerializer(Shape):
    """How long the old key pair works beside the new one."""

    overlap_hours = serializers.IntegerField(
        default=24,
        min_value=0,
        max_value=OVERLAP_HOURS_MAX,
        help_text="then the old key is refused and deleted; 0: at once, as after a leak",
    )


class CredentialCreateSerializer(Shape):
    """What a new account may do."""

    name = serializers.CharField(max_length=100)
    role = serializers.ChoiceField(choices=CredentialRole.choices, default=CredentialRole.APP)
    default_topic_perm = serializers.ChoiceField(choices=["DENY", "PUB", "SUB", "PUB|SUB"], default="PUB|SUB")
    default_group_perm = serializers.ChoiceField(choices=["DENY", "SUB", "PUB|SUB"], default="SUB")
    topic_perms = serializers.DictField(
        child=serializers.ChoiceField(choices=["DENY", "PUB", "SUB", "PUB|SUB"]),
        default=dict,
        help_text=f"exceptions by topic; at most {EXCEPTIONS_MAX}, those of groups included",
    )
    group_perms = serializers.DictField(child=serializers.ChoiceField(choices=["DENY", "SUB", "PUB|SUB"]), default=dict)


class StepSerializer(Shape):
    """One step of an operation."""

    name = serializers.CharField()
    title = serializers.CharField()
    state = serializers.ChoiceField(choices=StepState.choices)
    attempts = serializers.IntegerField()
    message = serializers.CharField(allow_blank=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class OperationSerializer(Shape):
    """Long work and how far it is."""

    id = serializers.UUIDField()
    path = serializers.CharField()
    type = serializers.ChoiceField(choices=OperationType.choices)
    state = serializers.ChoiceField(choices=OperationState.choices)
    resource = serializers.CharField()
    requested_by = serializers.CharField()
    progress_percent = serializers.SerializerMethodField()
    steps = serializers.SerializerMethodField()
    metadata = serializers.DictField()
    error = ErrorSerializer(allow_null=True)
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)

    def get_progress_percent(self, operation: Operation) -> int:
        """Return completed steps of all, 0 to 100."""
        return operation_view(operation).progress_percent

    @extend_schema_field(StepSerializer(many=True))
    def get_steps(self, operation: Operation) -> list[dict[str, Any]]:
        """Return the steps in order."""
        return list(StepSerializer(operation_view(operation).steps, many=True).data)


class LimitSerializer(Shape):
    """A limit with its use; of what is limited per cluster, the fullest cluster's."""

    name = serializers.CharField()
    title = serializers.CharField()
    used = serializers.IntegerField()
    limit = serializers.IntegerField()


class OwnLimitsSerializer(Shape):
    """A tenant with the limits that operators gave it."""

    slug = serializers.CharField()
    name = serializers.CharField()
    limits = serializers.DictField(
        child=serializers.IntegerField(), help_text="by name; for others it has the platform's"
    )


class LimitSettingSerializer(Shape):
    """A limit of a tenant beside the platform's own."""

    name = serializers.CharField()
    title = serializers.CharField()
    limit = serializers.IntegerField()
    platform = serializers.IntegerField(help_text="what tenants have who were given nothing else")
    is_own = serializers.BooleanField(help_text="an operator gave the tenant this one")
    used = serializers.IntegerField(allow_null=True, help_text="null: the brokers count it, see `limits get`")


class LimitSettingsSerializer(Shape):
    """Every limit of a tenant."""

    tenant = serializers.CharField()
    limits = LimitSettingSerializer(many=True)
    brokers_missing = serializers.ListField(
        child=serializers.CharField(),
        help_text="of a change: they did not take it yet, and get it as soon as they answer",
    )


class LimitSetSerializer(Shape):
    """Another limit, and why."""

    value = serializers.IntegerField(
        min_value=0,
        max_value=LIMIT_MAX,
        allow_null=True,
        help_text="null: the platform's own again; 0: none, of what brokers keep",
    )
    reason = serializers.CharField(max_length=REASON_CHARACTERS_MAX)


class BrokerQuotaSerializer(Shape):
    """A quota that a broker keeps, by its key in broker.conf. Rates are the last second's."""

    quota = serializers.CharField()
    name = serializers.CharField(help_text="the access key or topic; empty: all")
    used = serializers.IntegerField()
    limit = serializers.IntegerField()


class BrokerUseSerializer(Shape):
    """One broker's quotas."""

    cluster = serializers.CharField(source="cluster.slug")
    broker = serializers.CharField()
    quotas = BrokerQuotaSerializer(many=True, allow_null=True, help_text="null: it does not answer")


class LimitsSerializer(Shape):
    """Everything that is limited."""

    limits = LimitSerializer(many=True)
    brokers = BrokerUseSerializer(many=True)


class CredentialQuotasSerializer(Shape):
    """What limits an account at each broker, its own quotas and the tenant's limits, with its use."""

    brokers = BrokerUseSerializer(many=True)
