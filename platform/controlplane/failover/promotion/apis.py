"""REST: promotion, switchover, and the history of failovers."""

import uuid
from typing import Any, ClassVar

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
from controlplane.failover.models import FailoverKind
from controlplane.failover.promotion.serializers import (
    FailoverSerializer,
    PreflightSerializer,
    PromoteSerializer,
    SwitchoverSerializer,
)
from controlplane.failover.promotion.services import failover_start, group_preflight
from controlplane.failover.selectors import failover_get, failover_list, group_get
from controlplane.provisioning.drivers import get_driver

_RESPONSES = {200: PreflightSerializer, 202: OperationSerializer}


class _RoleChangeApi(ClusterApi):
    permissions: ClassVar = {"POST": "group.promote"}

    def change(self, request: Request, group: str, kind: FailoverKind, values: dict[str, Any]) -> Response:
        """Answer a dry run with the pre-flight, anything else with the operation."""
        found = group_get(self.cluster, group)
        candidate_id = values.get("candidate")
        if is_dry_run(request, values):
            preflight = group_preflight(
                cluster=self.cluster, group=found, kind=kind, candidate_id=candidate_id, driver=get_driver()
            )
            return Response(PreflightSerializer(preflight).data)
        failover = failover_start(
            actor=self.actor,
            cluster=self.cluster,
            group=found,
            kind=kind,
            driver=get_driver(),
            candidate_id=candidate_id,
            confirm=values.get("confirm", ""),
        )
        assert failover.operation_id is not None, "only an election, which no one asked for, has none"
        operation = operation_get(self.actor, failover.operation_id)
        return accepted(dict(OperationSerializer(operation).data))


class GroupPromoteApi(_RoleChangeApi):
    """Promotion of a replica."""

    @extend_schema(
        operation_id="group_promote",
        parameters=[DRY_RUN],
        request=PromoteSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Make a replica the master: fence the old one, promote, verify the first write, have the old one rejoin.

        409 `confirmation_needed` when messages may be lost and `confirm` is not the group's name.
        """
        form = PromoteSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        return self.change(request, group, FailoverKind.PROMOTE, dict(form.validated_data))


class GroupSwitchoverApi(_RoleChangeApi):
    """Planned switchover."""

    @extend_schema(
        operation_id="group_switchover",
        parameters=[DRY_RUN],
        request=SwitchoverSerializer,
        responses=_RESPONSES,
        tags=["failover"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Move the master role without loss: hold sends, wait until the candidate has caught up, switch."""
        form = SwitchoverSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        return self.change(request, group, FailoverKind.SWITCHOVER, dict(form.validated_data))


class FailoverListApi(ClusterApi):
    """The history of failovers."""

    permissions: ClassVar = {"GET": "failover.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="failover_list", responses=FailoverSerializer(many=True), tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the cluster's failovers with their timelines, newest first."""
        return paginated(self, request, failover_list(self.cluster), FailoverSerializer)


class FailoverDetailApi(ClusterApi):
    """One failover."""

    permissions: ClassVar = {"GET": "failover.view"}

    @extend_schema(operation_id="failover_get", responses=FailoverSerializer, tags=["failover"])
    def get(self, request: Request, tenant: str, cluster: str, failover_id: uuid.UUID) -> Response:
        """Return the failover with its timeline and the measured write outage."""
        return Response(FailoverSerializer(failover_get(self.cluster, failover_id)).data)
