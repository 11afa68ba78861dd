"""The REST API, version 1."""

from django.urls import include, path
from drf_spectacular.views import SpectacularSwaggerSplitView

from controlplane.common.description import DescriptionApi
from controlplane.tenants.apis import InvitationAcceptApi, InvitationDeclineApi

urlpatterns = [
    path("schema/", DescriptionApi.as_view(), name="schema"),
    # Swagger UI with files of ours; the split view's script is a request of its own, as nothing inline is allowed.
    path(
        "docs/",
        SpectacularSwaggerSplitView.as_view(url_name="schema", template_name="api/reference.html"),
        name="api-reference",
    ),
    path("tenants/", include("controlplane.tenants.urls")),
    path("invitations/accept/", InvitationAcceptApi.as_view(), name="invitation-accept"),
    path("invitations/decline/", InvitationDeclineApi.as_view(), name="invitation-decline"),
    path("", include("controlplane.clusters.urls")),
    path("", include("controlplane.topics.urls")),
    path("", include("controlplane.consumers.urls")),
    path("", include("controlplane.provisioning.urls")),
    path("", include("controlplane.failover.urls")),
    path("", include("controlplane.insight.urls")),
    path("", include("controlplane.billing.urls")),
    path("", include("controlplane.alerts.urls")),
    path("", include("controlplane.status.urls")),
]
