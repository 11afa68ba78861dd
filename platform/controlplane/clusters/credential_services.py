"""Writes: credentials. The row comes first, then every daemon takes the accounts, then the row becomes active.

The rows are the truth: provisioning writes plain_acl.yml from them, for brokers and name servers, and each daemon says
that it counts. An answer that got lost is repaired by asking again.
"""

import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor, SystemActor
from controlplane.accounts.models import User
from controlplane.clusters.account_distribution import accounts_distribute
from controlplane.clusters.limits import over_limit
from controlplane.clusters.models import (
    Cluster,
    ClusterState,
    Credential,
    CredentialKnower,
    CredentialRole,
    CredentialState,
)
from controlplane.clusters.remoting import require_running
from controlplane.clusters.secrets import access_key_generate, secret_decrypt, secret_encrypt, secret_generate
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import BrokerUnreachable, Conflict, InvalidInput, NotAllowed, NotFound
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.known_secrets import Finish, KnownSecret
from controlplane.tenants.limits import tenant_limit
from controlplane.tenants.models import Role, Tenant
from controlplane.tenants.rules import actor_ranks, actor_require, role_allows, role_includes
from controlplane.tenants.sensitive import factor_require
from controlplane.tenants.token_services import issuer_of
from highwater import AclAccount

_TOPIC_PERMS = ("DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB")
_GROUP_PERMS = ("DENY", "SUB", "PUB|SUB", "SUB|PUB")
# What brokers take for the name of a topic or a group. They refuse a file with another one as a whole: until it went, no other key
# of the cluster could be made or deleted.
_TOPIC_NAME = re.compile(r"(?=.{1,255}$)(?:%(?:RETRY|DLQ)%[%|a-zA-Z0-9_-]*|[%|a-zA-Z0-9_-]{1,127})")
_GROUP_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")
OVERLAP_HOURS_MAX = 720
# Of a key, topics and groups together: every daemon of the cluster has them in a file, which each look at its health makes again.
EXCEPTIONS_MAX = 200
WITHOUT_DAEMONS = (ClusterState.SUSPENDED, ClusterState.DELETION_PENDING, ClusterState.DELETED)


@dataclass(frozen=True, slots=True)
class Permissions:
    """RocketMQ's ACL of one account: defaults, and exceptions by topic and consumer group."""

    default_topic_perm: str = "PUB|SUB"
    default_group_perm: str = "SUB"
    topic_perms: dict[str, str] = field(default_factory=dict)
    group_perms: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise InvalidInput for a word that RocketMQ doesn't know, and for too many exceptions."""
        if len(self.topic_perms) + len(self.group_perms) > EXCEPTIONS_MAX:
            raise InvalidInput.for_field(
                "topic_perms",
                say("A key has at most %(most)s exceptions, of topics and groups together.", most=EXCEPTIONS_MAX),
                "too_many",
            )
        for name, value, allowed in (
            ("default_topic_perm", self.default_topic_perm, _TOPIC_PERMS),
            ("default_group_perm", self.default_group_perm, _GROUP_PERMS),
            *((f"topic_perms.{topic}", perm, _TOPIC_PERMS) for topic, perm in self.topic_perms.items()),
            *((f"group_perms.{group}", perm, _GROUP_PERMS) for group, perm in self.group_perms.items()),
        ):
            if value not in allowed:
                raise InvalidInput.for_field(name, f"Use one of {', '.join(allowed)}.", "invalid_choice")
        for kind, names, allowed_names in (
            ("topic_perms", self.topic_perms, _TOPIC_NAME),
            ("group_perms", self.group_perms, _GROUP_NAME),
        ):
            for resource in names:
                if not allowed_names.fullmatch(resource):
                    raise InvalidInput.for_field(kind, f"`{resource}` can't be a name.", "invalid_name")


