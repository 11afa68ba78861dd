"""REST, for operators: what fits no row on the machine, and what does not go on."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.clusters.selectors import operation_by_id
from controlplane.clusters.serializers import OperationSerializer
from controlplane.clusters.stuck_operations import REASON_CHARACTERS_MAX, operation_fail, operation_requeue
from controlplane.common.api import accepted
from controlplane.common.idempotency import idempotent
from controlplane.common.strictness import Shape
from controlplane.provisioning.drivers import get_driver
from controlplane.provisioning.leftovers import leftovers_clear, leftovers_find


class StuckOperationSerializer(Shape):
    """An operation that does not go on."""

    operation_id = serializers.UUIDField(source="operation.pk")
    path = serializers.CharField(source="operation.path")
    type = serializers.CharField(source="operation.type")
    resource = serializers.CharField(source="operation.resource")
    step = serializers.CharField()
    since = serializers.DateTimeField()
    begun = serializers.BooleanField(help_text="false: no worker has begun the step")
    left_behind = serializers.CharField(help_text="what is there when it is ended as failed")


class LeftoversSerializer(Shape):
    """What runs, lies or is kept and fits no row."""

    processes = serializers.ListField(child=serializers.CharField())
    folders = serializers.ListField(child=serializers.UUIDField(), help_text="directories of clusters that are gone")
    ports = serializers.ListField(child=serializers.CharField(), help_text="host:port, at most 100")
    stuck = StuckOperationSerializer(many=True)
    lost = serializers.ListField(
        child=serializers.CharField(), help_text="tenant/cluster that has run and whose directory is gone"
    )


class LeftoversClearSerializer(Shape):
    """What to clear."""

    delete_data = serializers.BooleanField(
        default=False, help_text="Delete the directories, too, with all messages in them. This can't be undone."
    )


class OperationFailSerializer(Shape):
    """Why an operation is ended."""

    reason = serializers.CharField(max_length=REASON_CHARACTERS_MAX, help_text="the tenant reads it")


class OperationRequeueApi(OperatorApi):
    """An operation that no worker goes on with."""

    @extend_schema(
        operation_id="operation_requeue", request=None, responses={202: OperationSerializer}, tags=["operator"]
    )
    @idempotent
    def post(self, request: Request, operation_id: uuid.UUID) -> Response:
        """Send the operation's present step to the workers again; refused while one of them is at it."""
        operation = operation_requeue(actor=self.actor, operation=operation_by_id(operation_id))
        return accepted(dict(OperationSerializer(operation).data))


class OperationFailApi(OperatorApi):
    """An operation that is given up."""

    @extend_schema(
        operation_id="operation_fail",
        request=OperationFailSerializer,
        responses=OperationSerializer,
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request, operation_id: uuid.UUID) -> Response:
        """End the operation as failed, at its present step. Its `error` says what is left behind; it can be retried."""
        form = OperationFailSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        operation = operation_by_id(operation_id)
        operation_fail(actor=self.actor, operation=operation, reason=form.validated_data["reason"])
        return Response(OperationSerializer(operation).data)


class LeftoversApi(OperatorApi):
    """Processes, directories and ports of clusters that are gone, and operations that do not go on."""

    problems: ClassVar = {"GET": (503,), "POST": (503,)}

    @extend_schema(operation_id="leftovers_get", responses=LeftoversSerializer, tags=["operator"])
    def get(self, request: Request) -> Response:
        """Return what fits no row on the machine, and operations that take longer than they may."""
        return Response(LeftoversSerializer(leftovers_find(get_driver())).data)

    @extend_schema(
        operation_id="leftovers_clear",
        request=LeftoversClearSerializer,
        responses=LeftoversSerializer,
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """End processes and free ports that fit no row; return what was there."""
        form = LeftoversClearSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        found = leftovers_clear(actor=self.actor, driver=get_driver(), data=form.validated_data["delete_data"])
        return Response(LeftoversSerializer(found).data)
