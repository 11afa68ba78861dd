"""Who may do what: one table of permissions, each with the least role and the token scope that it needs.

`rules` predicates are made from the table, so that `actor_can(actor, "cluster.delete", tenant)`, the `has_perm` of
templates and Django's `user.has_perm` ask the same question.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from rules.permissions import add_perm
from rules.predicates import Predicate, predicate

from controlplane.accounts.actors import Actor, SystemActor, TokenActor
from controlplane.accounts.models import User
from controlplane.common.errors import NotAllowed
from controlplane.common.sentences import say
from controlplane.tenants.models import Membership, Role, Tenant

# Each includes those of lower rank. Billing has none: it may do what the table says, and nothing else.
_RANK: dict[str, int] = {Role.VIEWER: 1, Role.DEVELOPER: 2, Role.OPERATOR: 3, Role.ADMIN: 4, Role.OWNER: 5}


class Scope(StrEnum):
    """What a token may be used for, within its role."""

    READ = "read"
    MESSAGES = "messages"
    MANAGE = "manage"
    CREDENTIALS = "credentials"


@dataclass(frozen=True, slots=True)
class Requirement:
    """The least role, the scope that a token must carry, and whether the role `billing` may, too."""

    role: Role
    scope: Scope
    for_billing: bool = False


PERMISSIONS: dict[str, Requirement] = {
    "tenant.view": Requirement(Role.VIEWER, Scope.READ, for_billing=True),
    "tenant.update": Requirement(Role.ADMIN, Scope.MANAGE),
    "billing.view": Requirement(Role.VIEWER, Scope.READ, for_billing=True),
    "budget.manage": Requirement(Role.ADMIN, Scope.MANAGE, for_billing=True),
    "lag.view": Requirement(Role.VIEWER, Scope.READ),
    "member.view": Requirement(Role.VIEWER, Scope.READ),
    "member.manage": Requirement(Role.ADMIN, Scope.MANAGE),
    "token.view": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "token.manage": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "service_account.view": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "service_account.manage": Requirement(Role.ADMIN, Scope.CREDENTIALS),
    "audit.view": Requirement(Role.OPERATOR, Scope.READ),
    "cluster.view": Requirement(Role.VIEWER, Scope.READ, for_billing=True),
    "cluster.create": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.update": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.delete": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.suspend": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.resume": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.grow": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.restart": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.renew_ca": Requirement(Role.OPERATOR, Scope.MANAGE),
    "group.promote": Requirement(Role.OPERATOR, Scope.MANAGE),
    "failover.view": Requirement(Role.VIEWER, Scope.READ),
    "diverged.manage": Requirement(Role.OPERATOR, Scope.MANAGE),
    "topic.view": Requirement(Role.VIEWER, Scope.READ),
    "topic.create": Requirement(Role.DEVELOPER, Scope.MANAGE),
    "topic.update": Requirement(Role.DEVELOPER, Scope.MANAGE),
    "topic.delete": Requirement(Role.OPERATOR, Scope.MANAGE),
    "alert.view": Requirement(Role.VIEWER, Scope.READ),
    "alert.manage": Requirement(Role.OPERATOR, Scope.MANAGE),
    "offset.reset": Requirement(Role.OPERATOR, Scope.MANAGE),
    "consumer.inspect": Requirement(Role.DEVELOPER, Scope.READ),
    "message.browse": Requirement(Role.DEVELOPER, Scope.MESSAGES),
    "message.send": Requirement(Role.DEVELOPER, Scope.MESSAGES),
    "message.consume": Requirement(Role.DEVELOPER, Scope.MESSAGES),
    "dead_letter.replay": Requirement(Role.DEVELOPER, Scope.MESSAGES),
    "masking.view": Requirement(Role.VIEWER, Scope.READ),
    "masking.manage": Requirement(Role.ADMIN, Scope.MANAGE),
    "credential.view": Requirement(Role.VIEWER, Scope.READ),
    "credential.reveal": Requirement(Role.DEVELOPER, Scope.CREDENTIALS),
    "credential.create": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "credential.update": Requirement(Role.ADMIN, Scope.CREDENTIALS),
    "credential.delete": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "operation.view": Requirement(Role.VIEWER, Scope.READ),
    "operation.retry": Requirement(Role.OPERATOR, Scope.MANAGE),
    "operation.cancel": Requirement(Role.OPERATOR, Scope.MANAGE),
}


def role_allows(role: str, permission: str) -> bool:
    """Return whether the role may; raises KeyError for a permission that isn't in the table."""
    requirement = PERMISSIONS[permission]
    if role == Role.BILLING:
        return requirement.for_billing
    return _RANK.get(role, 0) >= _RANK[requirement.role]


