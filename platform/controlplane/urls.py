"""All addresses: the REST API below /api/v1/, probes, and the console for everything else."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.templatetags.static import static
from django.urls import include, path

from controlplane.common.health import healthz, readyz


def favicon(request: HttpRequest) -> HttpResponse:
    """Browsers ask for it wherever a page names no icon, as at the API."""
    return redirect(static("img/logo.svg"))


urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("favicon.ico", favicon),
    path("api/v1/", include("controlplane.api_urls")),
    path("", include("controlplane.console.urls")),
    # After the console's, so that it may put its own page at any of django-allauth's addresses (/login/, …).
    path("", include("allauth.urls")),
]

handler404 = "controlplane.common.problems.page_not_found"
handler500 = "controlplane.common.problems.server_error"
