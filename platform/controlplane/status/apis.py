"""REST: the status for everyone, incidents and maintenance for operators."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.common.api import Api
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.status.models import Incident, Maintenance
from controlplane.status.selectors import incident_get, incident_history, maintenance_get, status_now
from controlplane.status.serializers import (
    IncidentCreateSerializer,
    IncidentSerializer,
    IncidentUpdateCreateSerializer,
    MaintenancePlanSerializer,
    MaintenanceSerializer,
    StatusSerializer,
    TroubleSerializer,
)
from controlplane.status.services import incident_open, incident_update, maintenance_cancel, maintenance_plan
from controlplane.status.troubles import troubles


class StatusApi(Api):
    """The platform's status, without a log-in."""

    permission_classes = (AllowAny,)

    @extend_schema(operation_id="status_get", responses=StatusSerializer, tags=["status"], auth=[])
    def get(self, request: Request) -> Response:
        """Return how the platform's parts are, with open incidents and maintenance; no token is needed."""
        return Response(StatusSerializer(status_now()).data)


class IncidentHistoryApi(Api):
    """Incidents of 90 days, without a log-in."""

    permission_classes = (AllowAny,)
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="incident_history", responses=IncidentSerializer(many=True), tags=["status"], auth=[])
    def get(self, request: Request) -> Response:
        """List the incidents of the last 90 days, the newest first; no token is needed."""
        return paginated(self, request, incident_history(), IncidentSerializer)


class TroubleListApi(OperatorApi):
    """What is wrong now."""

    pagination_class = None  # type: ignore[assignment]  # a bare list, as it was from the beginning; the description reads this

    @extend_schema(operation_id="trouble_list", responses=TroubleSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """Return what is wrong now over all tenants, what is critical and oldest first. It is not paged."""
        return Response(TroubleSerializer(troubles(), many=True).data)


class IncidentListApi(OperatorApi):
    """Incidents, for operators."""

    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="incident_list", responses=IncidentSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """List all incidents, the newest first."""
        return paginated(self, request, Incident.objects.prefetch_related("updates"), IncidentSerializer)

    @extend_schema(
        operation_id="incident_open",
        request=IncidentCreateSerializer,
        responses={201: IncidentSerializer},
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Open an incident: everyone sees it at once."""
        form = IncidentCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        incident = incident_open(actor=self.actor, **form.validated_data)
        return Response(IncidentSerializer(incident).data, status=201, headers={"Location": incident.path})


class IncidentDetailApi(OperatorApi):
    """One incident."""

    @extend_schema(operation_id="incident_get", responses=IncidentSerializer, tags=["operator"])
    def get(self, request: Request, incident_id: uuid.UUID) -> Response:
        """Return the incident with its updates."""
        return Response(IncidentSerializer(incident_get(incident_id)).data)


class IncidentUpdateListApi(OperatorApi):
    """What is said of an incident."""

    @extend_schema(
        operation_id="incident_update",
        request=IncidentUpdateCreateSerializer,
        responses={201: IncidentSerializer},
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request, incident_id: uuid.UUID) -> Response:
        """Add an update; 409 once the incident is resolved."""
        incident = incident_get(incident_id)
        form = IncidentUpdateCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        incident_update(actor=self.actor, incident=incident, **form.validated_data)
        found = incident_get(incident_id)
        return Response(IncidentSerializer(found).data, status=201, headers={"Location": found.path})


class MaintenanceListApi(OperatorApi):
    """Windows of planned work."""

    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="maintenance_list", responses=MaintenanceSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """List all windows, the newest first."""
        return paginated(self, request, Maintenance.objects.all(), MaintenanceSerializer)

    @extend_schema(
        operation_id="maintenance_plan",
        request=MaintenancePlanSerializer,
        responses={201: MaintenanceSerializer},
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Announce a window of planned work."""
        form = MaintenancePlanSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        window = maintenance_plan(actor=self.actor, **form.validated_data)
        return Response(MaintenanceSerializer(window).data, status=201, headers={"Location": window.path})


class MaintenanceDetailApi(OperatorApi):
    """One window."""

    problems: ClassVar = {"DELETE": (409,)}

    @extend_schema(operation_id="maintenance_get", responses=MaintenanceSerializer, tags=["operator"])
    def get(self, request: Request, maintenance_id: uuid.UUID) -> Response:
        """Return the window."""
        return Response(MaintenanceSerializer(maintenance_get(maintenance_id)).data)

    @extend_schema(operation_id="maintenance_cancel", responses={204: None}, tags=["operator"])
    def delete(self, request: Request, maintenance_id: uuid.UUID) -> Response:
        """Cancel the window, or end it early; 409 once it is over."""
        maintenance_cancel(actor=self.actor, maintenance=maintenance_get(maintenance_id))
        return Response(status=204)
