"""Writes: credentials. The row comes first, then every master takes the account, then the row becomes active.

The rows are the truth: provisioning writes plain_acl.yml from them, so an answer that got lost is repaired by
asking again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import transaction
from django.utils import timezone

from controlplane.accounts.actors import Actor
from controlplane.clusters.models import Cluster, Credential, CredentialRole, CredentialState, Replica
from controlplane.clusters.remoting import cluster_admin, require_running
from controlplane.clusters.secrets import access_key_generate, secret_decrypt, secret_encrypt, secret_generate
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import ApplicationError, Conflict, InvalidInput
from controlplane.tenants.rules import actor_require
from highwater import AclAccount
from highwater.errors import ConnectError, ConnectionLostError, RequestTimeoutError

_TOPIC_PERMS = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB")
_GROUP_PERMS = ("DENY", "SUB", "PUB|SUB", "SUB|PUB")
_RESOURCE_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_MAX_CREDENTIALS = 100


@dataclass(frozen=True, slots=True)
class Permissions:
    """RocketMQ's ACL of one account: defaults, and exceptions by topic and consumer group."""

    default_topic_perm: str = "PUB|SUB"
    default_group_perm: str = "SUB"
    topic_perms: dict[str, str] = field(default_factory=dict)
    group_perms: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidInput for a word that RocketMQ doesn't know."""
        for name, value, allowed in (
            ("default_topic_perm", self.default_topic_perm, _TOPIC_PERMS),
            ("default_group_perm", self.default_group_perm, _GROUP_PERMS),
            *((f"topic_perms.{topic}", perm, _TOPIC_PERMS) for topic, perm in self.topic_perms.items()),
            *((f"group_perms.{group}", perm, _GROUP_PERMS) for group, perm in self.group_perms.items()),
        ):
            if value not in allowed:
                raise InvalidInput.for_field(name, f"Use one of {', '.join(allowed)}.", "invalid_choice")
        for kind, names in (("topic_perms", self.topic_perms), ("group_perms", self.group_perms)):
            for resource in names:
                if not _RESOURCE_NAME.fullmatch(resource):
                    raise InvalidInput.for_field(kind, f"`{resource}` can't be a name.", "invalid_name")


@dataclass(frozen=True, slots=True)
class CreatedCredential:
    """A credential with its secret in the clear."""

    credential: Credential
    secret_key: str


def credential_rows_create(cluster: Cluster) -> None:
    """Write the control plane's own credential and the tenant's first one. Provisioning puts both into
    plain_acl.yml.
    """
    _row(cluster, name="control plane", role=CredentialRole.ADMIN, is_control=True)
    _row(cluster, name="default", role=CredentialRole.APP)


def credential_create(
    *,
    actor: Actor,
    cluster: Cluster,
    name: str,
    role: str = CredentialRole.APP,
    permissions: Permissions | None = None,
) -> CreatedCredential:
    """Create an account on every replica of the cluster.

    Raises Conflict when the cluster isn't running, BrokerUnreachable or BrokerRefused when a replica didn't take it
    (then there is no credential). A slave that does not answer gets it later: it must not hold up the others.
    """
    actor_require(actor, "credential.create", cluster.tenant)
    permissions = permissions or Permissions()
    permissions.check()
    if role not in CredentialRole.values:
        raise InvalidInput.for_field("role", f"Use one of {', '.join(CredentialRole.values)}.", "invalid_choice")
    require_running(cluster)
    if not name.strip():
        raise InvalidInput.for_field("name", "A name is needed.", "required")
    if cluster.credentials.count() >= _MAX_CREDENTIALS:
        raise Conflict(f"A cluster holds at most {_MAX_CREDENTIALS} credentials.", code="too_many")
    with transaction.atomic():
        credential = _row(cluster, name=name.strip(), role=CredentialRole(role), permissions=permissions)
        _record(actor, "credential.create", credential)
    try:
        with cluster_admin(cluster) as admin:
            _to_every_replica(cluster, lambda address: admin.upsert_acl_account(address, acl_account(credential)))
    except ApplicationError:
        # Nobody has seen the secret. If a master did take the account, it is useless, and gone at the next
        # provisioning.
        credential.delete()
        raise
    Credential.objects.filter(pk=credential.pk, state=CredentialState.PENDING).update(
        state=CredentialState.ACTIVE, updated_at=timezone.now()
    )
    credential.refresh_from_db()
    return CreatedCredential(credential, secret_decrypt(credential.secret_encrypted))


def credential_delete(*, actor: Actor, credential: Credential) -> None:
    """Delete the account on every replica, then the row.

    When a whole group doesn't answer, the credential stays as `deleting` and the error is raised: asking again is safe.
    """
    actor_require(actor, "credential.delete", credential.cluster.tenant)
    require_running(credential.cluster)
    with transaction.atomic():
        Credential.objects.filter(pk=credential.pk).update(state=CredentialState.DELETING, updated_at=timezone.now())
        _record(actor, "credential.delete", credential)
    with cluster_admin(credential.cluster) as admin:
        _to_every_replica(credential.cluster, lambda address: admin.delete_acl_account(credential.access_key, address))
    Credential.objects.filter(pk=credential.pk).delete()


def credential_reveal(*, actor: Actor, credential: Credential) -> str:
    """Return the secret to a member who may see it. Each look is an audit event."""
    actor_require(actor, "credential.reveal", credential.cluster.tenant)
    with transaction.atomic():
        _record(actor, "credential.reveal", credential)
    return secret_decrypt(credential.secret_encrypted)


def _to_every_replica(cluster: Cluster, send: Callable[[str], object]) -> None:
    """Send to each replica: a slave serves reads, and may be the master of the next minute. In a group with several,
    one that does not answer is marked: the health sampling writes its plain_acl.yml.

    Raises what the SDK raised when a whole group does not answer.
    """
    for group in cluster.broker_groups.all():
        taken, failure = 0, None
        for replica in group.replicas.filter(port__isnull=False):
            try:
                send(replica.address)
            except (ConnectError, ConnectionLostError, RequestTimeoutError) as error:
                failure = error
                Replica.objects.filter(pk=replica.pk).update(acl_stale=True)
            else:
                taken += 1
        if failure is not None and not taken:
            raise failure


def acl_account(credential: Credential) -> AclAccount:
    """Return the credential as the account that brokers hold."""
    is_admin = credential.role == CredentialRole.ADMIN
    return AclAccount(
        access_key=credential.access_key,
        secret_key=secret_decrypt(credential.secret_encrypted),
        admin=is_admin,
        default_topic_perm=credential.default_topic_perm,
        default_group_perm=credential.default_group_perm,
        topic_perms=dict(credential.topic_perms),
        group_perms=dict(credential.group_perms),
    )


def _row(
    cluster: Cluster,
    *,
    name: str,
    role: CredentialRole,
    is_control: bool = False,
    permissions: Permissions | None = None,
) -> Credential:
    permissions = permissions or Permissions()
    return Credential.objects.create(
        cluster=cluster,
        name=name,
        access_key=access_key_generate(),
        secret_encrypted=secret_encrypt(secret_generate()),
        role=role,
        is_control=is_control,
        default_topic_perm=permissions.default_topic_perm,
        default_group_perm=permissions.default_group_perm,
        topic_perms=permissions.topic_perms,
        group_perms=permissions.group_perms,
    )


def _record(actor: Actor, action: str, credential: Credential) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=f"{credential.cluster.path}credentials/{credential.access_key}/",
        tenant_id=credential.cluster.tenant_id,
        details={"name": credential.name, "role": credential.role},
    )
