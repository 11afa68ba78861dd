"""REST: messages that a failover or a power cut took from a replica's log, and their resends."""

import uuid
from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.failover.diverged.cuts import SavedCut, cut_messages, saved_cut, saved_cuts
from controlplane.failover.diverged.resends import (
    ResendWish,
    resend_cancel,
    resend_continue,
    resend_get,
    resend_list,
    resend_start,
)
from controlplane.failover.diverged.serializers import (
    CutDeleteSerializer,
    CutDoneRequestSerializer,
    CutPageQuerySerializer,
    CutPageSerializer,
    DivergedResendSerializer,
    ResendCreateSerializer,
    SavedCutSerializer,
    SavedCutsSerializer,
)
from controlplane.failover.diverged.services import cut_delete, cut_export, cut_mark_done
from controlplane.topics.bodies import BodyForm

_TAGS = ["diverged messages"]
JSON_LINES = "application/x-ndjson"


class SavedCutListApi(ClusterApi):
    """Saved cuts of a cluster."""

    permissions: ClassVar = {"GET": "failover.view"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="diverged_list", responses=SavedCutsSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List what the replicas keep of what was cut from their logs: messages that their group does not have."""
        return Response(SavedCutsSerializer(saved_cuts(actor=self.actor, cluster=self.cluster)).data)


class _CutApi(ClusterApi):
    def cut(self, group: str, replica_id: int, name: str) -> SavedCut:
        return saved_cut(actor=self.actor, cluster=self.cluster, group=group, replica_id=replica_id, name=name)


class SavedCutApi(_CutApi):
    """One saved cut."""

    permissions: ClassVar = {"GET": "failover.view", "DELETE": "diverged.manage"}
    problems: ClassVar = {"GET": (409, 502, 503), "DELETE": (409, 502, 503)}

    @extend_schema(operation_id="diverged_get", responses=SavedCutSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, group: str, replica_id: int, name: str) -> Response:
        """Return what the file holds."""
        return Response(SavedCutSerializer(self.cut(group, replica_id, name)).data)

    @extend_schema(operation_id="diverged_delete", parameters=[CutDeleteSerializer], responses={204: None}, tags=_TAGS)
    def delete(self, request: Request, tenant: str, cluster: str, group: str, replica_id: int, name: str) -> Response:
        """Delete the file from the replica's disk for good. 409 `confirmation_needed` without the group's name in `confirm`."""
        query = CutDeleteSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        cut_delete(actor=self.actor, cut=self.cut(group, replica_id, name), **query.validated_data)
        return Response(status=204)


class CutMessagesApi(_CutApi):
    """Messages of a saved cut."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="diverged_messages", parameters=[CutPageQuerySerializer], responses=CutPageSerializer, tags=_TAGS
    )
    def get(self, request: Request, tenant: str, cluster: str, group: str, replica_id: int, name: str) -> Response:
        """Return messages of the cut, each with what the group has of it now. Reading changes nothing."""
        query = CutPageQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values = dict(query.validated_data)
        values["body_as"] = BodyForm(values["body_as"])
        page = cut_messages(actor=self.actor, cut=self.cut(group, replica_id, name), **values)
        return Response(CutPageSerializer(page).data)


class CutExportApi(_CutApi):
    """Messages of a saved cut as a file."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="diverged_export", responses={(200, JSON_LINES): OpenApiTypes.STR}, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, group: str, replica_id: int, name: str) -> HttpResponse:
        """Return the first 5000 messages as JSON, one a line; of a body its first 64 KiB."""
        lines = cut_export(actor=self.actor, cut=self.cut(group, replica_id, name))
        return HttpResponse("".join(lines), content_type=JSON_LINES)


class CutDoneApi(_CutApi):
    """Whether someone has dealt with a cut."""

    permissions: ClassVar = {"POST": "diverged.manage"}
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="diverged_done", request=CutDoneRequestSerializer, responses=SavedCutSerializer, tags=_TAGS
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str, replica_id: int, name: str) -> Response:
        """Note that someone has dealt with the cut, or take that back. The file stays."""
        form = CutDoneRequestSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        cut_mark_done(actor=self.actor, cut=self.cut(group, replica_id, name), **form.validated_data)
        return Response(SavedCutSerializer(self.cut(group, replica_id, name)).data)


class CutResendApi(_CutApi):
    """A resend of a cut's messages."""

    permissions: ClassVar = {"POST": "message.send"}
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="diverged_resend_create",
        request=ResendCreateSerializer,
        responses={202: DivergedResendSerializer},
        tags=_TAGS,
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str, replica_id: int, name: str) -> Response:
        """Send messages of the cut again, at a rate. Each is sent at most once, and those that the group has are skipped.

        A message keeps its id; its property DIVERGED_OF says where it came from. Follow the resend at its `Location`.
        """
        form = ResendCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(form.validated_data)
        positions = values.pop("positions")
        wish = ResendWish(positions=None if positions is None else tuple(positions), **values)
        resend = resend_start(actor=self.actor, cut=self.cut(group, replica_id, name), wish=wish)
        return Response(DivergedResendSerializer(resend).data, status=202, headers={"Location": resend.path})


class DivergedResendListApi(ClusterApi):
    """Resends of a cluster's saved cuts."""

    permissions: ClassVar = {"GET": "failover.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="diverged_resend_list", responses=DivergedResendSerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the resends, newest first."""
        return paginated(self, request, resend_list(self.cluster), DivergedResendSerializer)


class DivergedResendApi(ClusterApi):
    """One resend."""

    permissions: ClassVar = {"GET": "failover.view"}

    @extend_schema(operation_id="diverged_resend_get", responses=DivergedResendSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, resend_id: uuid.UUID) -> Response:
        """Return the resend with its report."""
        return Response(DivergedResendSerializer(resend_get(self.cluster, resend_id)).data)


class DivergedResendCancelApi(ClusterApi):
    """The end of a resend."""

    permissions: ClassVar = {"POST": "message.send"}

    @extend_schema(operation_id="diverged_resend_cancel", request=None, responses=DivergedResendSerializer, tags=_TAGS)
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, resend_id: uuid.UUID) -> Response:
        """End the resend before its next message."""
        resend = resend_cancel(actor=self.actor, resend=resend_get(self.cluster, resend_id))
        return Response(DivergedResendSerializer(resend).data)


class DivergedResendContinueApi(ClusterApi):
    """A resend that goes on."""

    permissions: ClassVar = {"POST": "message.send"}

    @extend_schema(
        operation_id="diverged_resend_continue", request=None, responses={202: DivergedResendSerializer}, tags=_TAGS
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, resend_id: uuid.UUID) -> Response:
        """Go on where a stopped or cancelled resend ended. What was refused is tried again; what is unknown is not."""
        resend = resend_continue(actor=self.actor, resend=resend_get(self.cluster, resend_id))
        return Response(DivergedResendSerializer(resend).data, status=202, headers={"Location": resend.path})
