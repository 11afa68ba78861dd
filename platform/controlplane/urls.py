"""All addresses: the REST API below /api/v1/, probes, and the console for everything else."""

from django.urls import include, path

from controlplane.common.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/v1/", include("controlplane.api_urls")),
    path("", include("controlplane.console.urls")),
    # After the console's, so that it may put its own page at any of django-allauth's addresses (/login/, …).
    path("", include("allauth.urls")),
]

handler404 = "controlplane.common.problems.page_not_found"
handler500 = "controlplane.common.problems.server_error"
