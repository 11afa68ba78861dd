"""REST: alerts of a tenant, rules of a cluster, silences."""

import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.alerts.selectors import alert_get, alert_list, rule_get, rules_of, silence_get, silence_list
from controlplane.alerts.serializers import (
    AcknowledgeSerializer,
    AlertQuerySerializer,
    AlertSerializer,
    RuleSerializer,
    RuleSetSerializer,
    SilenceCreateSerializer,
    SilenceSerializer,
)
from controlplane.alerts.services import alert_acknowledge, rule_reset, rule_set, silence_create, silence_end
from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.selectors import cluster_get
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.tenants.api_base import TenantApi

_TAGS = ["alerts"]


class AlertListApi(TenantApi):
    """Alerts of a tenant."""

    permissions: ClassVar = {"GET": "alert.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="alert_list",
        parameters=[AlertQuerySerializer],
        responses=AlertSerializer(many=True),
        tags=_TAGS,
    )
    def get(self, request: Request, tenant: str) -> Response:
        """List what is or was wrong, newest first; what ended is kept for 90 days."""
        query = AlertQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        return paginated(self, request, alert_list(self.tenant, **query.validated_data), AlertSerializer)


class AlertDetailApi(TenantApi):
    """One alert."""

    permissions: ClassVar = {"GET": "alert.view"}

    @extend_schema(operation_id="alert_get", responses=AlertSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, alert_id: uuid.UUID) -> Response:
        """Return the alert."""
        return Response(AlertSerializer(alert_get(self.tenant, alert_id)).data)


class AlertAcknowledgeApi(TenantApi):
    """An alert that someone has seen."""

    permissions: ClassVar = {"POST": "alert.manage"}

    @extend_schema(
        operation_id="alert_acknowledge", request=AcknowledgeSerializer, responses=AlertSerializer, tags=_TAGS
    )
    @idempotent
    def post(self, request: Request, tenant: str, alert_id: uuid.UUID) -> Response:
        """Say that you look after it; the first who does stands. It stays open until what is wrong is right."""
        form = AcknowledgeSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        alert = alert_acknowledge(
            actor=self.actor, alert=alert_get(self.tenant, alert_id), note=form.validated_data["note"]
        )
        return Response(AlertSerializer(alert).data)


class RuleListApi(ClusterApi):
    """Rules of a cluster."""

    permissions: ClassVar = {"GET": "alert.view"}

    @extend_schema(operation_id="alert_rule_list", responses=RuleSerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Return what is watched in the cluster, and from which threshold on it is wrong."""
        results = RuleSerializer(rules_of(self.cluster), many=True).data
        return Response({"results": results, "next": None, "previous": None})


class RuleDetailApi(ClusterApi):
    """One rule."""

    permissions: ClassVar = {"GET": "alert.view", "PATCH": "alert.manage", "DELETE": "alert.manage"}

    @extend_schema(operation_id="alert_rule_get", responses=RuleSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, kind: str) -> Response:
        """Return what holds for this kind."""
        return Response(RuleSerializer(rule_get(self.cluster, kind)).data)

    @extend_schema(operation_id="alert_rule_set", request=RuleSetSerializer, responses=RuleSerializer, tags=_TAGS)
    def patch(self, request: Request, tenant: str, cluster: str, kind: str) -> Response:
        """Change the threshold or the time, or switch the kind off; what is open then ends."""
        form = RuleSetSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        rule = rule_set(actor=self.actor, cluster=self.cluster, kind=kind, **form.validated_data)
        return Response(RuleSerializer(rule).data)

    @extend_schema(operation_id="alert_rule_reset", request=None, responses={200: RuleSerializer}, tags=_TAGS)
    def delete(self, request: Request, tenant: str, cluster: str, kind: str) -> Response:
        """Go back to the defaults."""
        return Response(RuleSerializer(rule_reset(actor=self.actor, cluster=self.cluster, kind=kind)).data)


class SilenceListApi(TenantApi):
    """Silences of a tenant."""

    permissions: ClassVar = {"GET": "alert.view", "POST": "alert.manage"}
    makes_unaddressed: ClassVar = True
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="alert_silence_list", responses=SilenceSerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str) -> Response:
        """List the silences that are not over, newest first."""
        return paginated(self, request, silence_list(self.tenant), SilenceSerializer)

    @extend_schema(
        operation_id="alert_silence_create",
        request=SilenceCreateSerializer,
        responses={201: SilenceSerializer},
        tags=_TAGS,
    )
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Silence matching alerts for a time: they are not sent, but still shown."""
        form = SilenceCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(form.validated_data)
        slug = values.pop("cluster")
        cluster = cluster_get(self.tenant, slug) if slug else None
        silence = silence_create(actor=self.actor, tenant=self.tenant, cluster=cluster, **values)
        return Response(SilenceSerializer(silence).data, status=201)


class SilenceDetailApi(TenantApi):
    """One silence."""

    permissions: ClassVar = {"DELETE": "alert.manage"}

    @extend_schema(operation_id="alert_silence_end", responses={204: None}, tags=_TAGS)
    def delete(self, request: Request, tenant: str, silence_id: uuid.UUID) -> Response:
        """End it now."""
        silence_end(actor=self.actor, silence=silence_get(self.tenant, silence_id))
        return Response(status=204)