@dataclass(frozen=True, slots=True)
class CreatedCredential:
    """A credential with its secret in the clear. `missing_daemons` have not confirmed it yet: they hang, or are cut off."""

    credential: Credential
    secret_key: str
    missing_daemons: tuple[str, ...] = ()


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
    """Create an account on every daemon of the cluster.

    Raises Conflict when the cluster isn't running or the credential was deleted meanwhile, BrokerUnreachable when no daemon
    confirmed it (then there is no credential). One that does not answer must not hold up the others: it is named, and gets it
    later.
    """
    actor_require(actor, "credential.create", cluster.tenant)
    factor_require(actor, "credential.create", cluster.tenant)
    permissions = permissions or Permissions()
    permissions.check()
    if role not in CredentialRole.values:
        raise InvalidInput.for_field("role", f"Use one of {', '.join(CredentialRole.values)}.", "invalid_choice")
    require_running(cluster)
    if not name.strip():
        raise InvalidInput.for_field("name", say("A name is needed."), "required")
    with transaction.atomic():
        _one_more_check(cluster)
        credential = _row(cluster, name=name_check("name", name), role=CredentialRole(role), permissions=permissions)
        _note_knower(actor, credential, made=True)
        _record(actor, "credential.create", credential)
    return _brought_to_daemons(credential)


def credential_rotate(*, actor: Actor, credential: Credential, overlap_hours: int) -> CreatedCredential:
    """Make a key pair of the same name, rights and quotas that replaces this one, which works on for `overlap_hours` (0 to 720)
    and is refused everywhere from then on, and deleted. Programs change to the new pair meanwhile, one after another.

    Raises what `credential_create` does, and then nothing has changed; NotFound, and Conflict for one that ends already. With no
    overlap a daemon that is missing may still let the old key in, until it answers.
    """
    tenant = credential.cluster.tenant
    for permission in ("credential.create", "credential.delete"):
        actor_require(actor, permission, tenant)
        factor_require(actor, permission, tenant)
    if not 0 <= overlap_hours <= OVERLAP_HOURS_MAX:
        raise InvalidInput.for_field(
            "overlap_hours", say("Use a number from 0 to %(most)s.", most=OVERLAP_HOURS_MAX), "out_of_range"
        )
    require_running(credential.cluster)
    with transaction.atomic():
        _one_more_check(credential.cluster)
        rows = Credential.objects.select_for_update(of=("self",)).select_related("cluster__tenant")
        old = rows.filter(pk=credential.pk).first()
        if old is None:
            raise NotFound(say("There is no such credential."))
        if old.ends_at is not None or old.state == CredentialState.DELETING:
            raise Conflict(
                say("This key pair is being replaced or deleted already."),
                code="credential_ends",
                hint=say("Rotate the one that replaces it, or delete this one to end it now."),
            )
        replacement = _row(old.cluster, name=old.name, role=CredentialRole(old.role), permissions=_permissions_of(old))
        Credential.objects.filter(pk=replacement.pk).update(**old.own_quotas)
        _note_knower(actor, replacement, made=True)
        ends_at = timezone.now() + timedelta(hours=overlap_hours)
        Credential.objects.filter(pk=old.pk).update(ends_at=ends_at, replaced_by=replacement, updated_at=timezone.now())
        _record(
            actor, "credential.rotate", old, {"replaced_by": replacement.access_key, "ends_at": ends_at.isoformat()}
        )
    try:
        created = _brought_to_daemons(replacement)
    except (BrokerUnreachable, Conflict):
        # Its time may be over by now; where someone has deleted it meanwhile it has no end, and stays deleted.
        Credential.objects.filter(pk=old.pk, ends_at=ends_at).update(
            state=old.state, ends_at=None, replaced_by=None, updated_at=timezone.now()
        )
        raise
    if not overlap_hours and not created.missing_daemons:
        credentials_end(old.cluster)
        Credential.objects.filter(pk=old.pk, state=CredentialState.DELETING).delete()
    return created


def credentials_end(cluster: Cluster) -> int:
    """Mark what was replaced, and whose time is over, as being deleted; returns how many. Daemons refuse them already, or with the
    next file that they get.
    """
    ended = 0
    with transaction.atomic():
        over = cluster.credentials.select_for_update().filter(ends_at__lte=timezone.now())
        for credential in over.exclude(state=CredentialState.DELETING):
            _mark_deleting(SystemActor("key rotation"), credential, ends_at=credential.ends_at)
            ended += 1
    return ended


def credentials_in_force(cluster: Cluster) -> QuerySet[Credential]:
    """Return the tenant's credentials that daemons are to let in now."""
    found = cluster.credentials.filter(is_control=False).exclude(state=CredentialState.DELETING)
    return found.exclude(ends_at__lte=timezone.now())


