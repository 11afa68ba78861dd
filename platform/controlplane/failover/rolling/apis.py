"""REST: restart or upgrade a cluster's daemons one after another, and which versions they run."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.selectors import operation_get
from controlplane.clusters.serializers import OperationSerializer
from controlplane.common.api import accepted
from controlplane.common.idempotency import idempotent
from controlplane.common.strictness import DRY_RUN, is_dry_run
from controlplane.failover.rolling.serializers import (
    DaemonVersionsSerializer,
    RollingPlanSerializer,
    RollingRequestSerializer,
)
from controlplane.failover.rolling.services import Purpose, rolling_plan, rolling_start
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.versions import cluster_versions


class _RollingApi(ClusterApi):
    permissions: ClassVar = {"POST": "cluster.restart"}

    def answer(self, request: Request, purpose: Purpose) -> Response:
        """Return the plan of a dry run, else the operation that was started."""
        form = RollingRequestSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        driver = get_driver()
        if is_dry_run(request, dict(form.validated_data)):
            plan = rolling_plan(cluster=self.cluster, driver=driver, purpose=purpose)
            return Response(RollingPlanSerializer(plan).data)
        operation = rolling_start(actor=self.actor, cluster=self.cluster, driver=driver, purpose=purpose)
        return accepted(dict(OperationSerializer(operation_get(self.actor, operation.pk)).data))


class ClusterRestartApi(_RollingApi):
    """A restart of every daemon."""

    @extend_schema(
        operation_id="cluster_restart",
        parameters=[DRY_RUN],
        request=RollingRequestSerializer,
        responses={200: RollingPlanSerializer, 202: OperationSerializer},
        tags=["clusters"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Restart every daemon, one after another: followers first, and each leadership moves before its replica's turn.

        The operation's `metadata` tells of each daemon when it was stopped and back, and for how long its group refused sends.
        """
        return self.answer(request, Purpose.RESTART)


class ClusterUpgradeApi(_RollingApi):
    """A restart of every daemon with the installed version."""

    @extend_schema(
        operation_id="cluster_upgrade",
        parameters=[DRY_RUN],
        request=RollingRequestSerializer,
        responses={200: RollingPlanSerializer, 202: OperationSerializer},
        tags=["clusters"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Have every daemon run the installed version: the same as a restart, refused when each runs it already."""
        return self.answer(request, Purpose.UPGRADE)


class ClusterDaemonsApi(ClusterApi):
    """The versions of a cluster's daemons."""

    permissions: ClassVar = {"GET": "cluster.view"}

    @extend_schema(operation_id="daemon_versions", responses=DaemonVersionsSerializer, tags=["clusters"])
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """Return which version each daemon says that it runs, and which one a restart would run."""
        daemons = cluster_versions(self.cluster)
        available = any(daemon.is_outdated for daemon in daemons)
        return Response(DaemonVersionsSerializer({"upgrade_available": available, "daemons": daemons}).data)
