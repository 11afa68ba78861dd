"""Pages without a tenant: the front page, the theme and language switches, the list of one's tenants, and a new tenant."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.accounts.languages import language_choose
from controlplane.accounts.models import User
from controlplane.accounts.operators import is_operator
from controlplane.common.errors import ApplicationError
from controlplane.common.sentences import say
from controlplane.console.access import ConsoleRequest, console_page
from controlplane.console.forms import TenantForm
from controlplane.console.pages import form_take_error, status_of, tell_done
from controlplane.console.templatetags.console import THEMES
from controlplane.console.views import invitations
from controlplane.tenants.models import Membership
from controlplane.tenants.services import tenant_create

_COOKIE_AGE_S = 365 * 24 * 3600

_EXAMPLE = """\
from highwater import Credentials, Message, Producer

with Producer(
    namesrv="your-cluster:9876",
    group="orders-service",
    credentials=Credentials("YOUR_ACCESS_KEY", "YOUR_SECRET_KEY"),
) as producer:
    result = producer.send(
        Message("orders", b"paid", tags="paid", keys=("o-1",))
    )
    print(result.status)  # SEND_OK"""


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show the front page; a logged-in user goes to their only tenant, to the list of them, or to make the first.

    An operator without a tenant goes to the operators' pages, and a user who opened an invitation before the log-in back to it.
    """
    if not request.user.is_authenticated:
        return render(request, "console/home.html", {"example": _EXAMPLE})
    if invitations.SESSION_KEY in request.session:
        return redirect("console:invitation")
    slugs = list(Membership.objects.filter(user=request.user).values_list("tenant__slug", flat=True)[:2])
    if not slugs and is_operator(request.user):
        return redirect("console:operator-jobs")
    if not slugs:
        return redirect("console:tenant-new")
    return redirect("console:cluster-list", slugs[0]) if len(slugs) == 1 else redirect("console:tenant-list")


def _page_before(request: HttpRequest) -> str:
    """Where a switch in the foot of a page leads back to: an address of ours, else the front page."""
    back = request.POST.get("next", "/")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure()):
        back = "/"
    return back


@require_POST
def language(request: HttpRequest) -> HttpResponse:
    """Remember the language of the pages, and go back."""
    response = HttpResponseRedirect(_page_before(request))
    chosen = request.POST.get("language", "")
    if chosen in dict(settings.LANGUAGES):
        if isinstance(request.user, User):
            language_choose(request.user, chosen)
        response.set_cookie(
            settings.LANGUAGE_COOKIE_NAME,
            chosen,
            max_age=_COOKIE_AGE_S,
            httponly=True,
            samesite="Lax",
            secure=settings.SESSION_COOKIE_SECURE,
        )
    return response


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Remember the colour theme, and go back. With scripts the switch sets the cookie itself and never comes here."""
    response = HttpResponseRedirect(_page_before(request))
    chosen = request.POST.get("theme", "")
    if chosen in THEMES:
        response.set_cookie(
            settings.HIGHWATER_THEME_COOKIE_NAME,
            chosen,
            max_age=_COOKIE_AGE_S,
            samesite="Lax",
            secure=settings.SESSION_COOKIE_SECURE,
        )
    return response


@require_safe
@console_page
def tenant_list(request: ConsoleRequest) -> HttpResponse:
    """Show one's tenants with one's role in each."""
    memberships = Membership.objects.filter(user=request.user).select_related("tenant").order_by("tenant__name")
    return render(request, "console/tenants.html", {"memberships": memberships})


@require_http_methods(["GET", "HEAD", "POST"])
@console_page
def tenant_new(request: ConsoleRequest) -> HttpResponse:
    """Make a tenant; its maker becomes its owner."""
    form = TenantForm(request.POST or None)
    if form.is_valid():
        try:
            tenant = tenant_create(actor=request.user, slug=form.cleaned_data["slug"], name=form.cleaned_data["name"])
        except ApplicationError as error:
            form_take_error(form, error, {"slug_taken": "slug"})
        else:
            tell_done(request, say("%(tenant)s is ready. Next, a cluster.", tenant=tenant.name))
            return redirect("console:cluster-list", tenant.slug)
    context = {
        "form": form,
        "is_first": not Membership.objects.filter(user=request.user).exists(),
    }
    return render(request, "console/tenant_new.html", context, status=status_of(form))
