"""REST: another mode for a running cluster. Its dry run says what every step does and stops."""

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
from controlplane.failover.mode.serializers import ModePlanSerializer, ModeSerializer
from controlplane.failover.mode.services import mode_change_start, mode_preview
from controlplane.provisioning.drivers import get_driver


class ClusterModeApi(ClusterApi):
    """The mode of a running cluster."""

    permissions: ClassVar = {"POST": "cluster.grow"}

    @extend_schema(
        operation_id="cluster_mode",
        parameters=[DRY_RUN],
        request=ModeSerializer,
        responses={200: ModePlanSerializer, 202: OperationSerializer},
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Change the mode, and the number of replicas of each group, in place: without moving data or restarting a broker.

        single (multi, with several groups), async, sync and dledger are gone through in this order, or back.
        """
        form = ModeSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        wanted, driver = dict(form.validated_data), get_driver()
        if is_dry_run(request, wanted):
            return Response(ModePlanSerializer(mode_preview(cluster=self.cluster, driver=driver, **wanted)).data)
        operation = mode_change_start(actor=self.actor, cluster=self.cluster, driver=driver, **wanted)
        return accepted(dict(OperationSerializer(operation_get(self.actor, operation.pk)).data))
