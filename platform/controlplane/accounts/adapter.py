"""What django-allauth does otherwise here."""

from typing import Any

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.core.exceptions import ImmediateHttpResponse
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.shortcuts import render
from django.urls import reverse
from django.utils import translation

from controlplane.accounts.models import User

_log = structlog.get_logger(__name__)
# In the session: where to go on after the second factor was given.
FACTOR_WANTED_FOR = "factor_wanted_for"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # untyped upstream
    """Counts failed log-ins by account and address together: a stranger's guesses lock no one else out."""

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        return f"{super()._get_login_attempts_cache_key(request, **credentials)}:{self.get_client_ip(request)}"

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return str(settings.HIGHWATER_SIGN_UP) == "open"

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Mail in the language of the address's account; in the page's where it has none or there is no account. Where no mail
        server takes it, a page that says so is the answer.
        """
        language = User.objects.filter(email__iexact=email).values_list("language", flat=True).first()
        try:
            with translation.override(language or translation.get_language()):
                super().send_mail(template_prefix, email, context)
        except OSError as error:
            _log.error("mail_not_sent", reason=str(error))
            page = render(self.request, "account/mail_not_sent.html", {"email": email}, status=503)
            raise ImmediateHttpResponse(page) from error

    def get_login_stages(self) -> list[str]:
        """Return the steps of a log-in, with our own for the second factor."""
        ours = {"allauth.mfa.stages.AuthenticateStage": "controlplane.accounts.login_stages.FactorStage"}
        return [ours.get(stage, stage) for stage in super().get_login_stages()]

    def get_logout_redirect_url(self, request: HttpRequest) -> str:
        """Return the page after a log-out: where the identity's provider ends its session, if the setting wants that."""
        records = get_authentication_records(request, request.user)
        used = [record["provider"] for record in records if record.get("method") == "socialaccount"]
        if used and any(one.id == used[-1] and one.log_out for one in settings.HIGHWATER_IDENTITY_PROVIDERS):
            return reverse("openid_connect_log_out", args=[used[-1]])
        page: str = super().get_logout_redirect_url(request)
        return page

    def get_reauthentication_methods(self, user: User | AnonymousUser) -> list[dict[str, Any]]:
        """Leave the password out where the second factor is asked for: it would lead back to the same question."""
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        request = self.request
        if request is None:
            return methods
        wanted = request.session.get(FACTOR_WANTED_FOR)
        if not wanted or wanted not in (request.GET.get("next"), request.POST.get("next")):
            return methods
        return [method for method in methods if method["id"] != "reauthenticate"]
