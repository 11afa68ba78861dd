"""REST: failover drills and their reports."""

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
from controlplane.failover.drill.serializers import DrillPlanSerializer, DrillRequestSerializer, DrillSerializer
from controlplane.failover.drill.services import drill_preview, drill_start
from controlplane.failover.models import DrillFault
from controlplane.failover.selectors import drill_get, drill_list, group_get
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
