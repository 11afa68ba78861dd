"""REST, for operators: the limits of any tenant, seen and changed."""

from collections.abc import Sequence
from typing import ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.clusters.limits import limit_set, limit_settings, limits_of_tenants, tenant_by_slug
from controlplane.clusters.serializers import LimitSetSerializer, LimitSettingsSerializer, OwnLimitsSerializer
from controlplane.common.pagination import CursorPagination, paginated
from controlplane.tenants.models import Tenant


class BySlug(CursorPagination):
    """By the short name."""

    ordering = ("slug",)


class OwnLimitsListApi(OperatorApi):
    """All tenants with the limits that they have of their own."""

    pagination_class: type[CursorPagination] = BySlug

    @extend_schema(
        operation_id="tenant_limits_list",
        parameters=[OpenApiParameter("find", str, description="Only tenants with this in their short name.")],
        responses=OwnLimitsSerializer(many=True),
        tags=["operator"],
    )
    def get(self, request: Request) -> Response:
        """List the tenants by short name, each with the limits that it has of its own."""
        found = limits_of_tenants(request.query_params.get("find", ""))
        return paginated(self, request, found, OwnLimitsSerializer)


class TenantLimitsApi(OperatorApi):
    """The limits of a tenant."""

    @extend_schema(operation_id="tenant_limits_get", responses=LimitSettingsSerializer, tags=["operator"])
    def get(self, request: Request, tenant: str) -> Response:
        """Return every limit of the tenant, and what the platform gives those who were given nothing else."""
        return _answer(tenant_by_slug(tenant))


class TenantLimitApi(OperatorApi):
    """One limit of a tenant."""

    problems: ClassVar = {"PUT": (409, 502, 503)}

    @extend_schema(
        operation_id="tenant_limits_set",
        request=LimitSetSerializer,
        responses=LimitSettingsSerializer,
        tags=["operator"],
    )
    def put(self, request: Request, tenant: str, limit: str) -> Response:
        """Give the tenant another limit; brokers that run get it now. What it has beyond a lower one stays, and it gets no more."""
        found = tenant_by_slug(tenant)
        form = LimitSetSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        return _answer(found, limit_set(actor=self.actor, tenant=found, name=limit, **form.validated_data))


def _answer(tenant: Tenant, missing: Sequence[str] = ()) -> Response:
    found = {"tenant": tenant.slug, "limits": limit_settings(tenant), "brokers_missing": missing}
    return Response(LimitSettingsSerializer(found).data)
