"""REST: failover drills and their reports, and drills that are ordered for a window."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.selectors import operation_get
from controlplane.clusters.serializers import OperationSerializer
from controlplane.common.api import accepted
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.common.strictness import DRY_RUN, is_dry_run
from controlplane.failover.drill.serializers import (
    DrillPlanSerializer,
    DrillRequestSerializer,
    DrillSerializer,
    DrillWindowCreateSerializer,
    DrillWindowSerializer,
)
from controlplane.failover.drill.services import drill_preview, drill_start
from controlplane.failover.drill.windows import drill_window_cancel, drill_window_create
from controlplane.failover.models import DrillFault
from controlplane.failover.selectors import drill_get, drill_list, drill_window_get, drill_window_list, group_get
from controlplane.provisioning.drivers import get_driver


class GroupDrillApi(ClusterApi):
    """A failover drill."""

    permissions: ClassVar = {"POST": "group.promote"}

    @extend_schema(
        operation_id="group_drill",
        parameters=[DRY_RUN],
        request=DrillRequestSerializer,
        responses={200: DrillPlanSerializer, 202: OperationSerializer},
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Stop the leader on purpose, and measure the write outage and the losses.

        422 `not_possible` unless the group is healthy and a promotion would lose nothing; 409 `confirmation_needed` without
        the group's name in `confirm`.
        """
        form = DrillRequestSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values, driver = dict(form.validated_data), get_driver()
        found, values["fault"] = group_get(self.cluster, group), DrillFault(values["fault"])
        if is_dry_run(request, values):
            del values["confirm"]
            plan = drill_preview(cluster=self.cluster, group=found, driver=driver, **values)
            return Response(DrillPlanSerializer(plan).data)
        drill = drill_start(actor=self.actor, cluster=self.cluster, group=found, driver=driver, **values)
        return accepted(dict(OperationSerializer(operation_get(self.actor, drill.operation_id)).data))


class DrillListApi(ClusterApi):
    """The history of failover drills."""

    permissions: ClassVar = {"GET": "failover.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="drill_list", responses=DrillSerializer(many=True), tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the cluster's failover drills with their reports, newest first."""
        return paginated(self, request, drill_list(self.cluster), DrillSerializer)


class DrillDetailApi(ClusterApi):
    """One failover drill."""

    permissions: ClassVar = {"GET": "failover.view"}

    @extend_schema(operation_id="drill_get", responses=DrillSerializer, tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str, drill_id: uuid.UUID) -> Response:
        """Return the drill's report with its timeline."""
        return Response(DrillSerializer(drill_get(self.cluster, drill_id)).data)


class DrillWindowListApi(ClusterApi):
    """Drills that begin by themselves within a window."""

    permissions: ClassVar = {"GET": "failover.view", "POST": "group.promote"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="drill_window_list", responses=DrillWindowSerializer(many=True), tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the drills that were ordered for a window, and what became of them, newest first."""
        return paginated(self, request, drill_window_list(self.cluster), DrillWindowSerializer)

    @extend_schema(
        operation_id="drill_window_create",
        request=DrillWindowCreateSerializer,
        responses={201: DrillWindowSerializer},
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Order a drill for a window: it begins once within it, when the group is healthy and nothing else is in progress.

        A window that passes without such a moment is `skipped`, and `because` says why. 409 `confirmation_needed` without the
        group's name in `confirm`.
        """
        form = DrillWindowCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values = dict(form.validated_data)
        group, fault = group_get(self.cluster, values.pop("group")), DrillFault(values.pop("fault"))
        window = drill_window_create(actor=self.actor, cluster=self.cluster, group=group, fault=fault, **values)
        return Response(DrillWindowSerializer(window).data, status=201, headers={"Location": window.path})


class DrillWindowApi(ClusterApi):
    """One ordered drill."""

    permissions: ClassVar = {"GET": "failover.view"}

    @extend_schema(operation_id="drill_window_get", responses=DrillWindowSerializer, tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str, window_id: uuid.UUID) -> Response:
        """Return the ordered drill, and what became of it."""
        return Response(DrillWindowSerializer(drill_window_get(self.cluster, window_id)).data)


class DrillWindowCancelApi(ClusterApi):
    """The end of an order."""

    permissions: ClassVar = {"POST": "group.promote"}

    @extend_schema(operation_id="drill_window_cancel", request=None, responses=DrillWindowSerializer, tags=["failover"])
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, window_id: uuid.UUID) -> Response:
        """Take the order back, as long as the drill has not begun."""
        window = drill_window_cancel(actor=self.actor, window=drill_window_get(self.cluster, window_id))
        return Response(DrillWindowSerializer(window).data)
