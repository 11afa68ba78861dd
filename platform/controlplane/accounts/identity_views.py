"""To an identity provider and back. A form can't lead to another site (form-action 'self'): a page of ours goes on by itself."""

import time
from urllib.parse import urlencode

from allauth.core import ratelimit
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe
from requests import RequestException

from controlplane.accounts.fresh_factor import factors_of, is_fresh, session_factor_take
from controlplane.accounts.models import User
from controlplane.accounts.provider import IdentityAnswers, identity_provider
from controlplane.common.logging import get_logger

_log = get_logger("controlplane.accounts.identities")


@never_cache
@require_POST
def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Begin a log-in, or the connection of an identity (`process` is `connect`)."""
    limited: HttpResponse | None = ratelimit.consume_or_429(request, action="login")
    if limited is not None:
        return limited
    try:
        provider = get_adapter().get_provider(request, provider_id)
    except SocialApp.DoesNotExist as error:
        raise Http404("There is no such identity provider.") from error
    if request.POST.get("process") == AuthProcess.CONNECT and (asking := _asks_for_factor(request)) is not None:
        return asking
    try:
        answer: HttpResponse = provider.redirect_from_request(request)
    except (OAuth2Error, RequestException) as error:
        refused: HttpResponse = render_authentication_error(request, provider, exception=error)
        return refused
    return _lead(request, answer.url, provider.app.name) if isinstance(answer, HttpResponseRedirect) else answer


def _asks_for_factor(request: HttpRequest) -> HttpResponse | None:
    """Return the page that asks for the account's second factor, unless it has none or it was given lately.

    An identity opens the account from then on, where its provider's word stands for a factor also without the account's own.
    """
    user = request.user
    if not isinstance(user, User) or not (factors := factors_of(user)):
        return None
    session_factor_take(request, user)
    if is_fresh(user, time.time()):
        return None
    messages.warning(request, _("Confirm with your second factor first. Then please connect the identity again."))
    asking = reverse("mfa_reauthenticate" if factors.app else "mfa_reauthenticate_webauthn")
    return redirect(f"{asking}?{urlencode({'next': reverse('console:identity-list')})}")


@never_cache
@require_safe
def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Finish what `login` began, with what the provider sends back."""
    try:
        identity_provider(provider_id)
    except SocialApp.DoesNotExist as error:
        raise Http404("There is no such identity provider.") from error
    answer: HttpResponse = OAuth2CallbackView.adapter_view(IdentityAnswers(request, provider_id))(request)
    return answer


@never_cache
@require_safe
def log_out(request: HttpRequest, provider_id: str) -> HttpResponse:
    """After the log-out here, lead to the provider's own (OpenID Connect RP-Initiated Logout 1.0), if it has one."""
    try:
        provider = identity_provider(provider_id)
    except SocialApp.DoesNotExist as error:
        raise Http404("There is no such identity provider.") from error
    if request.user.is_authenticated or not provider.log_out:
        return redirect("console:home")
    try:
        address = IdentityAnswers(request, provider_id).openid_config.get("end_session_endpoint")
    except (OAuth2Error, RequestException) as error:
        _log.warning("identity_log_out_failed", provider=provider_id, reason=str(error))
        address = None
    if not provider.may_show(address):
        return render(request, "socialaccount/still_logged_in.html", {"name": provider.name})
    back = request.build_absolute_uri(reverse("console:home"))
    query = urlencode({"client_id": provider.client_id, "post_logout_redirect_uri": back})
    return _lead(request, f"{address}{'&' if '?' in str(address) else '?'}{query}", provider.name)


def _lead(request: HttpRequest, address: str, name: str) -> HttpResponse:
    return render(request, "socialaccount/leave.html", {"address": address, "name": name})
