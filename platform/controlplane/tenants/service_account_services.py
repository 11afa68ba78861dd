"""Service accounts: programs of a tenant, which outlast the people who set them up."""

import uuid
from typing import Any

from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor, actor_label
from controlplane.common.audit import audit_event_record, changes_between
from controlplane.common.errors import Conflict, InvalidInput, LimitReached, NotFound
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.members_lock import members_lock
from controlplane.tenants.models import Role, ServiceAccount, Tenant
from controlplane.tenants.rules import actor_require, role_require
from controlplane.tenants.sensitive import factor_require

# People manage people: a program never makes members, owners or other programs.
ROLES = (Role.VIEWER, Role.BILLING, Role.DEVELOPER, Role.OPERATOR)
ACCOUNTS_MAX = 100


def service_account_list(tenant: Tenant) -> QuerySet[ServiceAccount]:
    """Return the tenant's service accounts by name, each with the number of its tokens and when one was last used."""
    living = Q(tokens__revoked_at=None)
    return ServiceAccount.objects.filter(tenant=tenant).annotate(
        token_count=Count("tokens", filter=living), last_used_at=Max("tokens__last_used_at")
    )


def service_account_get(tenant: Tenant, account_id: uuid.UUID) -> ServiceAccount:
    """Return one; raises NotFound."""
    account = service_account_list(tenant).filter(pk=account_id).first()
    if account is None:
        raise NotFound(say("There is no such service account."))
    return account


def service_account_create(
    *, actor: Actor, tenant: Tenant, name: str, role: str, description: str = ""
) -> ServiceAccount:
    """Make one, without a token. Raises Conflict for a name that is taken, NotAllowed for a role above the actor's."""
    with transaction.atomic():
        members_lock(actor, tenant)
        actor_require(actor, "service_account.manage", tenant)
        _role_check(actor, tenant, role)
        if ServiceAccount.objects.filter(tenant=tenant).count() >= ACCOUNTS_MAX:
            raise LimitReached(
                say("A tenant has at most %(most)s service accounts.", most=ACCOUNTS_MAX), code="over_limit"
            )
        account = ServiceAccount.objects.create(
            tenant=tenant,
            name=_free_name(tenant, name),
            description=name_check("description", description),
            role=role,
            created_by=actor_label(actor),
        )
        _record(actor, "service_account.create", account, {"role": account.role})
    return service_account_get(tenant, account.pk)


def service_account_update(
    *,
    actor: Actor,
    account: ServiceAccount,
    name: str | None = None,
    role: str | None = None,
    description: str | None = None,
    disabled: bool | None = None,
) -> ServiceAccount:
    """Change what is given. While it is disabled, its tokens are refused."""
    tenant = account.tenant
    with transaction.atomic():
        members_lock(actor, tenant)
        actor_require(actor, "service_account.manage", tenant)
        account = service_account_get(tenant, account.pk)
        before = _described(account)
        if role is not None and role != account.role:
            _role_check(actor, tenant, role)
            account.role = role
        if name is not None and name.strip() != account.name:
            account.name = _free_name(tenant, name)
        if description is not None:
            account.description = name_check("description", description)
        if disabled is not None:
            account.disabled_at = (account.disabled_at or timezone.now()) if disabled else None
        account.save()
        changes = changes_between(before, _described(account))
        _record(actor, "service_account.update", account, {"changes": changes})
    return account


def _described(account: ServiceAccount) -> dict[str, str]:
    return {
        "name": account.name,
        "role": account.role,
        "description": account.description,
        "state": account.state,
    }


def service_account_delete(*, actor: Actor, account: ServiceAccount) -> None:
    """Delete it with its tokens, which are refused at once. Raises FactorNeeded."""
    with transaction.atomic():
        members_lock(actor, account.tenant)
        actor_require(actor, "service_account.manage", account.tenant)
        factor_require(actor, "service_account.delete", account.tenant)
        if ServiceAccount.objects.filter(pk=account.pk).exists():
            _record(
                actor, "service_account.delete", account, {"tokens": account.tokens.filter(revoked_at=None).count()}
            )
            ServiceAccount.objects.filter(pk=account.pk).delete()


def _role_check(actor: Actor, tenant: Tenant, role: str) -> None:
    if role not in ROLES:
        raise InvalidInput.for_field("role", f"Use one of {', '.join(ROLES)}.", "invalid_choice")
    role_require(actor, tenant, role)


def _free_name(tenant: Tenant, text: str) -> str:
    name = name_check("name", text)
    if not 1 <= len(name) <= 100:
        raise InvalidInput.for_field("name", say("Use 1 to 100 characters."))
    if ServiceAccount.objects.filter(tenant=tenant, name=name).exists():
        raise Conflict(say("A service account of this name exists already."), code="name_taken")
    return name


def _record(actor: Actor, action: str, account: ServiceAccount, details: dict[str, Any]) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=account.path,
        tenant_id=account.tenant_id,
        details={"name": account.name, **details},
    )
