"""Who may do what: one table of permissions, each with the least role and the token scope that it needs.

`rules` predicates are made from the table, so that `actor_can(actor, "cluster.delete", tenant)`, the `has_perm` of
templates and Django's `user.has_perm` ask the same question.
"""

from dataclasses import dataclass
from enum import StrEnum

from rules.permissions import add_perm
from rules.predicates import Predicate, predicate

from controlplane.accounts.actors import Actor, SystemActor, TokenActor
from controlplane.accounts.models import User
from controlplane.common.errors import NotAllowed
from controlplane.tenants.models import Membership, Role, Tenant

_RANK: dict[str, int] = {Role.VIEWER: 1, Role.MEMBER: 2, Role.OPERATOR: 3, Role.OWNER: 4}


class Scope(StrEnum):
    """What a token may be used for, within its role."""

    READ = "read"
    MESSAGES = "messages"
    MANAGE = "manage"
    CREDENTIALS = "credentials"


@dataclass(frozen=True, slots=True)
class Requirement:
    """The least role, and the scope that a token must carry."""

    role: Role
    scope: Scope


PERMISSIONS: dict[str, Requirement] = {
    "tenant.view": Requirement(Role.VIEWER, Scope.READ),
    "tenant.update": Requirement(Role.OWNER, Scope.MANAGE),
    "billing.view": Requirement(Role.VIEWER, Scope.READ),
    "budget.manage": Requirement(Role.OWNER, Scope.MANAGE),
    "lag.view": Requirement(Role.VIEWER, Scope.READ),
    "member.view": Requirement(Role.VIEWER, Scope.READ),
    "member.manage": Requirement(Role.OWNER, Scope.MANAGE),
    "token.view": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "token.manage": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "audit.view": Requirement(Role.OPERATOR, Scope.READ),
    "cluster.view": Requirement(Role.VIEWER, Scope.READ),
    "cluster.create": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.update": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.delete": Requirement(Role.OPERATOR, Scope.MANAGE),
    "cluster.grow": Requirement(Role.OPERATOR, Scope.MANAGE),
    "group.promote": Requirement(Role.OPERATOR, Scope.MANAGE),
    "failover.view": Requirement(Role.VIEWER, Scope.READ),
    "topic.view": Requirement(Role.VIEWER, Scope.READ),
    "topic.create": Requirement(Role.MEMBER, Scope.MANAGE),
    "topic.update": Requirement(Role.MEMBER, Scope.MANAGE),
    "topic.delete": Requirement(Role.OPERATOR, Scope.MANAGE),
    "offset.reset": Requirement(Role.OPERATOR, Scope.MANAGE),
    "message.browse": Requirement(Role.MEMBER, Scope.MESSAGES),
    "message.send": Requirement(Role.MEMBER, Scope.MESSAGES),
    "dead_letter.replay": Requirement(Role.MEMBER, Scope.MESSAGES),
    "credential.view": Requirement(Role.VIEWER, Scope.READ),
    "credential.reveal": Requirement(Role.MEMBER, Scope.CREDENTIALS),
    "credential.create": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "credential.delete": Requirement(Role.OPERATOR, Scope.CREDENTIALS),
    "operation.view": Requirement(Role.VIEWER, Scope.READ),
    "operation.retry": Requirement(Role.OPERATOR, Scope.MANAGE),
}


def role_rank(role: str) -> int:
    """Return the order of a role, 0 for none; each role includes those of lower rank."""
    return _RANK.get(role, 0)


def tenant_role(actor: Actor, tenant: Tenant) -> Role | None:
    """Return the actor's present role in the tenant, None for an outsider."""
    match actor:
        case SystemActor():
            return Role.OWNER
        case TokenActor(token=token):
            if token.tenant_id != tenant.pk:
                return None
            if token.user is None:
                return Role(token.role)
            member_role = _member_role(token.user, tenant)
            if member_role is None:
                return None
            return min(Role(token.role), member_role, key=role_rank)
        case User():
            return _member_role(actor, tenant)
        case _:  # AnonymousUser, which templates may pass
            return None


def _member_role(user: User, tenant: Tenant) -> Role | None:
    if not user.is_active:
        return None
    role = Membership.objects.filter(tenant=tenant, user=user).values_list("role", flat=True).first()
    return None if role is None else Role(role)


def actor_can(actor: Actor, permission: str, tenant: Tenant) -> bool:
    """Return whether the actor may; raises KeyError for a permission that isn't in the table."""
    requirement = PERMISSIONS[permission]
    if isinstance(actor, TokenActor) and requirement.scope not in actor.token.scopes:
        return False
    role = tenant_role(actor, tenant)
    return role is not None and role_rank(role) >= role_rank(requirement.role)


def actor_require(actor: Actor, permission: str, tenant: Tenant) -> None:
    """Raise NotAllowed unless the actor may. The actor is known to see the tenant: selectors answer NotFound before."""
    if not actor_can(actor, permission, tenant):
        requirement = PERMISSIONS[permission]
        if isinstance(actor, TokenActor) and requirement.scope not in actor.token.scopes:
            raise NotAllowed(f"This token lacks the scope `{requirement.scope}`.", code="missing_scope")
        raise NotAllowed(f"This needs the role `{requirement.role}` or above in tenant `{tenant.slug}`.")


def _predicate(permission: str) -> Predicate:
    def test(actor: Actor, tenant: Tenant | None) -> bool:
        return tenant is not None and actor_can(actor, permission, tenant)

    made: Predicate = predicate(test, name=permission)  # type: ignore[no-untyped-call]  # untyped upstream
    return made


for _permission in PERMISSIONS:
    add_perm(_permission, _predicate(_permission))  # type: ignore[no-untyped-call]  # untyped upstream
