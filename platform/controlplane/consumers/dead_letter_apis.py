"""REST: dead letters of consumer groups, and their replays."""

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
from controlplane.consumers.dead_letters import dead_letters, dead_letters_export
from controlplane.consumers.models import ReplayTarget
from controlplane.consumers.replays import ReplayWish, places_of, replay_cancel, replay_continue, replay_start
from controlplane.consumers.selectors import replay_get, replay_list
from controlplane.consumers.serializers import (
    DeadLetterQuerySerializer,
    DeadLettersSerializer,
    ExportQuerySerializer,
    ReplayCreateSerializer,
    ReplaySerializer,
)

_TAGS = ["dead letters"]
EXPORT_TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class DeadLetterListApi(ClusterApi):
    """Dead letters of a group."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="dead_letter_list",
        parameters=[DeadLetterQuerySerializer],
        responses=DeadLettersSerializer,
        tags=_TAGS,
    )
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Return the newest messages that the group never managed to consume. Reading moves no offset."""
        query = DeadLetterQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        found = dead_letters(actor=self.actor, cluster=self.cluster, group=group, **query.validated_data)
        return Response(DeadLettersSerializer(found).data)


class DeadLetterExportApi(ClusterApi):
    """Dead letters as a file."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="dead_letter_export",
        parameters=[ExportQuerySerializer],
        responses={(200, "text/csv"): OpenApiTypes.STR, (200, "application/x-ndjson"): OpenApiTypes.STR},
        tags=_TAGS,
    )
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> HttpResponse:
        """Return the newest dead letters, at most 5000 and 32 MiB, one a line: as JSON, or as CSV."""
        query = ExportQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        kind = query.validated_data["kind"]
        lines = dead_letters_export(actor=self.actor, cluster=self.cluster, group=group, as_csv=kind == "csv")
        return HttpResponse("".join(lines), content_type=EXPORT_TYPES[kind])


class ReplayListApi(ClusterApi):
    """Replays of a group's dead letters."""

    permissions: ClassVar = {"GET": "lag.view", "POST": "dead_letter.replay"}
    problems: ClassVar = {"POST": (502, 503)}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="dead_letter_replay_list", responses=ReplaySerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """List the replays, newest first."""
        return paginated(self, request, replay_list(self.cluster, group), ReplaySerializer)

    @extend_schema(
        operation_id="dead_letter_replay_create",
        request=ReplayCreateSerializer,
        responses={202: ReplaySerializer},
        tags=_TAGS,
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Send dead letters again, at a rate: to the group's retry topic, or to the topics that they were sent to.

        Each is sent at most once. Follow the replay at its `Location`.
        """
        form = ReplayCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(form.validated_data)
        places = values.pop("places")
        wish = ReplayWish(
            target=ReplayTarget(values.pop("target")),
            places=None if places is None else places_of(places),
            **values,
        )
        replay = replay_start(actor=self.actor, cluster=self.cluster, group=group, wish=wish)
        return Response(ReplaySerializer(replay).data, status=202, headers={"Location": replay.path})


class ReplayDetailApi(ClusterApi):
    """One replay."""

    permissions: ClassVar = {"GET": "lag.view"}

    @extend_schema(operation_id="dead_letter_replay_get", responses=ReplaySerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, group: str, replay_id: uuid.UUID) -> Response:
        """Return the replay with its report."""
        return Response(ReplaySerializer(replay_get(self.cluster, group, replay_id)).data)


class ReplayCancelApi(ClusterApi):
    """The end of a replay."""

    permissions: ClassVar = {"POST": "dead_letter.replay"}

    @extend_schema(operation_id="dead_letter_replay_cancel", request=None, responses=ReplaySerializer, tags=_TAGS)
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str, replay_id: uuid.UUID) -> Response:
        """End the replay before its next message."""
        replay = replay_cancel(actor=self.actor, replay=replay_get(self.cluster, group, replay_id))
        return Response(ReplaySerializer(replay).data)


class ReplayContinueApi(ClusterApi):
    """A replay that goes on."""

    permissions: ClassVar = {"POST": "dead_letter.replay"}
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="dead_letter_replay_continue", request=None, responses={202: ReplaySerializer}, tags=_TAGS
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str, replay_id: uuid.UUID) -> Response:
        """Go on where a stopped or cancelled replay ended. What was refused is tried again; what is unknown is not."""
        replay = replay_continue(actor=self.actor, replay=replay_get(self.cluster, group, replay_id))
        return Response(ReplaySerializer(replay).data, status=202, headers={"Location": replay.path})
