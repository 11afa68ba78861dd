"""Writes: invitations. A person becomes a member by accepting one, and in no other way.

The link's secret shows that its holder was given the link; the account's address, which sign-up confirms wherever mail is sent,
shows that the person is the one who was meant. It takes both.
"""

import hashlib
import re
import secrets
import uuid
from dataclasses import dataclass
from datetime import timedelta

from celery import current_app
from cryptography.fernet import Fernet
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from controlplane.accounts.actors import Actor, actor_label
from controlplane.accounts.models import User
from controlplane.common.audit import audit_event_record
from controlplane.common.encryption import derive_key
from controlplane.common.errors import Conflict, InvalidInput, LimitReached, NotAllowed, NotFound
from controlplane.common.mails import mail_each
from controlplane.common.sentences import in_words, say
from controlplane.tenants.members_lock import members_lock
from controlplane.tenants.models import Invitation, Membership, Role, Tenant
from controlplane.tenants.rules import actor_can, actor_includes, actor_require, role_require
from controlplane.tenants.token_services import issuer_of

MAIL_TASK = "tenants.invitation_mail"
LIFE = timedelta(days=7)
OPEN_MAX = 50
# By one person in a day, in all tenants: what we mail to strangers is not for sale.
DAILY_MAX = 50
_SECRET_BYTES = 32
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
# Ended ones are kept this long, for the daily count; the audit trail is the record.
_KEPT_FOR = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class IssuedInvitation:
    """A new invitation with its link, which can't be had again."""

    invitation: Invitation
    link: str


def invitation_list(tenant: Tenant) -> QuerySet[Invitation]:
    """Return the tenant's invitations that were neither accepted nor ended, expired ones among them; newest first."""
    return tenant.invitations.filter(accepted_at=None, ended_at=None).select_related("inviter").order_by("-created_at")


def invitation_get(tenant: Tenant, invitation_id: uuid.UUID) -> Invitation:
    """Return one of them; raises NotFound."""
    invitation = invitation_list(tenant).filter(pk=invitation_id).first()
    if invitation is None:
        raise NotFound(say("There is no such invitation."))
    return invitation


def invitation_create(*, actor: Actor, tenant: Tenant, email: str, role: str) -> IssuedInvitation:
    """Invite an address, and mail it the link where mail is sent. An open invitation of the same address is replaced.

    The answer is the same whether or not the address has an account. Raises InvalidInput for an unknown role, Conflict for a
    member, LimitReached.
    """
    email = email.strip().lower()
    if role not in Role.values:
        raise InvalidInput.for_field("role", f"Use one of {', '.join(Role.values)}.", "invalid_choice")
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    inviter = issuer_of(actor)
    with transaction.atomic():
        members_lock(actor, tenant)
        actor_require(actor, "member.manage", tenant)
        role_require(actor, tenant, role)
        if tenant.memberships.filter(user__email=email).exists():
            raise Conflict(say("%(email)s is a member already.", email=email), code="already_member")
        invitation_list(tenant).filter(email=email).update(ended_at=timezone.now())
        _require_room(tenant, inviter)
        invitation = Invitation.objects.create(
            tenant=tenant,
            email=email,
            role=role,
            inviter=inviter,
            secret_hash=_hash(secret),
            sealed_secret=_cipher().encrypt(secret.encode("ascii")),
            expires_at=timezone.now() + LIFE,
        )
        _record(actor, "invitation.create", invitation)
        _enqueue(invitation)
    return IssuedInvitation(invitation, _link(secret))


def invitation_revoke(*, actor: Actor, invitation: Invitation) -> None:
    """End an invitation; its link is refused at once. Twice is harmless."""
    actor_require(actor, "member.manage", invitation.tenant)
    _end(actor, "invitation.revoke", invitation)


def invitations_of_inviter_revoke(*, actor: Actor, tenant: Tenant, inviter: User) -> None:
    """End what a member offered who no longer manages the tenant."""
    for invitation in invitation_list(tenant).filter(inviter=inviter):
        _end(actor, "invitation.revoke", invitation)


def invitation_of_secret(secret: str) -> Invitation:
    """Return the open invitation of a link; raises NotFound alike for one that is wrong, used, revoked or too old."""
    invitation = None
    if _SECRET.fullmatch(secret):
        invitation = (
            Invitation.objects.select_related("tenant", "inviter")
            .filter(secret_hash=_hash(secret), accepted_at=None, ended_at=None, expires_at__gt=timezone.now())
            .first()
        )
    if invitation is None or not _inviter_may(invitation):
        raise NotFound(
            say(
                "This invitation is not valid: it was used, revoked or replaced, or is older than"
                " %(days)s days. Ask the person who invited you for another one.",
                days=LIFE.days,
            ),
            code="invitation_not_valid",
        )
    return invitation


def invitation_accept(*, user: User, secret: str) -> Membership:
    """Make the user a member. Raises NotFound, and NotAllowed for a user with another address.

    A user who became a member meanwhile keeps the role: an invitation never lowers or raises one.
    """
    with transaction.atomic():
        invitation = _locked(user, secret)
        membership, created = Membership.objects.get_or_create(
            tenant=invitation.tenant, user=user, defaults={"role": invitation.role}
        )
        invitation.accepted_at = timezone.now()
        invitation.sealed_secret = b""
        invitation.save(update_fields=["accepted_at", "sealed_secret", "updated_at"])
        if created:
            _record(user, "member.join", invitation)
    return membership


