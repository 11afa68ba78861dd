"""Addresses of the status API, below /api/v1/."""

from django.urls import path

from controlplane.status import apis

_INCIDENT = "operator/incidents/<uuid:incident_id>/"

urlpatterns = [
    path("status/", apis.StatusApi.as_view(), name="status"),
    path("status/incidents/", apis.IncidentHistoryApi.as_view(), name="status-incidents"),
    path("operator/troubles/", apis.TroubleListApi.as_view(), name="trouble-list"),
    path("operator/incidents/", apis.IncidentListApi.as_view(), name="incident-list"),
    path(_INCIDENT, apis.IncidentDetailApi.as_view(), name="incident-detail"),
    path(f"{_INCIDENT}updates/", apis.IncidentUpdateListApi.as_view(), name="incident-updates"),
    path("operator/maintenance/", apis.MaintenanceListApi.as_view(), name="maintenance-list"),
    path(
        "operator/maintenance/<uuid:maintenance_id>/",
        apis.MaintenanceDetailApi.as_view(),
        name="maintenance-detail",
    ),
]