def _brought_to_daemons(credential: Credential) -> CreatedCredential:
    """Have the daemons take a new credential. Raises BrokerUnreachable, without the credential, when none does; Conflict where
    it was deleted while they were asked.
    """
    try:
        distribution = accounts_distribute(credential.cluster)
        if not distribution.confirmed:
            raise BrokerUnreachable(
                say("No broker or name server of the cluster answers."),
                hint=say("Look at the cluster's health, and try again."),
            )
    except BrokerUnreachable:
        # No one has seen the secret. If a daemon did take the account, it is useless, and gone with the next
        # reconciliation.
        credential.delete()
        raise
    Credential.objects.filter(pk=credential.pk, state=CredentialState.PENDING).update(
        state=CredentialState.ACTIVE, updated_at=timezone.now()
    )
    found = Credential.objects.filter(pk=credential.pk).exclude(state=CredentialState.DELETING)
    if not found.exists():
        raise Conflict(
            say("The key pair was deleted before its secret could be shown."),
            code="credential_deleted",
            hint=say("Make another one."),
        )
    credential.refresh_from_db()
    return CreatedCredential(credential, secret_decrypt(credential.secret_encrypted), distribution.missing)


def _one_more_check(cluster: Cluster) -> None:
    """Raise LimitReached where the cluster has all keys that it may have. Call it in the transaction that writes one more."""
    at_most = tenant_limit(cluster.tenant, "credentials_per_cluster")
    Cluster.objects.select_for_update().get(pk=cluster.pk)  # of two requests, one is the last that fits
    if cluster.credentials.filter(is_control=False).count() >= at_most:
        raise over_limit("credentials_per_cluster", at_most)


def credential_delete(*, actor: Actor, credential: Credential) -> None:
    """Delete the account on every daemon, then the row. Of a cluster that is suspended no daemon runs: they start without it, and
    the row goes then.

    Raises BrokerUnreachable that names the daemons which have not confirmed it: they may still let the key in. The
    credential stays as `deleting`, and goes as soon as they do; asking again is safe.
    """
    actor_require(actor, "credential.delete", credential.cluster.tenant)
    factor_require(actor, "credential.delete", credential.cluster.tenant)
    is_at_rest = credential.cluster.state in WITHOUT_DAEMONS
    if not is_at_rest:
        require_running(credential.cluster)
    with transaction.atomic():
        _mark_deleting(actor, credential)
    if is_at_rest:
        return
    missing = accounts_distribute(credential.cluster).missing
    if missing:
        raise BrokerUnreachable(
            say(
                "The key is refused everywhere but, perhaps, at %(join)s: no confirmation came from there.",
                join=", ".join(missing),
            ),
            hint=say("It is deleted there as soon as it answers. Look at the cluster's health, or ask again."),
            extra={"missing_daemons": list(missing)},
        )
    Credential.objects.filter(pk=credential.pk).delete()


def credential_reveal(*, actor: Actor, credential: Credential) -> str:
    """Return the secret to a member who has the rights that it gives. Each look is an audit event.

    An admin key's secret needs what creating one needs, and one of a key that reads messages, to see what masking rules hide:
    brokers give its bearer whole messages. Raises NotAllowed, FactorNeeded.
    """
    actor_require(actor, _to_reveal(credential), credential.cluster.tenant)
    for role in _shown_by(credential):
        if not actor_ranks(actor, credential.cluster.tenant, role):
            raise NotAllowed(
                say(
                    "With this key one reads what masking rules hide from your role. Its secret is for `%(role)s` and above.",
                    role=role,
                ),
                code="masked",
            )
    factor_require(actor, "credential.reveal", credential.cluster.tenant)
    with transaction.atomic():
        _note_knower(actor, credential, made=False)
        _record(actor, "credential.reveal", credential)
    return secret_decrypt(credential.secret_encrypted)


