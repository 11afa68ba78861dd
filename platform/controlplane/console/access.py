"""Who may open a page. Every page below /t/<tenant>/ goes through `tenant_page`, so the check is in one place.

An outsider gets 404, exactly as for a tenant that doesn't exist. A member without the right gets 403 with a sentence that says
which role it needs. Other errors of a service that a page doesn't handle itself become a page with their sentence.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import render
from django_htmx.middleware import HtmxDetails

from controlplane.accounts.models import User
from controlplane.common.errors import ApplicationError, NotAllowed, NotFound
from controlplane.tenants.models import Tenant
from controlplane.tenants.rules import actor_require
from controlplane.tenants.selectors import tenant_get

P = ParamSpec("P")


class ConsoleRequest(HttpRequest):
    """A request of somebody who is logged in, as the pages see it."""

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
            return view(cast(ConsoleRequest, request), *args, **kwargs)
        except NotFound as error:
            raise Http404(error.message) from error
        except NotAllowed as error:
            raise PermissionDenied(error.message) from error
        except ApplicationError as error:
            return render(request, "console/problem.html", {"problem": error}, status=error.status)

    return cast(Callable[..., HttpResponseBase], login_required(wrapped))


def tenant_page(permission: str) -> Callable[[ConsoleView[P]], Callable[..., HttpResponseBase]]:
    """Wrap a page of one tenant: the view gets the Tenant where the address has its slug, after `permission` was checked."""

    def decorate(view: ConsoleView[P]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def wrapped(request: ConsoleRequest, tenant: str, *args: Any, **kwargs: Any) -> HttpResponseBase:
            found = tenant_get(request.user, tenant)
            actor_require(request.user, permission, found)
            return view(request, found, *args, **kwargs)

        return console_page(wrapped)

    return decorate
