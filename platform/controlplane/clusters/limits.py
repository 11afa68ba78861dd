"""How much a tenant may have: clusters, brokers, topics and keys here; rates, connections and stored bytes on each broker.

An operator gives one tenant other values than HIGHWATER_LIMITS (`limit_set`). What a broker keeps is in its
broker.conf and changes there without a restart.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet

from controlplane.accounts.actors import Actor
from controlplane.accounts.operators import operator_require
from controlplane.clusters.fair_operations import operations_going_on
from controlplane.clusters.lifecycle import REASON_CHARACTERS_MAX
from controlplane.clusters.models import Cluster, ClusterState, Replica
from controlplane.clusters.remoting import cluster_admin
from controlplane.clusters.replica_remoting import BrokerQuota, broker_configurations, broker_quotas
from controlplane.clusters.room import room_check
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, InvalidInput, LimitReached, NotFound
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.limits import tenant_limit
from controlplane.tenants.models import Tenant
from highwater.errors import HighwaterError

_log = get_logger("controlplane.limits")

# What is counted here: what it is, and how a limit reads.
COUNTED = {
    "clusters": say("Clusters"),
    "brokers": say("Brokers, all replicas together"),
    "stored_gib": say("GiB that all brokers together may store"),
    "topics_per_cluster": say("Topics in one cluster"),
    "credentials_per_cluster": say("Access keys in one cluster"),
    "operations_at_once": say("Operations that go on at once; more wait for these"),
}
_WITHIN = {
    "clusters": say("clusters"),
    "brokers": say("brokers, all replicas together"),
    "stored_gib": say("GiB that all brokers together may store"),
    "topics_per_cluster": say("topics in one cluster"),
    "credentials_per_cluster": say("access keys in one cluster"),
}
# What each broker keeps, in words for operators.
_KEPT_TITLES = {
    "messages_per_second": say("Messages per second, of an access key and of a topic on a broker"),
    "bytes_per_second": say("Bytes per second, of an access key and of a topic on a broker"),
    "connections": say("Connections of an access key to a broker"),
    "held_pulls": say("Pulls that wait at a broker, of an access key and for a topic"),
    "topics": say("Topics on a broker, those that clients make included"),
    "queues": say("Queues of all topics on a broker"),
    "groups": say("Consumer groups on a broker"),
    "stored_bytes_per_topic": say("Bytes stored in a topic on a broker"),
    "stored_bytes": say("Bytes stored on a broker"),
}
_GIVING_SECONDS_MAX = 15.0  # brokers of a tenant that are asked no more by then get their limits at the next look
LIMIT_MAX = 2**53 - 1  # what JSON has exactly everywhere
# What each broker keeps: our limit's name -> its keys in broker.conf.
KEPT_BY_BROKERS = {
    "messages_per_second": ("quotaCredentialMessagesPerSecond", "quotaTopicMessagesPerSecond"),
    "bytes_per_second": ("quotaCredentialBytesPerSecond", "quotaTopicBytesPerSecond"),
    "connections": ("quotaCredentialConnections",),
    "held_pulls": ("quotaCredentialHeldPulls", "quotaTopicHeldPulls"),
    "topics": ("quotaTopics",),
    "queues": ("quotaQueues",),
    "groups": ("quotaGroups",),
    "stored_bytes_per_topic": ("quotaTopicStoredBytes",),
    "stored_bytes": ("quotaStoredBytes",),
}


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit with its use. `used` of what is counted per cluster is the fullest cluster's."""

    name: str
    title: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class LimitSetting:
    """A limit of a tenant beside the platform's own. `is_own`: an operator gave the tenant this one. `used`: None where the brokers
    count it.
    """

    name: str
    title: str
    limit: int
    platform: int
    is_own: bool
    used: int | None


@dataclass(frozen=True, slots=True)
class BrokerUse:
    """What one broker says of its quotas; None when it does not answer."""

    cluster: Cluster
    broker: str
    quotas: tuple[BrokerQuota, ...] | None


def broker_quota_keys(tenant: Tenant) -> dict[str, int]:
    """Return the keys of broker.conf that keep the tenant's limits."""
    return {key: tenant_limit(tenant, name) for name, keys in KEPT_BY_BROKERS.items() for key in keys}