class KeyPairs:
    """Key pairs whose secrets a person made or has seen, also by a token of theirs."""

    kind = "key_pair"
    permission = "credential.delete"

    def find(self, tenant: Tenant, user: User, still: str | None) -> list[KnownSecret]:
        """Return those that the user knows, but for those that the role `still` may reveal."""
        known = CredentialKnower.objects.filter(user=user, credential__cluster__tenant=tenant)
        return [
            KnownSecret(
                self.kind,
                row.credential.pk,
                row.credential.name,
                row.credential.cluster.slug,
                row.made,
                row.created_at,
            )
            for row in known.exclude(credential__state=CredentialState.DELETING).select_related(
                "credential__cluster__tenant"
            )
            if still is None or not _may_reveal(still, row.credential)
        ]

    def revoke(self, actor: Actor, tenant: Tenant, ids: Collection[uuid.UUID]) -> Finish:
        """Have them deleted; `finish` returns the daemons that have not confirmed it."""
        actor_require(actor, self.permission, tenant)
        factor_require(actor, "credential.delete", tenant)
        credentials = list(
            Credential.objects.filter(pk__in=ids, cluster__tenant=tenant).select_related("cluster__tenant")
        )
        for credential in credentials:
            _mark_deleting(actor, credential)
        return partial(_delete_everywhere, {credential.cluster_id: credential.cluster for credential in credentials})


def _mark_deleting(actor: Actor, credential: Credential, *, ends_at: datetime | None = None) -> None:
    """`ends_at` stays with one that only a rotation ends: should that fail, the key works again."""
    Credential.objects.filter(pk=credential.pk).update(
        state=CredentialState.DELETING, ends_at=ends_at, updated_at=timezone.now()
    )
    _record(actor, "credential.delete", credential)


def _delete_everywhere(clusters: dict[uuid.UUID, Cluster]) -> tuple[str, ...]:
    """Bring deletions to the clusters' daemons; returns those that have not confirmed them. One that is being stopped may let a
    key in until its daemons have stopped.
    """
    missing: list[str] = []
    for cluster in clusters.values():
        gone = cluster.credentials.filter(state=CredentialState.DELETING)
        if cluster.state in WITHOUT_DAEMONS:
            continue
        try:
            late = accounts_distribute(cluster).missing
        except BrokerUnreachable:
            late = (cluster.slug,)
        if late:
            missing += late
        else:
            gone.delete()
    return tuple(missing)


def _note_knower(actor: Actor, credential: Credential, *, made: bool) -> None:
    person = issuer_of(actor)
    if person is not None:
        CredentialKnower.objects.get_or_create(credential=credential, user=person, defaults={"made": made})


def _to_reveal(credential: Credential) -> str:
    """What one needs to see the secret: of an admin key as much as to make one."""
    return "credential.create" if credential.role == CredentialRole.ADMIN else "credential.reveal"


def _shown_by(credential: Credential) -> list[str]:
    """Return the roles from which on masking rules show what the key's bearer may read, the highest first. All rules count: who
    reads for a group gets its retries, and with them messages of any topic.
    """
    given = [credential.default_topic_perm, credential.default_group_perm]
    given += [*credential.topic_perms.values(), *credential.group_perms.values()]
    if credential.role != CredentialRole.ADMIN and not any("SUB" in perm for perm in given):
        return []
    found = set(credential.cluster.tenant.masking_rules.values_list("visible_from", flat=True))
    return [role for role in (Role.OWNER, Role.ADMIN, Role.OPERATOR) if role in found]


def _may_reveal(role: str, credential: Credential) -> bool:
    return role_allows(role, _to_reveal(credential)) and all(role_includes(role, one) for one in _shown_by(credential))


def acl_account(credential: Credential) -> AclAccount:
    """Return the credential as the account that brokers hold."""
    is_admin = credential.role == CredentialRole.ADMIN
    return AclAccount(
        access_key=credential.access_key,
        secret_key=secret_decrypt(credential.secret_encrypted),
        admin=is_admin,
        default_topic_perm=credential.default_topic_perm,
        default_group_perm=credential.default_group_perm,
        # Of rows from before names were checked so, those that nothing can have are left out.
        topic_perms={name: perm for name, perm in credential.topic_perms.items() if _TOPIC_NAME.fullmatch(name)},
        group_perms={name: perm for name, perm in credential.group_perms.items() if _GROUP_NAME.fullmatch(name)},
    )


def _permissions_of(credential: Credential) -> Permissions:
    return Permissions(
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


def _record(actor: Actor, action: str, credential: Credential, details: Mapping[str, str] | None = None) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=f"{credential.cluster.path}credentials/{credential.access_key}/",
        tenant_id=credential.cluster.tenant_id,
        details={"name": credential.name, "role": credential.role, **(details or {})},
    )
