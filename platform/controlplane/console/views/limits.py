"""A tenant's limits, with their use."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from controlplane.clusters.credential_quotas import QUOTA_MEMBERS
from controlplane.clusters.limits import KEPT_BY_BROKERS, broker_uses, limit_uses
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, tenant_page
from controlplane.console.acts import act_of
from controlplane.console.pages import tenant_render
from controlplane.tenants.models import Tenant

_WORDS = {
    "quotaCredentialMessagesPerSecond": say("Messages per second, of an access key"),
    "quotaTopicMessagesPerSecond": say("Messages per second, of a topic"),
    "quotaCredentialBytesPerSecond": say("Bytes per second, of an access key"),
    "quotaTopicBytesPerSecond": say("Bytes per second, of a topic"),
    "quotaCredentialConnections": say("Connections of an access key"),
    "quotaCredentialHeldPulls": say("Pulls that wait, of an access key"),
    "quotaTopicHeldPulls": say("Pulls that wait for a topic"),
    "quotaTopics": say("Topics on the broker"),
    "quotaQueues": say("Queues of all topics on the broker"),
    "quotaGroups": say("Consumer groups on the broker"),
    "quotaTopicStoredBytes": say("Bytes stored in a topic"),
    "quotaStoredBytes": say("Bytes stored on the broker"),
}
_OWN = {
    "quotaMessagesPerSecond": say("Messages per second, the access key’s own"),
    "quotaBytesPerSecond": say("Bytes per second, the access key’s own"),
    "quotaConnections": say("Connections, the access key’s own"),
    "quotaHeldPulls": say("Pulls that wait, the access key’s own"),
}
# A broker names every key and topic; the page shows those that use most of their limit.
_ROWS_MAX = 20


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """One quota in words; `is_bytes` when its use and limit are sizes."""

    words: str
    quota: BrokerQuota
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class BrokerRows:
    """One broker's table; `rows` is None when it does not answer."""

    title: str
    rows: Sequence[QuotaRow] | None


@require_safe
@tenant_page("tenant.view")
def limits_page(request: ConsoleRequest, tenant: Tenant) -> HttpResponse:
    """Show what the tenant may have, and how much of it is used."""
    brokers = [
        BrokerRows(
            say("%(cluster)s, %(broker)s", cluster=use.cluster.name, broker=use.broker),
            None if use.quotas is None else quota_rows(use.quotas)[:_ROWS_MAX],
        )
        for use in broker_uses(tenant)
    ]
    context = {"limits": limit_uses(tenant), "brokers": brokers, "curl": act_of("GET", f"{tenant.path}limits/")}
    return tenant_render(request, tenant, "console/limits.html", context, section="limits")


def quota_rows(quotas: Sequence[BrokerQuota]) -> list[QuotaRow]:
    """Return a broker's quotas in words, those of which most is used first."""
    words = {**_WORDS, **_OWN}
    known = [quota for quota in quotas if quota.quota in words]
    known.sort(key=lambda quota: quota.used / quota.limit, reverse=True)
    return [QuotaRow(words[quota.quota], quota, "Bytes" in quota.quota) for quota in known]


assert set(_OWN) == set(QUOTA_MEMBERS.values()), "each quota of a key has its words"
assert set(_WORDS) == {key for keys in KEPT_BY_BROKERS.values() for key in keys}, "each key has its words"