def limit_uses(tenant: Tenant) -> list[LimitUse]:
    """Return what is counted here, with its use."""
    clusters = _living(tenant)
    brokers = Replica.objects.filter(group__cluster__in=clusters).count()
    used = {
        "clusters": clusters.count(),
        "brokers": brokers,
        "stored_gib": _gib_of(tenant, brokers),
        "topics_per_cluster": _most(clusters, Count("topics")),
        "credentials_per_cluster": _most(clusters, Count("credentials", filter=Q(credentials__is_control=False))),
        "operations_at_once": operations_going_on(tenant),
    }
    return [LimitUse(name, title, used[name], tenant_limit(tenant, name)) for name, title in COUNTED.items()]


def limit_settings(tenant: Tenant) -> list[LimitSetting]:
    """Return every limit of the tenant, in the order of HIGHWATER_LIMITS."""
    used = {use.name: use.used for use in limit_uses(tenant)}
    titles = {**COUNTED, **_KEPT_TITLES}
    return [
        LimitSetting(name, titles[name], tenant_limit(tenant, name), platform, name in tenant.limits, used.get(name))
        for name, platform in settings.HIGHWATER_LIMITS.items()
    ]


def disk_of_broker(stored_bytes: int) -> int:
    """Return what a broker with this limit of stored bytes may take of its disk: an eighth more for records of topics, groups and
    offsets, and for ConsumeQueues a quarter more, which are 20 bytes beside each message of 90 at least.
    """
    return stored_bytes * 11 // 8


def limits_check(tenant: Tenant, *, more_brokers: int = 0) -> None:
    """Raise LimitReached when the tenant's clusters or brokers, or what these may store, are more than it may have, or than the
    hosts have room for.

    Call it in the transaction that wrote the rows: it locks the tenant, so that two requests cannot both be the last one.
    `more_brokers` are yet to be written.
    """
    Tenant.objects.select_for_update().get(pk=tenant.pk)
    more = {"clusters": 0, "brokers": more_brokers, "stored_gib": _gib_of(tenant, more_brokers)}
    for use in limit_uses(tenant):
        if use.name in more and use.used + more[use.name] > use.limit:
            raise over_limit(use.name, use.limit)
    if more_brokers >= 0:  # fewer is always possible
        room_check()


def _gib_of(tenant: Tenant, brokers: int) -> int:
    """Return what so many brokers of the tenant may store, in whole GiB. Each keeps its own share by itself."""
    return brokers * tenant_limit(tenant, "stored_bytes") // 2**30


def over_limit(name: str, limit: int) -> LimitReached:
    """Return the error for one more than the limit."""
    return LimitReached(
        say("This is more than the tenant's limit: %(what)s, at most %(limit)s.", what=_WITHIN[name], limit=limit),
        code="over_limit",
        hint=say("Delete what is not needed, or ask the platform's operator for more."),
        extra={"limit": name, "at_most": limit},
    )


def broker_uses(tenant: Tenant) -> list[BrokerUse]:
    """Ask every broker of the tenant's running clusters for its quotas; 1.5 s at most for each eight of them."""
    return _uses_in(_living(tenant))


def cluster_broker_uses(cluster: Cluster) -> list[BrokerUse]:
    """As `broker_uses`, of one cluster; empty while it does not run."""
    return _uses_in(_living(cluster.tenant).filter(pk=cluster.pk))


def _uses_in(clusters: QuerySet[Cluster]) -> list[BrokerUse]:
    replicas = Replica.objects.filter(
        group__cluster__in=clusters.filter(state=ClusterState.RUNNING), port__isnull=False
    ).select_related("group__cluster__tenant")
    brokers = [
        (replica.group.cluster, replica.address, _title(replica))
        for replica in replicas.order_by("group__cluster__created_at", "group__cluster_id", "group__name", "broker_id")
    ]
    answers = broker_quotas([(cluster, address) for cluster, address, _ in brokers])
    return [BrokerUse(cluster, title, quotas) for (cluster, _, title), quotas in zip(brokers, answers, strict=True)]


