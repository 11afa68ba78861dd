"""The identities at providers that open one's account: listed, connected (see accounts/identity_views.py) and removed."""

from allauth.account.decorators import reauthentication_required
from django.conf import settings
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.accounts.identities import identity_list as identities_of
from controlplane.accounts.identities import identity_remove as remove
from controlplane.console.access import ConsoleRequest, console_page
from controlplane.console.pages import never_store, tell_done


@require_http_methods(["GET", "HEAD"])
@console_page
def identity_list(request: ConsoleRequest) -> HttpResponse:
    """Show one's identities, and the providers that one more may come from."""
    context = {"identities": identities_of(request.user), "providers": settings.HIGHWATER_IDENTITY_PROVIDERS}
    return never_store(render(request, "console/identities.html", context))


@require_POST
@reauthentication_required(app="allauth.socialaccount")  # type: ignore[untyped-decorator]  # untyped upstream
@console_page
def identity_remove(request: ConsoleRequest, identity: int) -> HttpResponse:
    """Remove one of one's identities; asks for the password again first."""
    found = next((one for one in identities_of(request.user) if one.account.pk == identity), None)
    if found is None:
        raise Http404("You have no such identity. It may be removed already.")
    remove(user=request.user, identity=found)
    tell_done(request, _("That identity no longer opens your account."))
    return redirect("console:identity-list")
