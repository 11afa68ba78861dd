"""What a person's identities at providers mean here: who may sign up, what is kept, and what the log-in says when it fails."""

from dataclasses import dataclass
from typing import Any

import requests
from allauth.account.signals import user_signed_up
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin
from allauth.socialaccount.providers.base.constants import AuthError
from allauth.socialaccount.signals import social_account_added
from django.conf import settings
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _

from controlplane.accounts.account_events import account_event_record
from controlplane.accounts.models import User
from controlplane.accounts.notices import notice_write
from controlplane.common.errors import Conflict
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say

_log = get_logger("controlplane.accounts.identities")


class IdentityAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # untyped upstream
    """django-allauth's hooks of log-ins by providers."""

    def list_apps(
        self, request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        """Return the providers of the setting, and none of the database."""
        return [
            SocialApp(
                provider="openid_connect",
                provider_id=one.id,
                name=one.name,
                client_id=one.client_id,
                secret=one.client_secret,
                settings={"server_url": one.document_url},
            )
            for one in settings.HIGHWATER_IDENTITY_PROVIDERS
            if provider in (None, "openid_connect", one.id)
        ]

    def get_requests_session(self) -> requests.Session:
        """Return a session that waits five seconds, and follows no redirect: it may lead to a host that no one named."""
        session: requests.Session = super().get_requests_session()
        session.max_redirects = 0
        return session

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return str(settings.HIGHWATER_SIGN_UP) in ("open", "identity")

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Note for the step of the second factor whether the provider has asked for one."""
        sociallogin.state["gave_factor"] = sociallogin.gave_factor

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Make the account. An address that the provider did not confirm is the one that was typed, or none."""
        sociallogin.email_addresses = [one for one in sociallogin.email_addresses if one.verified]
        with transaction.atomic():
            user: User = super().save_user(request, sociallogin, form)
        return user

    def get_connect_redirect_url(self, request: HttpRequest, socialaccount: SocialAccount) -> str:
        return reverse("console:identity-list")

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: str | None = None,
        exception: Exception | None = None,
        extra_context: dict[str, Any] | None = None,
    ) -> None:
        """Answer with a page that says what to do; the log keeps the reason for the platform's operators."""
        name = provider.app.name
        if isinstance(exception, requests.RequestException):
            status, sentence = 502, _("%(name)s does not answer. Try again in a minute, or log in another way.")
        elif exception is not None:
            status, sentence = (
                401,
                _("What %(name)s answered can’t be trusted, so you were not logged in. The operators’ log says why."),
            )
        elif error == AuthError.CANCELLED:
            status, sentence = 401, _("%(name)s says that you did not agree, so you were not logged in.")
        elif not (extra_context or {}).get("state"):
            status, sentence = (
                401,
                _("This log-in at %(name)s has expired, or was begun in another browser. Please begin again."),
            )
        else:
            status, sentence = 401, _("%(name)s refused the log-in.")
        if exception is not None or error != AuthError.CANCELLED:
            reason = str(exception) if exception else str(request.GET.get("error", ""))[:100]
            _log.warning("identity_refused", provider=provider.app.provider_id, reason=reason)
        context = {"sentence": sentence % {"name": name}, "next": ""}
        raise ImmediateHttpResponse(render(request, "socialaccount/authentication_error.html", context, status=status))


@dataclass(frozen=True, slots=True)
class Identity:
    """One of a person's identities, as the list shows it."""

    account: SocialAccount
    provider_name: str
    is_usable: bool
    is_last_way_in: bool

    @property
    def email(self) -> str:
        """The address that the provider sent, or the name that it has for the person."""
        return str(self.account.extra_data.get("email") or self.account.extra_data.get("subject", ""))


def identity_list(user: User) -> list[Identity]:
    """Return the identities that are connected to an account, the oldest first."""
    names = {one.id: one.name for one in settings.HIGHWATER_IDENTITY_PROVIDERS}
    accounts = list(SocialAccount.objects.filter(user=user).order_by("date_joined", "pk"))
    usable = [one for one in accounts if one.provider in names]
    return [
        Identity(
            account=one,
            provider_name=names.get(one.provider, one.provider),
            is_usable=one.provider in names,
            is_last_way_in=not user.has_usable_password() and usable == [one],
        )
        for one in accounts
    ]


def identity_remove(*, user: User, identity: Identity) -> None:
    """Take an identity off an account. Raises Conflict for the last way in."""
    if identity.is_last_way_in:
        raise Conflict(
            say("Without this identity no one could log in to the account."),
            hint=say("Set a password first, or connect another identity."),
        )
    with transaction.atomic():
        identity.account.delete()
        _record("identity.remove", user, identity.account)
        notice_write("identity_removed", user, provider=identity.provider_name)


@receiver(social_account_added, dispatch_uid="identity.connect")
def _record_connected(request: HttpRequest, sociallogin: SocialLogin, **others: Any) -> None:
    _record("identity.connect", sociallogin.user, sociallogin.account)
    notice_write("identity_connected", sociallogin.user, provider=sociallogin.provider.name)


@receiver(user_signed_up, dispatch_uid="identity.sign_up")
def _record_signed_up(user: User, sociallogin: SocialLogin | None = None, **others: Any) -> None:
    if sociallogin is not None:
        _record("identity.sign_up", user, sociallogin.account)


def _record(action: str, user: User, account: SocialAccount) -> None:
    details = {"provider": account.provider, **account.extra_data}
    account_event_record(actor=user, action=action, user=user, details=details)