def invitation_decline(*, user: User, secret: str) -> None:
    """End the invitation at the wish of the person who was invited. Raises as `invitation_accept`."""
    with transaction.atomic():
        _end(user, "invitation.decline", _locked(user, secret))


def invitation_mail(invitation_id: uuid.UUID) -> bool:
    """Mail one invitation, once; returns whether this call did."""
    now = timezone.now()
    waiting = Invitation.objects.filter(pk=invitation_id, mailed_at=None, accepted_at=None, ended_at=None)
    if waiting.update(mailed_at=now) != 1:
        return False
    invitation = Invitation.objects.select_related("tenant", "inviter").get(pk=invitation_id)
    secret = _cipher().decrypt(bytes(invitation.sealed_secret)).decode("ascii")
    try:
        mail_each(
            f"invitation {invitation.pk}",
            {invitation.email: _mail_language(invitation)},
            lambda: (_mail_title(invitation), _mail_text(invitation, _link(secret))),
        )
    except OSError:  # no mail server now: the next look for what waits tries again
        Invitation.objects.filter(pk=invitation_id).update(mailed_at=None)
        raise
    Invitation.objects.filter(pk=invitation_id).update(sealed_secret=b"")
    return True


def invitations_mail() -> int:
    """Enqueue the invitations whose mail was not sent; returns how many. Deletes those that ended long ago."""
    now = timezone.now()
    Invitation.objects.filter(expires_at__lt=now - _KEPT_FOR).delete()
    waiting = list(Invitation.objects.filter(mailed_at=None, accepted_at=None, ended_at=None, expires_at__gt=now))
    for invitation in waiting:
        _enqueue(invitation)
    return len(waiting)


def _require_room(tenant: Tenant, inviter: User | None) -> None:
    if invitation_list(tenant).count() >= OPEN_MAX:
        raise LimitReached(
            say("%(open_max)s invitations of this tenant are open.", open_max=OPEN_MAX),
            code="over_limit",
            hint=say("Revoke those not needed."),
        )
    since = timezone.now() - timedelta(days=1)
    if inviter is not None and Invitation.objects.filter(inviter=inviter, created_at__gt=since).count() >= DAILY_MAX:
        raise LimitReached(
            say("You have invited %(daily_max)s people within a day, which is the most.", daily_max=DAILY_MAX),
            code="over_limit",
            hint=say("Go on tomorrow."),
        )


def _inviter_may(invitation: Invitation) -> bool:
    inviter, tenant = invitation.inviter, invitation.tenant
    if inviter is None:
        return True
    return actor_can(inviter, "member.manage", tenant) and actor_includes(inviter, tenant, invitation.role)


def _locked(user: User, secret: str) -> Invitation:
    """Return the open invitation, locked against its other uses; raises NotFound, NotAllowed."""
    found = invitation_of_secret(secret)
    members_lock(user, found.tenant)  # who invited may be losing the right to
    Invitation.objects.select_for_update().get(pk=found.pk)
    invitation = invitation_of_secret(secret)
    if invitation.email != user.email:
        raise NotAllowed(
            say("This invitation was sent to another address than that of your account."),
            code="other_address",
            hint=say("Log in with the address that was invited, or ask for an invitation of yours."),
        )
    return invitation


def _end(actor: Actor, action: str, invitation: Invitation) -> None:
    with transaction.atomic():
        still_open = Invitation.objects.filter(pk=invitation.pk, accepted_at=None, ended_at=None)
        if still_open.update(ended_at=timezone.now(), sealed_secret=b"") == 1:
            _record(actor, action, invitation)


def _hash(secret: str) -> str:
    """SHA-256 in hexadecimal: enough for 256 random bits."""
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


def _cipher() -> Fernet:
    return Fernet(derive_key(settings.SECRET_KEY, b"invitation link"))


def _link(secret: str) -> str:
    return f"{settings.HIGHWATER_PUBLIC_URL}/invitations/{secret}/"


def _mail_language(invitation: Invitation) -> str:
    """The language of the account that has the address; without one that of the inviter, who knows the person."""
    user = User.objects.filter(email=invitation.email).first() or invitation.inviter
    return "" if user is None else user.language


def _mail_title(invitation: Invitation) -> str:
    # The tenant's slug, not its name: a stranger's free text has no place in a mail of ours.
    return f"[Highwater] {_('You are invited to %(tenant)s') % {'tenant': invitation.tenant.slug}}"


def _mail_text(invitation: Invitation, link: str) -> str:
    values = {
        "whom": _("Highwater's operator") if invitation.inviter is None else actor_label(invitation.inviter),
        "tenant": invitation.tenant.slug,
        "role": in_words(invitation.get_role_display()).lower(),
        "link": link,
        "until": f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC",
        "email": invitation.email,
    }
    paragraphs = (
        _("%(whom)s invites you to the tenant %(tenant)s on Highwater, as %(role)s."),
        _("Accept or decline: %(link)s"),
        _("The link is valid until %(until)s, once, for an account with the address %(email)s."),
        _("If you do not know who invites you, ignore this message: nothing happens."),
    )
    return "\n\n".join(paragraph % values for paragraph in paragraphs) + "\n"


def _enqueue(invitation: Invitation) -> None:
    transaction.on_commit(lambda: current_app.send_task(MAIL_TASK, args=(str(invitation.pk),), expires=60), robust=True)


def _record(actor: Actor, action: str, invitation: Invitation) -> None:
    audit_event_record(
        actor=actor,
        action=action,
        resource=invitation.path,
        tenant_id=invitation.tenant_id,
        details={"email": invitation.email, "role": str(invitation.role)},
    )