def limit_set(*, actor: Actor, tenant: Tenant, name: str, value: int | None, reason: str) -> list[str]:
    """Give the tenant another limit, None for the platform's own again; brokers that run get it now. What the tenant has beyond a
    lower one stays; it gets no more. Takes 15 s at most, and what the cluster takes that is asked by then.

    Returns the addresses of brokers that did not take it: they get it by `quotas_reconcile`. Raises NotFound for everyone but
    operators, InvalidInput.
    """
    operator_require(actor)
    reason = name_check("reason", reason)
    if not reason:
        raise InvalidInput.for_field("reason", say("Say why: it is in the audit trail."), "required")
    if len(reason) > REASON_CHARACTERS_MAX:
        raise InvalidInput.for_field(
            "reason", say("Use at most %(most)s characters.", most=REASON_CHARACTERS_MAX), "too_long"
        )
    if name not in settings.HIGHWATER_LIMITS:
        names = ", ".join(settings.HIGHWATER_LIMITS)
        raise InvalidInput.for_field("name", say("Use one of %(names)s.", names=names), "invalid_choice")
    if value is not None and not 0 <= value <= LIMIT_MAX:
        raise InvalidInput.for_field("value", say("Use a number from 0 to %(most)s.", most=LIMIT_MAX), "out_of_range")
    with transaction.atomic():
        locked = Tenant.objects.select_for_update().get(pk=tenant.pk)
        before = tenant_limit(locked, name)
        kept = {limit: number for limit, number in locked.limits.items() if limit != name}
        locked.limits = kept if value is None else {**kept, name: value}
        locked.save(update_fields=["limits", "updated_at"])
        audit_event_record(
            actor=actor,
            action="tenant.limit",
            resource=tenant.path,
            tenant_id=tenant.pk,
            details={"limit": name, "before": before, "after": tenant_limit(locked, name), "reason": reason},
        )
    tenant.limits = locked.limits
    changes = {key: str(tenant_limit(tenant, name)) for key in KEPT_BY_BROKERS.get(name, ())}
    if not changes:
        return []
    wanted: dict[Cluster, dict[str, dict[str, str]]] = {}
    for replica in Replica.objects.filter(group__cluster__in=_living(tenant), port__isnull=False).select_related(
        "group__cluster__tenant"
    ):
        wanted.setdefault(replica.group.cluster, {})[replica.address] = changes
    missing: list[str] = []
    deadline = time.monotonic() + _GIVING_SECONDS_MAX
    for cluster, by_address in wanted.items():
        missing += by_address if time.monotonic() > deadline else _not_taken(cluster, by_address)
    return missing


def _not_taken(cluster: Cluster, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Give brokers of a cluster these keys; returns those that did not take them, by address, and why. A cluster's silent brokers
    cost HIGHWATER_REMOTING_PATIENCE_MS, however many there are.
    """
    missing: dict[str, str] = {}
    tried: set[str] = set()
    try:
        with cluster_admin(cluster) as admin:
            for address, changes in wanted.items():
                try:
                    admin.update_broker_config(address, changes)
                except HighwaterError as error:
                    missing[address] = str(error)
                tried.add(address)
    except ApplicationError as error:
        missing |= {address: str(error) for address in wanted if address not in tried}
    return missing


def quotas_reconcile(cluster: Cluster, addresses: Sequence[str]) -> None:
    """Give each of the brokers at these addresses the limits that it has not got: one that was away when they were changed. Takes
    1.5 s at most where none differs; one that does not answer is asked again at the next look.
    """
    found = broker_configurations(cluster, addresses)
    quotas = {key: str(value) for key, value in broker_quota_keys(Tenant.objects.get(pk=cluster.tenant_id)).items()}
    wanted: dict[str, dict[str, str]] = {}
    for address, kept in found.items():
        changes = {
            key: value for key, value in quotas.items() if kept is not None and kept.get(key) not in (None, value)
        }
        if changes:
            wanted[address] = changes
    for address, cause in _not_taken(cluster, wanted).items() if wanted else ():
        _log.warning("quotas not taken", cluster=str(cluster), broker=address, cause=cause)


def limits_of_tenants(find: str = "") -> QuerySet[Tenant]:
    """Return the tenants with `find` in their short name, those with limits of their own (`has_own`) first."""
    found = Tenant.objects.annotate(has_own=~Q(limits={})).filter(slug__icontains=find.replace("\x00", ""))
    return found.order_by("-has_own", "slug")


def tenant_by_slug(slug: str) -> Tenant:
    """Return any tenant; raises NotFound. For operators only."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise NotFound(say("There is no such tenant."))
    return tenant


def _living(tenant: Tenant) -> QuerySet[Cluster]:
    return Cluster.objects.select_related("tenant").filter(tenant=tenant).exclude(state=ClusterState.DELETED)


def _most(clusters: QuerySet[Cluster], rows: Count) -> int:
    """Return how many of these rows the fullest cluster has."""
    return clusters.annotate(rows=rows).aggregate(most=Max("rows"))["most"] or 0


def _title(replica: Replica) -> str:
    return say("%(group)s, replica %(replica)s", group=replica.group.name, replica=replica.broker_id)
