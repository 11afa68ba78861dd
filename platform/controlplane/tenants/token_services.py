"""Writes: API tokens of a tenant."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from controlplane.accounts.actors import Actor, SystemActor, TokenActor, actor_label
from controlplane.accounts.models import ApiToken, User
from controlplane.accounts.notices import notice_write
from controlplane.accounts.operators import OPERATE_SCOPE, is_operator
from controlplane.accounts.tokens import token_text_generate
from controlplane.common.audit import audit_event_record
from controlplane.common.errors import InvalidInput, LimitReached, NotAllowed, NotFound
from controlplane.common.sentences import say
from controlplane.common.words import name_check
from controlplane.tenants.known_secrets import Finish, KnownSecret
from controlplane.tenants.members_lock import members_lock
from controlplane.tenants.models import Membership, Role, ServiceAccount, Tenant
from controlplane.tenants.rules import Scope, actor_includes, actor_require, role_includes
from controlplane.tenants.sensitive import factor_require

DEFAULT_LIFE_DAYS = 90
ALL_SCOPES: tuple[str, ...] = tuple(Scope)
# Of a tenant, valid at the same time: each may ask as often as one person.
TOKENS_MAX = 200


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token with its text, which can't be had again."""

    token: ApiToken
    text: str


def api_token_list(tenant: Tenant) -> QuerySet[ApiToken]:
    """Return the tenant's tokens that are not revoked, each with whether its issuer is a member (`issuer_is_member`)."""
    members = Membership.objects.filter(tenant=OuterRef("tenant"), user=OuterRef("issuer"))
    found = tenant.api_tokens.filter(revoked_at=None).select_related("user", "service_account", "issuer")
    return found.annotate(issuer_is_member=Exists(members))


def api_token_get(tenant: Tenant, token_id: uuid.UUID) -> ApiToken:
    """Return one token of the tenant; raises NotFound."""
    token = api_token_list(tenant).filter(pk=token_id).first()
    if token is None:
        raise NotFound(say("There is no such token."))
    return token


def api_token_issue(
    *,
    actor: Actor,
    tenant: Tenant,
    name: str,
    role: str = Role.OPERATOR,
    scopes: tuple[str, ...] = ALL_SCOPES,
    days: int | None = DEFAULT_LIFE_DAYS,
    user: User | None = None,
    service_account: ServiceAccount | None = None,
) -> IssuedToken:
    """Issue a token: of `user` or `service_account` when given, else a service token of the tenant.

    What a service account's token issues is that account's too, so that all of them end with it.

    `days` is its life, None for no end. No one hands out more than they hold: raises NotAllowed for a role or a
    scope above the actor's own, InvalidInput for an unknown one, LimitReached for more than 200 that are valid.
    """
    if role not in Role.values:
        raise InvalidInput.for_field("role", f"Use one of {', '.join(Role.values)}.", "invalid_choice")
    known = {*ALL_SCOPES, OPERATE_SCOPE} if _for_operator(actor, user) else set(ALL_SCOPES)
    unknown = sorted(set(scopes) - known)
    if unknown or not scopes:
        raise InvalidInput.for_field("scopes", f"Use one or more of {', '.join(ALL_SCOPES)}.", "invalid_choice")
    text = token_text_generate(settings.HIGHWATER_ENVIRONMENT)
    own_account = actor.token.service_account if isinstance(actor, TokenActor) else None
    account = own_account or service_account
    with transaction.atomic():
        members_lock(actor, tenant)
        actor_require(actor, "token.manage", tenant)
        if account is not None:
            account = _as_it_is(account)
            _account_require(actor, account, role, service_account)
        factor_require(actor, "token.create", tenant)
        if not actor_includes(actor, tenant, role):
            raise NotAllowed(say("A token can't have a role that may do more than its issuer."))
        if isinstance(actor, TokenActor) and not set(scopes) <= set(actor.token.scopes):
            raise NotAllowed(say("A token can't have more scopes than the token that issues it."))
        if not isinstance(actor, SystemActor) and _valid(tenant).count() >= TOKENS_MAX:
            raise LimitReached(
                say("The tenant has %(most)s valid tokens, and may not have more.", most=TOKENS_MAX),
                hint=say("Revoke those that are not needed."),
            )
        token = ApiToken.objects.create(
            tenant=tenant,
            user=user,
            service_account=account,
            issuer=issuer_of(actor) or user,
            name=name_check("name", name) or "token",
            public_id=text.public_id,
            secret_hash=text.secret_hash,
            role=role,
            scopes=sorted(set(scopes)),
            created_by=actor_label(actor),
            expires_at=_expiry(actor, days),
        )
        _record(actor, "token.issue", token)
        person = issuer_of(actor)
        if person is not None:
            notice_write("token_made", person, token=token.name, tenant=tenant.slug)
    return IssuedToken(token, str(text))


