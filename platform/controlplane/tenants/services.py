"""Writes: tenants and their members. Each checks the actor's right, changes, and records an audit event."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from controlplane.accounts.actors import Actor, SystemActor
from controlplane.accounts.fresh_factor import factors_of
from controlplane.accounts.models import User
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import Conflict, InvalidInput, LimitReached, NotFound
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.common.zones import zone_check
from controlplane.tenants.invitation_services import invitations_of_inviter_revoke
from controlplane.tenants.known_secrets import KnownSecret, finish_all, known_secrets, known_secrets_revoke
from controlplane.tenants.members_lock import members_lock
from controlplane.tenants.models import Membership, Role, Tenant
from controlplane.tenants.rules import actor_can, actor_require, role_require
from controlplane.tenants.sensitive import factor_require
from controlplane.tenants.token_services import issued_tokens_revoke

SLUG_PATTERN = re.compile(r"[a-z](?:[a-z0-9]|-(?=[a-z0-9])){1,38}")
SLUG_RULE = "2 to 39 lower-case letters, digits and single hyphens, starting with a letter"
# Would read as one of our own pages in the console's address.
_RESERVED_SLUGS = frozenset({"new", "api", "admin", "static", "login", "logout", "signup", "settings"})


def slug_check(field: str, slug: str) -> str:
    """Return the slug; raises InvalidInput when it breaks the rule."""
    if not SLUG_PATTERN.fullmatch(slug):
        raise InvalidInput.for_field(
            field,
            say("Use 2 to 39 lower-case letters, digits and single hyphens, starting with a letter."),
            "invalid_slug",
        )
    if slug in _RESERVED_SLUGS:
        raise InvalidInput.for_field(field, say("`%(slug)s` is reserved.", slug=slug), "reserved")
    return slug


def tenant_create(*, actor: User | SystemActor, slug: str, name: str, owner: User | None = None) -> Tenant:
    """Create a tenant. A user becomes its owner; the system may name an `owner`.

    Raises InvalidInput for a bad slug, Conflict when it is taken.
    """
    slug_check("slug", slug)
    name = name_check("name", name) or slug
    first_owner = actor if isinstance(actor, User) else owner
    try:
        with transaction.atomic():
            if isinstance(actor, User):
                _require_room(actor)
            tenant = Tenant.objects.create(slug=slug, name=name)
            if first_owner is not None:
                Membership.objects.create(tenant=tenant, user=first_owner, role=Role.OWNER)
            audit_event_record(actor=actor, action="tenant.create", resource=tenant.path, tenant_id=tenant.pk)
    except IntegrityError:
        raise Conflict(say("The name `%(slug)s` is taken.", slug=slug), code="slug_taken") from None
    return tenant


def _require_room(owner: User) -> None:
    """Raise LimitReached for an owner of as many tenants as one may have; locks the user against a second request."""
    User.objects.select_for_update().get(pk=owner.pk)
    if owner.memberships.filter(role=Role.OWNER).count() >= settings.HIGHWATER_TENANTS_PER_USER:
        raise LimitReached(
            say(
                "You own %(highwater_tenants_per_user)s tenants, which is the most that one user may.",
                highwater_tenants_per_user=settings.HIGHWATER_TENANTS_PER_USER,
            ),
            code="over_limit",
            hint=say("Leave one that is not needed, or ask the platform's operator to make one for you."),
        )


def tenant_update(
    *,
    actor: Actor,
    tenant: Tenant,
    name: str | None = None,
    time_zone: str | None = None,
    wants_second_factor: bool | None = None,
    requires_second_factor: bool | None = None,
) -> Tenant:
    """Change the display name, the zone in which times are shown, or whether sensitive acts or log-ins ask for the second factor;
    None leaves it. Raises InvalidInput, also for a person who asks for a factor without having one, and FactorNeeded.

    What another request has changed since `tenant` was read stays: a name must not turn off a factor that was just demanded.
    """
    actor_require(actor, "tenant.update", tenant)
    if name is not None and not name.strip():
        raise InvalidInput.for_field("name", say("A name is needed."), "required")
    name = None if name is None else name_check("name", name)
    if time_zone is not None:
        zone_check(time_zone)
    factors = ("wants_second_factor", "requires_second_factor")
    given = {
        "name": name,
        "time_zone": time_zone or None,
        "wants_second_factor": wants_second_factor,
        "requires_second_factor": requires_second_factor,
    }
    with transaction.atomic():
        locked = Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        before = {field: getattr(locked, field) for field in given}
        changed = {field: new for field, new in given.items() if new is not None and new != before[field]}
        if any(changed.get(field) is False for field in factors):
            factor_require(actor, "tenant.factor_off", locked)
        for field in factors:
            if changed.get(field) and isinstance(actor, User) and not factors_of(actor):
                raise InvalidInput.for_field(
                    field, say("Set up a second factor of your own first, under Account, Second factor."), "no_factor"
                )
        for field, new in changed.items():
            setattr(locked, field, new)
        locked.save(update_fields=[*changed, "updated_at"])
        audit_event_record(
            actor=actor,
            action="tenant.update",
            resource=tenant.path,
            tenant_id=tenant.pk,
            details={"changes": changes_between(before, changed)},
        )
    for field in given:
        setattr(tenant, field, getattr(locked, field))
    return tenant


def membership_update(*, actor: Actor, membership: Membership, role: str, revoke: Collection[str] = ()) -> Membership:
    """Change a member's role. `revoke` has the ids of secrets beyond the new role that are to end (`known_secrets`), or "all".

    Raises Conflict for the last owner, NotAllowed for a role above the actor's, old or new, NotFound for one who left meanwhile;
    InvalidInput for an unknown id; BrokerUnreachable, after the change, for brokers that may let a revoked key in a while longer.
    """
    with transaction.atomic():
        membership = _locked(actor, membership)
        actor_require(actor, "member.manage", membership.tenant)
        role_require(actor, membership.tenant, membership.role)
        role_require(actor, membership.tenant, role)
        _require_another_owner(membership, leaving=Role(role) != Role.OWNER)
        revoked = known_secrets_revoke(actor, membership.tenant, membership.user, role, revoke)
        before = str(membership.role)
        membership.role = Role(role)
        membership.save(update_fields=["role", "updated_at"])
        issued_tokens_revoke(actor=actor, tenant=membership.tenant, issuer=membership.user, still=str(membership.role))
        if not actor_can(membership.user, "member.manage", membership.tenant):
            invitations_of_inviter_revoke(actor=actor, tenant=membership.tenant, inviter=membership.user)
        _record(actor, "member.update", membership, changes_between({"role": before}, {"role": str(membership.role)}))
    finish_all(revoked)
    return membership


def member_secrets(*, actor: Actor, membership: Membership, role: str | None = None) -> list[KnownSecret]:
    """Return what goes on working when the member leaves, or has the `role` from then on. Members may ask about themselves."""
    if not _is_own(actor, membership):
        actor_require(actor, "member.manage", membership.tenant)
    return known_secrets(membership.tenant, membership.user, role)


def membership_remove(*, actor: Actor, membership: Membership, revoke: Collection[str] = ()) -> None:
    """Remove a member; members may remove themselves. `revoke` and what is raised: as for `membership_update`,
    and FactorNeeded.
    """
    with transaction.atomic():
        membership = _locked(actor, membership)
        if not _is_own(actor, membership):
            actor_require(actor, "member.manage", membership.tenant)
            role_require(actor, membership.tenant, membership.role)
            factor_require(actor, "member.remove", membership.tenant)
        _require_another_owner(membership, leaving=True)
        revoked = known_secrets_revoke(actor, membership.tenant, membership.user, None, revoke)
        _record(actor, "member.remove", membership)
        issued_tokens_revoke(actor=actor, tenant=membership.tenant, issuer=membership.user)
        invitations_of_inviter_revoke(actor=actor, tenant=membership.tenant, inviter=membership.user)
        membership.delete()
    finish_all(revoked)


def _is_own(actor: Actor, membership: Membership) -> bool:
    return isinstance(actor, User) and actor.pk == membership.user_id


def _locked(actor: Actor, membership: Membership) -> Membership:
    """Return the row as it is once the tenant's members are locked; raises NotFound when it is gone."""
    members_lock(actor, membership.tenant)
    now = Membership.objects.select_related("tenant", "user").filter(pk=membership.pk).first()
    if now is None:
        raise NotFound(say("There is no such member."))
    return now


def _require_another_owner(membership: Membership, *, leaving: bool) -> None:
    """Raise Conflict when the last owner would leave. The tenant's members are locked: no other owner can leave meanwhile."""
    owners = membership.tenant.memberships.filter(role=Role.OWNER).values_list("pk", flat=True)
    if leaving and list(owners) == [membership.pk]:
        raise Conflict(say("A tenant needs an owner. Make someone else an owner first."), code="last_owner")


def _record(actor: Actor, action: str, membership: Membership, changes: Mapping[str, Any] | None = None) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=membership.tenant.path,
        tenant_id=membership.tenant_id,
        details={
            "email": membership.user.email,
            "role": str(membership.role),
            **({} if changes is None else {"changes": changes}),
        },
    )