def role_includes(role: str, other: str) -> bool:
    """Return whether the role may do all that the other may, and ranks no lower: an admin makes no owners."""
    may_all = all(role_allows(role, permission) for permission in PERMISSIONS if role_allows(other, permission))
    return may_all and _RANK.get(role, 0) >= _RANK.get(other, 0)


def actor_roles(actor: Actor, tenant: Tenant) -> tuple[Role, ...]:
    """Return the roles that all must allow what the actor does: a token's and its member's. None for an outsider."""
    match actor:
        case SystemActor():
            return (Role.OWNER,)
        case TokenActor(token=token):
            if token.tenant_id != tenant.pk:
                return ()
            if token.service_account is not None:
                return (Role(token.role), Role(token.service_account.role))
            if token.user is None:
                return (Role(token.role),)
            member_role = _member_role(token.user, tenant)
            return () if member_role is None else (Role(token.role), member_role)
        case User():
            member_role = _member_role(actor, tenant)
            return () if member_role is None else (member_role,)
        case _:  # AnonymousUser, which templates may pass
            return ()


def actor_includes(actor: Actor, tenant: Tenant, role: str) -> bool:
    """Return whether the actor may do all that the role may: no one gives or takes more than that."""
    roles = actor_roles(actor, tenant)
    return bool(roles) and all(role_includes(own, role) for own in roles)


def actor_ranks(actor: Actor, tenant: Tenant, role: str) -> bool:
    """Return whether the actor has at least this role in the tenant: a token, with its own role and its person's."""
    roles = actor_roles(actor, tenant)
    return bool(roles) and all(_RANK.get(own, 0) >= _RANK[role] for own in roles)


def roles_to_give(actor: Actor, tenant: Tenant) -> list[tuple[str, str]]:
    """Return the roles that the actor may give, with their labels."""
    own = actor_roles(actor, tenant)
    return [(value, label) for value, label in Role.choices if own and all(role_includes(one, value) for one in own)]


_remembered: ContextVar[dict[tuple[uuid.UUID, int], Role | None] | None] = ContextVar("roles", default=None)


@contextmanager
def roles_remembered() -> Iterator[None]:
    """Ask the database once for each member's role until the end of the block, which must change none.

    A page asks ten times: once to be opened, and for each button that not everyone has.
    """
    before = _remembered.set({})
    try:
        yield
    finally:
        _remembered.reset(before)


def _member_role(user: User, tenant: Tenant) -> Role | None:
    if not user.is_active:
        return None
    known = _remembered.get()
    key = (tenant.pk, user.pk)
    if known is not None and key in known:
        return known[key]
    found = Membership.objects.filter(tenant=tenant, user=user).values_list("role", flat=True).first()
    role = None if found is None else Role(found)
    if known is not None:
        known[key] = role
    return role


def actor_can(actor: Actor, permission: str, tenant: Tenant) -> bool:
    """Return whether the actor may; raises KeyError for a permission that isn't in the table."""
    requirement = PERMISSIONS[permission]
    if isinstance(actor, TokenActor) and requirement.scope not in actor.token.scopes:
        return False
    roles = actor_roles(actor, tenant)
    return bool(roles) and all(role_allows(role, permission) for role in roles)


def actor_require(actor: Actor, permission: str, tenant: Tenant) -> None:
    """Raise NotAllowed unless the actor may. The actor is known to see the tenant: selectors answer NotFound before."""
    if not actor_can(actor, permission, tenant):
        requirement = PERMISSIONS[permission]
        if isinstance(actor, TokenActor) and requirement.scope not in actor.token.scopes:
            raise NotAllowed(
                say("This token lacks the scope `%(scope)s`.", scope=requirement.scope), code="missing_scope"
            )
        also = say(", or `%(role)s`,", role=Role.BILLING.value) if requirement.for_billing else ""
        raise NotAllowed(
            say(
                "This needs the role `%(role)s` or above%(also)s in tenant `%(tenant)s`.",
                role=requirement.role,
                also=also,
                tenant=tenant.slug,
            )
        )


def role_require(actor: Actor, tenant: Tenant, role: str) -> None:
    """Raise NotAllowed unless the actor may give and take the role."""
    if not actor_includes(actor, tenant, role):
        raise NotAllowed(say("Only who may do all that the role `%(role)s` may gives it or takes it away.", role=role))


def _predicate(permission: str) -> Predicate:
    def test(actor: Actor, tenant: Tenant | None) -> bool:
        return tenant is not None and actor_can(actor, permission, tenant)

    made: Predicate = predicate(test, name=permission)  # type: ignore[no-untyped-call]  # untyped upstream
    return made


for _permission in PERMISSIONS:
    add_perm(_permission, _predicate(_permission))  # type: ignore[no-untyped-call]  # untyped upstream
