"""Mail to a person about what happened to their account: a log-in from a new browser, and each change of what protects it.

A notice is a row, written with the change and mailed afterwards, so that neither a slow mail server nor a lost one costs a
log-in or a notice. It says who, from where and when, and what to do if it was someone else.
"""

import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from allauth.account.signals import (
    email_added,
    email_changed,
    email_removed,
    password_changed,
    password_reset,
    password_set,
)
from celery import current_app
from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.dispatch import receiver
from django.utils import timezone, translation
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from controlplane.accounts.browsers import browser_name
from controlplane.accounts.models import AccountNotice, User
from controlplane.common.request_context import current_request_context

MAIL_TASK = "accounts.notice_mail"
_KEPT_FOR = timedelta(days=30)
# A mail server that was away for so long: news of that age helps no one.
_TRIED_FOR = timedelta(days=2)

# What happened, by kind: values are the notice's details. Called in the reader's language.
_WHAT: dict[str, Callable[[], str]] = {
    "new_browser": lambda: _("Someone logged in to your account from a browser that it was not used with before."),
    "password_changed": lambda: _("The password of your account was changed."),
    "password_set": lambda: _("Your account has got a password."),
    "password_reset": lambda: _("The password of your account was set by a link that we mailed."),
    "email_added": lambda: _("The e-mail address %(address)s was added to your account."),
    "email_removed": lambda: _("The e-mail address %(address)s was removed from your account."),
    "email_changed": lambda: _("The primary e-mail address of your account is now %(address)s."),
    "factor_added": lambda: _("A second factor was added to your account: %(factor)s."),
    "factor_removed": lambda: _("A second factor was removed from your account: %(factor)s."),
    "factors_removed": lambda: _("An operator of the platform took all second factors off your account."),
    "recovery_codes_made": lambda: _("New recovery codes were made for your account."),
    "identity_connected": lambda: _("An identity at %(provider)s was connected: it opens your account."),
    "identity_removed": lambda: _("An identity at %(provider)s was removed: it no longer opens your account."),
    "token_made": lambda: _("An API token was made in your name: %(token)s, for the tenant %(tenant)s."),
}
_TITLES: dict[str, Callable[[], str]] = {"new_browser": lambda: _("New log-in: %(browser)s")}
_FACTORS: dict[str, Callable[[], str]] = {
    "totp": lambda: _("authenticator app"),
    "webauthn": lambda: _("passkey"),
    "recovery_codes": lambda: _("recovery codes"),
}


def notice_write(kind: str, user: User, *, email: str | None = None, **details: str) -> None:
    """Have a notice of what just happened sent to the user, at `email` or the primary address."""
    context = current_request_context()
    notice = AccountNotice.objects.create(
        user=user,
        email=email or user.email,
        kind=kind,
        details=details,
        address=context.address,
        browser=_known_browser(context.user_agent),
        language=user.language or settings.LANGUAGE_CODE,  # the account's: a stranger may have done it
    )
    _enqueue(notice.pk)


def factor_notice(action: str, user: User, kind: str) -> None:
    """Write a notice of a change of a second factor; `kind` is django-allauth's."""
    if kind == "recovery_codes":
        if action != "factor_removed":
            notice_write("recovery_codes_made", user)
        return
    notice_write(action, user, factor=kind)


def notice_mail(notice_id: uuid.UUID) -> bool:
    """Mail one notice, once; returns whether this call did."""
    waiting = AccountNotice.objects.filter(pk=notice_id, mailed_at=None)
    if waiting.update(mailed_at=timezone.now()) != 1:
        return False
    notice = AccountNotice.objects.get(pk=notice_id)
    try:
        send_mail(*notice_words(notice), None, [notice.email])
    except OSError:  # no mail server now: the next look for what waits tries again
        AccountNotice.objects.filter(pk=notice_id).update(mailed_at=None)
        raise
    return True


def notices_mail() -> int:
    """Enqueue the notices that no mail server took yet; returns how many. Deletes old ones."""
    now = timezone.now()
    AccountNotice.objects.filter(created_at__lt=now - _KEPT_FOR).delete()
    # What was written a moment ago is on its way already.
    waiting = AccountNotice.objects.filter(
        mailed_at=None, created_at__range=(now - _TRIED_FOR, now - timedelta(minutes=1))
    )
    ids = list(waiting.values_list("pk", flat=True))
    for notice_id in ids:
        _enqueue(notice_id)
    return len(ids)


def notice_words(notice: AccountNotice) -> tuple[str, str]:
    """Return a notice's subject and text, in the account's language."""
    base = settings.HIGHWATER_PUBLIC_URL.rstrip("/")
    with translation.override(notice.language):
        values = {**notice.details, "browser": notice.browser or _("unknown browser")}
        if "factor" in values:
            values["factor"] = _FACTORS.get(values["factor"], partial(str, values["factor"]))()
        what = _WHAT[notice.kind]() % values
        title = (_TITLES[notice.kind]() if notice.kind in _TITLES else _("A change of your account")) % values
        rows = [
            (_("Account"), notice.user.email),
            (_("Time"), f"{notice.created_at:%Y-%m-%d %H:%M} UTC"),
            (_("Browser"), values["browser"]),
            (_("IP address"), notice.address or _("unknown")),
        ]
        table = "\n".join(f"{name}{pgettext('mark', ': ')}{value}" for name, value in rows)
        advice = [
            _("If this was you, there is nothing to do. If not:"),
            _("1. Change your password, which ends all other sessions: %(url)s") % {"url": f"{base}/password/change/"},
            _("2. Look at your second factor: %(url)s") % {"url": f"{base}/2fa/"},
            _("3. Look at your identities: %(url)s") % {"url": f"{base}/identities/"},
        ]
    return f"[Highwater] {title}", f"{what}\n\n{table}\n\n" + "\n".join(advice) + "\n"


def _enqueue(notice_id: uuid.UUID) -> None:
    transaction.on_commit(lambda: current_app.send_task(MAIL_TASK, args=(str(notice_id),), expires=60), robust=True)


def _known_browser(user_agent: str) -> str:
    """Return the browser's name; empty for words of its own, which a stranger may have chosen for the reader of the mail."""
    name = browser_name(user_agent)
    return "" if name == user_agent[: len(name)] or not user_agent else name


@receiver([password_changed, password_set, password_reset], dispatch_uid="notices.password")
def _password(signal: Any, user: User, **others: Any) -> None:
    kinds = {password_changed: "password_changed", password_set: "password_set", password_reset: "password_reset"}
    notice_write(kinds[signal], user)


@receiver(email_added, dispatch_uid="notices.email_added")
def _email_added(user: User, email_address: Any, **others: Any) -> None:
    notice_write("email_added", user, address=email_address.email)


@receiver(email_removed, dispatch_uid="notices.email_removed")
def _email_removed(user: User, email_address: Any, **others: Any) -> None:
    notice_write("email_removed", user, address=email_address.email)


@receiver(email_changed, dispatch_uid="notices.email_changed")
def _email_changed(user: User, from_email_address: Any, to_email_address: Any, **others: Any) -> None:
    """Notify the address that was the primary one: a thief of the account has the new one."""
    before = from_email_address.email if from_email_address is not None else user.email
    notice_write("email_changed", user, email=before, address=to_email_address.email)
