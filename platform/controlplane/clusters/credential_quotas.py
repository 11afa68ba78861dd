"""Quotas of a credential's own: what it may take of each broker, at most what the tenant's limits allow.

They are members of its account: they get to daemons, count there and are put right as accounts are. A broker holds the lower of
these and the tenant's limit, so that a limit which is lowered later counts, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.account_distribution import accounts_distribute
from controlplane.clusters.credential_services import WITHOUT_DAEMONS
from controlplane.clusters.limits import LIMIT_MAX, BrokerUse, cluster_broker_uses
from controlplane.clusters.models import CREDENTIAL_QUOTAS, Credential, CredentialState
from controlplane.clusters.remoting import require_running
from controlplane.clusters.replica_remoting import BrokerQuota
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import BrokerUnreachable, Conflict, InvalidInput, NotFound
from controlplane.common.sentences import say
from controlplane.tenants.limits import tenant_limit
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require

# The field of the row -> what the account says of it in plain_acl.yml, and a broker where it tells its use.
QUOTA_MEMBERS = {
    "quota_messages_per_second": "quotaMessagesPerSecond",
    "quota_bytes_per_second": "quotaBytesPerSecond",
    "quota_connections": "quotaConnections",
    "quota_held_pulls": "quotaHeldPulls",
}
assert tuple(QUOTA_MEMBERS) == CREDENTIAL_QUOTAS


@dataclass(frozen=True, slots=True)
class ChangedCredential:
    """A credential with its new quotas. `missing_daemons` have not confirmed them yet: they hang, or are cut off."""

    credential: Credential
    missing_daemons: tuple[str, ...] = ()


def quota_most(tenant: Tenant, field: str) -> int:
    """Return the highest value of a quota: the tenant's limit, where it has one."""
    return tenant_limit(tenant, field.removeprefix("quota_")) or LIMIT_MAX


def quota_members(credential: Credential) -> dict[str, int]:
    """Return the credential's own quotas as members of its account."""
    return {QUOTA_MEMBERS[field]: value for field, value in credential.own_quotas.items() if value is not None}


def credential_update(*, actor: Actor, credential: Credential, quotas: Mapping[str, int | None]) -> ChangedCredential:
    """Give the credential these quotas, by field; None takes one away, and what is left out stays. Brokers that run have them when
    this returns, but for those that it names; they get them as soon as they answer. Asking again is safe.

    Raises NotAllowed, InvalidInput, NotFound where the credential has been deleted meanwhile, Conflict where the cluster neither
    runs nor is stopped, or the credential is being deleted, and BrokerUnreachable when the cluster could not be told: the quotas
    are kept then.
    """
    tenant = credential.cluster.tenant
    actor_require(actor, "credential.update", tenant)
    _check(credential, quotas)
    is_at_rest = credential.cluster.state in WITHOUT_DAEMONS
    if not is_at_rest:
        require_running(credential.cluster)
    with transaction.atomic():
        rows = Credential.objects.select_for_update(of=("self",)).select_related("cluster__tenant")
        row = rows.filter(pk=credential.pk).first()
        if row is None:
            raise NotFound(say("There is no such credential."))
        if row.state == CredentialState.DELETING:
            raise Conflict(say("This key pair is being deleted."), code="credential_ends")
        changes = changes_between(row.own_quotas, quotas)
        Credential.objects.filter(pk=row.pk).update(**quotas, updated_at=timezone.now())
        audit_event_record(
            actor=actor,
            action="credential.update",
            resource=f"{row.cluster.path}credentials/{row.access_key}/",
            tenant_id=tenant.pk,
            details={"name": row.name, "role": row.role, "changes": changes},
        )
    credential.refresh_from_db(fields=[*CREDENTIAL_QUOTAS, "updated_at"])
    if is_at_rest:
        return ChangedCredential(credential)
    try:
        return ChangedCredential(credential, accounts_distribute(credential.cluster).missing)
    except BrokerUnreachable as error:
        raise BrokerUnreachable(
            say("The quotas are kept, but the cluster could not be told: %(error)s", error=str(error)),
            hint=say("It gets them as soon as it answers. Look at the cluster's health, or ask again."),
        ) from error


def credential_uses(credential: Credential) -> list[BrokerUse]:
    """Ask each broker of the cluster, where it runs, what limits this credential there and how much of it is used; 1.5 s at most
    for each eight of them.
    """
    names = {credential.access_key, f"{credential.access_key} (send)", f"{credential.access_key} (pull)"}

    def is_its(quota: BrokerQuota) -> bool:
        return quota.name in names and (
            quota.quota.startswith("quotaCredential") or quota.quota in QUOTA_MEMBERS.values()
        )

    uses: Sequence[BrokerUse] = cluster_broker_uses(credential.cluster)
    return [
        use if use.quotas is None else replace(use, quotas=tuple(quota for quota in use.quotas if is_its(quota)))
        for use in uses
    ]


def _check(credential: Credential, quotas: Mapping[str, int | None]) -> None:
    for field, value in quotas.items():
        most = quota_most(credential.cluster.tenant, field)
        # One that is above a limit which was lowered since may stay: forms send all of them, and brokers hold the lower.
        if value is not None and value != getattr(credential, field) and not 1 <= value <= most:
            raise InvalidInput.for_field(
                field,
                say("Use a number from 1 to %(most)s: the tenant's limits allow no more.", most=most),
                "out_of_range",
            )
