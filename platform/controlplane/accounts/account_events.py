"""What happens to an account, in the audit trail: log-ins, failed ones, log-outs, and changes of what protects it.

Each is an event of every tenant that the account belongs to, so that those who look after a tenant see who comes in, and from
where; of the platform's own trail where the account belongs to none, or is an operator's.
"""

import uuid
from datetime import timedelta
from typing import Any

from allauth.account.authentication import get_authentication_records
from allauth.account.models import EmailAddress
from allauth.account.signals import password_changed, password_reset, password_set
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models import Q
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.accounts.operators import is_operator
from controlplane.common.audit import audit_event_record
from controlplane.common.models import AuditEvent

LOG_IN, LOG_IN_FAILED, LOG_OUT = "session.log_in", "session.log_in_failed", "session.log_out"
# Of one account: a crowd of strangers who guess must not fill the trail. The log has them all.
FAILED_AN_HOUR_MAX = 100
_STRANGER = "not logged in"


def account_event_record(*, actor: object, action: str, user: User, details: dict[str, Any] | None = None) -> None:
    """Add the event to the trails that tell of the account."""
    tenants: list[uuid.UUID | None] = [*sorted(user.memberships.values_list("tenant_id", flat=True))]
    if not tenants or is_operator(user):
        tenants.append(None)
    for tenant_id in tenants:
        audit_event_record(actor=actor, action=action, resource=user.email, tenant_id=tenant_id, details=details)


@receiver(user_logged_in, dispatch_uid="account_events.log_in")
def _logged_in(request: HttpRequest, user: User, **others: Any) -> None:
    given = {_method(one) for one in get_authentication_records(request, user)}
    account_event_record(actor=user, action=LOG_IN, user=user, details={"by": sorted(given)} if given else {})


@receiver(user_logged_out, dispatch_uid="account_events.log_out")
def _logged_out(user: User | None, **others: Any) -> None:
    if user is not None:
        account_event_record(actor=user, action=LOG_OUT, user=user)


@receiver(user_login_failed, dispatch_uid="account_events.log_in_failed")
def _log_in_failed(credentials: dict[str, Any], request: HttpRequest | None = None, **others: Any) -> None:
    """Note it where the address is an account's. What else was typed may be a password: it is not kept."""
    email = str(credentials.get("email") or credentials.get("username") or "").strip().lower()
    # One logs in by any address of one's own that is confirmed; an unconfirmed one may be somebody else's.
    known = EmailAddress.objects.filter(email=email, verified=True).values("user")
    for user in User.objects.filter(Q(email=email) | Q(pk__in=known)):
        _failed(request, user, "password")


@receiver(authentication_failed, dispatch_uid="account_events.factor_failed")
def _factor_failed(request: HttpRequest, user: User, authenticator: Authenticator, **others: Any) -> None:
    _failed(request, user, str(authenticator.type))


@receiver([password_changed, password_set, password_reset], dispatch_uid="account_events.password")
def _password(signal: Any, user: User, **others: Any) -> None:
    kinds = {password_changed: "password.change", password_set: "password.set", password_reset: "password.reset"}
    account_event_record(actor=user, action=kinds[signal], user=user)


def _failed(request: HttpRequest | None, user: User, what: str) -> None:
    since = timezone.now() - timedelta(hours=1)
    earlier = AuditEvent.objects.filter(action=LOG_IN_FAILED, resource=user.email, created_at__gt=since)
    if earlier.values("request_id").distinct().count() >= FAILED_AN_HOUR_MAX:
        return
    own = getattr(request, "user", None)
    actor = own if isinstance(own, User) else _STRANGER
    account_event_record(actor=actor, action=LOG_IN_FAILED, user=user, details={"wrong": what})


def _method(record: dict[str, Any]) -> str:
    """A provider by its id, a factor by its kind; else django-allauth's word, such as password."""
    return str(record.get("provider") or record.get("type") or record.get("method"))
