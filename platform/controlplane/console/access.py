"""Who may open a page. Every page below /t/<tenant>/ goes through `tenant_page`, so the check is in one place.

An outsider gets 404, exactly as for a tenant that doesn't exist. A member without the right gets 403 with a sentence that says
which role it needs. Other errors of a service that a page doesn't handle itself become a page with their sentence.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast
from urllib.parse import urlencode, urlsplit, urlunsplit

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from controlplane.accounts.adapter import FACTOR_WANTED_FOR
from controlplane.accounts.fresh_factor import factors_of, session_factor_take
from controlplane.accounts.models import User
from controlplane.common.errors import ApplicationError, FactorNeeded, NotAllowed, NotFound
from controlplane.common.sentences import in_words, say, say_all
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require, roles_remembered
from controlplane.tenants.selectors import tenant_get

P = ParamSpec("P")


class ConsoleRequest(HttpRequest):
    """A request of a user who is logged in, as the pages see it."""

    user: User
    htmx: HtmxDetails


ConsoleView = Callable[Concatenate[ConsoleRequest, Tenant, P], HttpResponseBase]


def console_page(
    view: Callable[Concatenate[ConsoleRequest, P], HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Wrap a page that needs a log-in but no tenant."""

    @wraps(view)
    def wrapped(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            if isinstance(request.user, User):
                session_factor_take(request, request.user)
            return view(cast(ConsoleRequest, request), *args, **kwargs)
        except FactorNeeded as error:
            return _ask_for_factor(request, error)
        except NotFound as error:
            raise Http404(error.message) from error
        except NotAllowed as error:
            raise PermissionDenied(in_words(error.message)) from error
        except ApplicationError as error:
            return _problem(request, error)

    @wraps(view)
    def opened(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.user.is_authenticated:
            return wrapped(request, *args, **kwargs)
        if request.headers.get("HX-Request"):
            # A part of a page whose session has ended: the whole page goes to the log-in, and from there back to itself.
            page = urlsplit(request.headers.get("HX-Current-URL", ""))
            back = urlunsplit(("", "", page.path or "/", page.query, ""))
            return HttpResponseClientRedirect(f"{reverse('account_login')}?{urlencode({'next': back})}")
        return redirect_to_login(request.get_full_path())

    return opened


def _ask_for_factor(request: HttpRequest, error: FactorNeeded) -> HttpResponseBase:
    """Lead to the page that asks for the second factor, and from there back to the page that the request came from."""
    assert isinstance(request.user, User)
    factors = factors_of(request.user)
    if not factors:
        return _go(request, reverse("mfa_index")) if request.headers.get("HX-Request") else _problem(request, error)
    page = urlsplit(request.headers.get("HX-Current-URL") or request.headers.get("Referer", ""))
    back = urlunsplit(("", "", page.path or request.path, page.query, ""))
    is_visit = request.method in ("GET", "HEAD") and not request.headers.get("HX-Request")
    if is_visit:
        back = request.get_full_path()
    request.session[FACTOR_WANTED_FOR] = back
    once_more = "" if is_visit else say("Then please send the form once more.")
    messages.warning(request, in_words(say_all(error.message, once_more)))
    asking = reverse("mfa_reauthenticate" if factors.app else "mfa_reauthenticate_webauthn")
    return _go(request, f"{asking}?{urlencode({'next': back})}")


def _go(request: HttpRequest, url: str) -> HttpResponseBase:
    """Lead elsewhere; htmx would put the other page into a part of this one."""
    return HttpResponseClientRedirect(url) if request.headers.get("HX-Request") else HttpResponseRedirect(url)


def _problem(request: HttpRequest, error: ApplicationError) -> HttpResponseBase:
    return render(request, "console/problem.html", {"problem": error}, status=error.status)


def tenant_page(permission: str) -> Callable[[ConsoleView[P]], Callable[..., HttpResponseBase]]:
    """Wrap a page of one tenant: the view gets the Tenant where the address has its slug, after `permission` was checked."""

    def decorate(view: ConsoleView[P]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def wrapped(request: ConsoleRequest, tenant: str, *args: Any, **kwargs: Any) -> HttpResponseBase:
            # What only shows changes no role, its own reader's least of all.
            with roles_remembered() if request.method in ("GET", "HEAD") else nullcontext():
                found = tenant_get(request.user, tenant)
                actor_require(request.user, permission, found)
                return view(request, found, *args, **kwargs)

        page = console_page(wrapped)
        page.permission = permission  # type: ignore[attr-defined]  # for the test of every page and role
        return page

    return decorate