def _as_it_is(account: ServiceAccount) -> ServiceAccount:
    """Return the account as it is once the tenant's members are locked; raises NotFound where it was deleted meanwhile."""
    now = ServiceAccount.objects.select_related("tenant").filter(pk=account.pk).first()
    if now is None:
        raise NotFound(say("There is no such service account."))
    return now


def _account_require(actor: Actor, account: ServiceAccount, role: str, asked: ServiceAccount | None) -> None:
    """Raise unless the actor may issue a token of that role for the account: an admin, or the account itself."""
    own = actor.token.service_account if isinstance(actor, TokenActor) else None
    if own is None:
        actor_require(actor, "service_account.manage", account.tenant)
    elif asked is not None and asked.pk != own.pk:
        raise NotAllowed("A service account issues tokens for itself only.")
    if not role_includes(account.role, role):
        raise NotAllowed("A token can't have a role that may do more than its service account.")


def api_token_revoke(*, actor: Actor, token: ApiToken) -> None:
    """Revoke a token at once. Twice is harmless."""
    with transaction.atomic():
        members_lock(actor, token.tenant)
        actor_require(actor, "token.manage", token.tenant)
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()) == 1:
            _record(actor, "token.revoke", token)


def issued_tokens_revoke(*, actor: Actor, tenant: Tenant, issuer: User, still: str | None = None) -> int:
    """Revoke what a member issued, who leaves (`still` is None) or has the role `still` now; returns how many tokens.

    Not those of service accounts, which others may count on: they are offered (`AccountTokens`).
    """
    revoked = 0
    for token in api_token_list(tenant).filter(issuer=issuer, service_account=None):
        if still is not None and role_includes(still, token.role):
            continue
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now()) == 1:
            _record(actor, "token.revoke", token)
            revoked += 1
    return revoked


class AccountTokens:
    """Tokens of service accounts, which outlast their issuers."""

    kind = "service_account_token"
    permission = "token.manage"

    def find(self, tenant: Tenant, user: User, still: str | None) -> list[KnownSecret]:
        """Return those that the user issued, but for those that do no more than the role `still` may."""
        tokens = _valid(tenant).filter(issuer=user, service_account__isnull=False)
        return [
            KnownSecret(self.kind, token.pk, token.name, str(token.service_account), True, token.created_at)
            for token in tokens
            if still is None or not role_includes(still, token.role)
        ]

    def revoke(self, actor: Actor, tenant: Tenant, ids: Collection[uuid.UUID]) -> Finish:
        """Revoke them at once."""
        for token in api_token_list(tenant).filter(pk__in=ids):
            api_token_revoke(actor=actor, token=token)
        return tuple


def _valid(tenant: Tenant) -> QuerySet[ApiToken]:
    return api_token_list(tenant).exclude(expires_at__lte=timezone.now())


def issuer_of(actor: Actor) -> User | None:
    """Return the person who acts, by a token or not; None for the system."""
    match actor:
        case User():
            return actor
        case TokenActor(token=token):
            return token.issuer or token.user
        case _:
            return None


def _expiry(actor: Actor, days: int | None) -> datetime | None:
    """When a new token ends: never after the token that issues it."""
    asked = None if days is None else timezone.now() + timedelta(days=days)
    limit = actor.token.expires_at if isinstance(actor, TokenActor) else None
    return min((end for end in (asked, limit) if end is not None), default=None)


def _for_operator(actor: Actor, user: User | None) -> bool:
    """Whether the token may carry the platform operators' scope: only the command line hands it out, and to them only."""
    return isinstance(actor, SystemActor) and user is not None and is_operator(user)


def _record(actor: Actor, action: str, token: ApiToken) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=f"{token.tenant.path}tokens/{token.pk}/",
        tenant_id=token.tenant_id,
        details={"name": token.name, "public_id": token.public_id, "role": token.role, "scopes": token.scopes},
    )
