"""Reads. Whatever the actor may not see raises NotFound, exactly as what doesn't exist."""

import uuid

from django.db.models import QuerySet

from controlplane.accounts.actors import Actor, SystemActor, TokenActor
from controlplane.accounts.models import User
from controlplane.common.errors import NotFound
from controlplane.common.sentences import say
from controlplane.tenants.models import Membership, Tenant
from controlplane.tenants.rules import actor_roles
from controlplane.tenants.sensitive import entry_require


def tenant_list(actor: Actor) -> QuerySet[Tenant]:
    """Return the tenants that the actor belongs to: a token's is the one it was issued for."""
    match actor:
        case SystemActor():
            return Tenant.objects.all()
        case TokenActor(token=token):
            tenants = Tenant.objects.filter(pk=token.tenant_id)
            return tenants if token.user is None else tenants.filter(memberships__user=token.user)
        case User():
            return Tenant.objects.filter(memberships__user=actor)
        case _:
            return Tenant.objects.none()


def tenant_get(actor: Actor, slug: str) -> Tenant:
    """Return the tenant; raises NotFound for an absent one and for an outsider alike, FactorNeeded as `entry_require`."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None or not actor_roles(actor, tenant):
        raise NotFound(say("There is no such tenant."))
    entry_require(actor, tenant)
    return tenant


def membership_list(tenant: Tenant) -> QuerySet[Membership]:
    """Return the members, oldest first."""
    return tenant.memberships.select_related("user").order_by("created_at")


def membership_get(tenant: Tenant, membership_id: uuid.UUID) -> Membership:
    """Return one membership of the tenant; raises NotFound."""
    membership = tenant.memberships.select_related("user").filter(pk=membership_id).first()
    if membership is None:
        raise NotFound(say("There is no such member."))
    return membership
