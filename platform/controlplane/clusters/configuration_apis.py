"""REST: the configuration of a cluster's brokers, its changes, and putting one back."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.configuration import (
    Saved,
    change_get,
    change_list,
    configuration_apply,
    configuration_change,
    configuration_get,
    configuration_plan,
    configuration_put_back,
    values_before,
)
from controlplane.clusters.configuration_serializers import (
    ConfigurationAppliedSerializer,
    ConfigurationChangeSerializer,
    ConfigurationPlanSerializer,
    ConfigurationSerializer,
    ConfigurationUpdateSerializer,
    PutBackSerializer,
)
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.common.strictness import DRY_RUN, is_dry_run


class ConfigurationApi(ClusterApi):
    """What is wanted of a cluster's brokers."""

    permissions: ClassVar = {"GET": "cluster.view", "PATCH": "cluster.update"}
    problems: ClassVar = {"PATCH": (409, 412, 502, 503)}

    @extend_schema(operation_id="configuration_get", responses=ConfigurationSerializer)
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Return each key with its type, bounds and wanted value, and what every broker says that it has."""
        return Response(ConfigurationSerializer(configuration_get(self.cluster)).data)

    @extend_schema(
        operation_id="configuration_update",
        parameters=[DRY_RUN],
        request=ConfigurationUpdateSerializer,
        responses=ConfigurationPlanSerializer,
    )
    def patch(self, request: Request, tenant: str, cluster: str) -> Response:
        """Change what is wanted; brokers take at once what they can, and the rest when they are restarted."""
        form = ConfigurationUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        asked = dict(form.validated_data)
        values = asked.pop("values", {})
        if is_dry_run(request, asked):
            saved = Saved(None, configuration_plan(self.cluster, values))
        else:
            saved = configuration_change(actor=self.actor, cluster=self.cluster, values=values, **asked)
        return Response(ConfigurationPlanSerializer(saved).data)


class ConfigurationApplyApi(ClusterApi):
    """Brokers that have other values than wanted."""

    permissions: ClassVar = {"POST": "cluster.update"}
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="configuration_apply",
        request=None,
        responses=ConfigurationAppliedSerializer,
        tags=["configuration"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Have every broker take again the wanted values of the keys that need no restart."""
        missing = configuration_apply(actor=self.actor, cluster=self.cluster)
        return Response(ConfigurationAppliedSerializer({"missing": missing}).data)


class ConfigurationChangeListApi(ClusterApi):
    """The history of the configuration."""

    permissions: ClassVar = {"GET": "cluster.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="configuration_change_list",
        responses=ConfigurationChangeSerializer(many=True),
        tags=["configuration"],
    )
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the changes of the configuration, newest first."""
        return paginated(self, request, change_list(self.cluster), ConfigurationChangeSerializer)


class ConfigurationChangeApi(ClusterApi):
    """One change of the configuration."""

    permissions: ClassVar = {"GET": "cluster.view"}

    @extend_schema(
        operation_id="configuration_change_get", responses=ConfigurationChangeSerializer, tags=["configuration"]
    )
    def get(self, request: Request, tenant: str, cluster: str, number: int) -> Response:
        """Return one change: who made it, when, and each key before and after."""
        return Response(ConfigurationChangeSerializer(change_get(self.cluster, number)).data)


class ConfigurationPutBackApi(ClusterApi):
    """The undo of one change."""

    permissions: ClassVar = {"POST": "cluster.update"}
    problems: ClassVar = {"POST": (412, 502, 503)}

    @extend_schema(
        operation_id="configuration_put_back",
        parameters=[DRY_RUN],
        request=PutBackSerializer,
        responses=ConfigurationPlanSerializer,
        tags=["configuration"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, number: int) -> Response:
        """Give the keys of this change the values that they had before it. Other keys stay; it is a change of its own."""
        form = PutBackSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        if is_dry_run(request, dict(form.validated_data)):
            saved = Saved(None, configuration_plan(self.cluster, values_before(self.cluster, number)))
        else:
            saved = configuration_put_back(actor=self.actor, cluster=self.cluster, number=number)
        return Response(ConfigurationPlanSerializer(saved).data)
