"""REST: changes of groups that elect their leader (mode `dledger`). Each has a dry run that says what every step does and
stops.
"""

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.clusters.selectors import operation_get
from controlplane.clusters.serializers import OperationSerializer
from controlplane.common.api import accepted
from controlplane.common.idempotency import idempotent
from controlplane.common.strictness import DRY_RUN, DryRunShape, is_dry_run
from controlplane.failover.membership.serializers import (
    PreferSerializer,
    QuorumPlanSerializer,
    RecoverSerializer,
    ReplaceSerializer,
    ResizeSerializer,
    TransferSerializer,
)
from controlplane.failover.membership.services import (
    Prefer,
    QuorumChange,
    Recover,
    Replace,
    Resize,
    Transfer,
    quorum_change_start,
    quorum_preview,
)
from controlplane.failover.selectors import group_get
from controlplane.provisioning.drivers import get_driver

_RESPONSES = {200: QuorumPlanSerializer, 202: OperationSerializer}


class _QuorumChangeApi(ClusterApi):
    @staticmethod
    def asked(request: Request, form: DryRunShape) -> tuple[dict[str, Any], bool]:
        """Return the checked members of a request but `dry_run`, and whether it is one."""
        form.is_valid(raise_exception=True)
        values = dict(form.validated_data)
        return values, is_dry_run(request, values)

    def change(self, group: str, change: QuorumChange, *, dry_run: bool, confirm: str = "") -> Response:
        """Answer a dry run with the preview, anything else with the operation."""
        found, driver = group_get(self.cluster, group), get_driver()
        if dry_run:
            plan = quorum_preview(cluster=self.cluster, group=found, change=change, driver=driver)
            return Response(QuorumPlanSerializer(plan).data)
        operation = quorum_change_start(
            actor=self.actor, cluster=self.cluster, group=found, change=change, driver=driver, confirm=confirm
        )
        return accepted(dict(OperationSerializer(operation_get(self.actor, operation.pk)).data))


class GroupTransferApi(_QuorumChangeApi):
    """Transfer of the leadership."""

    permissions: ClassVar = {"POST": "group.promote"}

    @extend_schema(
        operation_id="group_transfer",
        parameters=[DRY_RUN],
        request=TransferSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Hand the leadership to another voter, planned, without losing anything."""
        values, dry_run = self.asked(request, TransferSerializer(data=request.data))
        return self.change(group, Transfer(values.get("target")), dry_run=dry_run)


class GroupPreferApi(_QuorumChangeApi):
    """The preferred leader."""

    permissions: ClassVar = {"POST": "group.promote"}

    @extend_schema(
        operation_id="group_prefer",
        parameters=[DRY_RUN],
        request=PreferSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Say which voter shall lead whenever it is in sync."""
        values, dry_run = self.asked(request, PreferSerializer(data=request.data))
        return self.change(group, Prefer(values["replica"]), dry_run=dry_run)


class GroupRecoverApi(_QuorumChangeApi):
    """The way out of a lost majority."""

    permissions: ClassVar = {"POST": "group.promote"}

    @extend_schema(
        operation_id="group_recover",
        parameters=[DRY_RUN],
        request=RecoverSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Go on with the replicas that are left, when a majority of the disks is gone for good. What those alone held is lost."""
        values, dry_run = self.asked(request, RecoverSerializer(data=request.data))
        return self.change(group, Recover(values["replica"]), dry_run=dry_run, confirm=values.get("confirm", ""))


class GroupReplaceApi(_QuorumChangeApi):
    """Replacement of a replica."""

    permissions: ClassVar = {"POST": "cluster.grow"}

    @extend_schema(
        operation_id="group_replace",
        parameters=[DRY_RUN],
        request=ReplaceSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Put an empty replica in the place of a dead one: it observes, catches up, becomes a voter, and the dead one goes."""
        values, dry_run = self.asked(request, ReplaceSerializer(data=request.data))
        return self.change(group, Replace(values["replica"]), dry_run=dry_run)


class GroupResizeApi(_QuorumChangeApi):
    """The number of replicas."""

    permissions: ClassVar = {"POST": "cluster.grow"}

    @extend_schema(
        operation_id="group_resize",
        parameters=[DRY_RUN],
        request=ResizeSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Grow the group from 3 to 5 replicas, or shrink it from 5 to 3, one voter at a time."""
        values, dry_run = self.asked(request, ResizeSerializer(data=request.data))
        return self.change(group, Resize(**values), dry_run=dry_run)
