"""REST: members of consumer groups, and resets of their offsets."""

import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.common.strictness import DRY_RUN, is_dry_run
from controlplane.consumers.direct import message_consume
from controlplane.consumers.models import ResetTarget
from controlplane.consumers.route_map import topic_route_map
from controlplane.consumers.running import member_running
from controlplane.consumers.selectors import group_members, reset_get, reset_list
from controlplane.consumers.serializers import (
    GroupMembersSerializer,
    HandledSerializer,
    MemberRunningQuerySerializer,
    MemberRunningSerializer,
    MessageConsumeSerializer,
    OffsetResetCreateSerializer,
    OffsetResetSerializer,
    ResetPlanSerializer,
    RouteMapSerializer,
    RouteQuerySerializer,
    UndoSerializer,
    plan_shown,
)
from controlplane.consumers.services import Target, reset_make, reset_preview, reset_undo, undo_preview
from controlplane.topics.selectors import topic_get

_RESPONSES = {200: ResetPlanSerializer, 201: OffsetResetSerializer}


class GroupMembersApi(ClusterApi):
    """Who is connected in a group."""

    permissions: ClassVar = {"GET": "lag.view"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="consumer_group_members", responses=GroupMembersSerializer, tags=["consumer groups"])
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Return the clients that are connected now, what they subscribe to, and which of them subscribe otherwise."""
        found = group_members(self.cluster, group)
        data: dict[str, Any] = {
            "members": found.members,
            "subscriptions": [{"topic": topic, "expression": words} for topic, words in found.subscriptions],
            "consume_type": found.consume_type,
            "message_model": found.message_model,
            "subscriptions_have_majority": found.comparison.has_majority,
            "odd_members": found.comparison.odd,
            "not_compared": found.not_compared,
        }
        return Response(GroupMembersSerializer(data).data)


class TopicRouteApi(ClusterApi):
    """Where a topic's queues are, and who reads them."""

    permissions: ClassVar = {"GET": "topic.view"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="topic_route", parameters=[RouteQuerySerializer], responses=RouteMapSerializer, tags=["topics"]
    )
    def get(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Return the broker groups with their share of the queues, and with `group` which member of it has each queue.

        Who may not inspect consumers may not ask for a group.
        """
        query = RouteQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        found = topic_get(self.cluster, topic)
        return Response(
            RouteMapSerializer(topic_route_map(actor=self.actor, topic=found, group=query.validated_data["group"])).data
        )


class MemberRunningApi(ClusterApi):
    """One member of a group."""

    permissions: ClassVar = {"GET": "consumer.inspect"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="consumer_group_member_running",
        parameters=[MemberRunningQuerySerializer],
        responses=MemberRunningSerializer,
        tags=["consumer groups"],
    )
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Have the broker ask a connected member how it is doing: its queues, its settings and, with `stack`, its threads."""
        query = MemberRunningQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        found = member_running(
            actor=self.actor,
            cluster=self.cluster,
            group=group,
            client_id=query.validated_data["client_id"],
            with_stack=query.validated_data["stack"],
        )
        return Response(MemberRunningSerializer(found).data)


class OffsetResetListApi(ClusterApi):
    """Resets of a group's offsets."""

    permissions: ClassVar = {"GET": "lag.view", "POST": "offset.reset"}
    problems: ClassVar = {"POST": (502, 503)}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="offset_reset_list", responses=OffsetResetSerializer(many=True), tags=["consumer groups"]
    )
    def get(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """List the group's resets, newest first."""
        return paginated(self, request, reset_list(self.cluster, group), OffsetResetSerializer)

    @extend_schema(
        operation_id="offset_reset_create",
        parameters=[DRY_RUN],
        request=OffsetResetCreateSerializer,
        responses=_RESPONSES,
        tags=["consumer groups"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str) -> Response:
        """Let a group go on elsewhere in a topic, whether members are connected or not; `dry_run` only says what would change."""
        form = OffsetResetCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values = dict(form.validated_data)
        dry_run = is_dry_run(request, values)
        topic = values.pop("topic")
        offsets = tuple(values.pop("offsets", ()))
        target = Target(ResetTarget(values.pop("target")), offsets=offsets, **values)
        if dry_run:
            plan = reset_preview(cluster=self.cluster, group=group, topic=topic, target=target)
            return Response(ResetPlanSerializer(plan_shown(plan)).data)
        reset = reset_make(actor=self.actor, cluster=self.cluster, group=group, topic=topic, target=target)
        return Response(OffsetResetSerializer(reset).data, status=201, headers={"Location": reset.path})


class OffsetResetDetailApi(ClusterApi):
    """One reset."""

    permissions: ClassVar = {"GET": "lag.view"}

    @extend_schema(operation_id="offset_reset_get", responses=OffsetResetSerializer, tags=["consumer groups"])
    def get(self, request: Request, tenant: str, cluster: str, group: str, reset_id: uuid.UUID) -> Response:
        """Return the reset, with what became of each queue."""
        return Response(OffsetResetSerializer(reset_get(self.cluster, group, reset_id)).data)


class OffsetResetUndoApi(ClusterApi):
    """A reset, undone."""

    permissions: ClassVar = {"POST": "offset.reset"}
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="offset_reset_undo",
        parameters=[DRY_RUN],
        request=UndoSerializer,
        responses=_RESPONSES,
        tags=["consumer groups"],
    )
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, group: str, reset_id: uuid.UUID) -> Response:
        """Take the group back to where it was before this reset; `dry_run` only says what would change."""
        form = UndoSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        reset = reset_get(self.cluster, group, reset_id)
        if is_dry_run(request, dict(form.validated_data)):
            return Response(ResetPlanSerializer(plan_shown(undo_preview(reset))).data)
        undo = reset_undo(actor=self.actor, reset=reset)
        return Response(OffsetResetSerializer(undo).data, status=201, headers={"Location": undo.path})


class MessageConsumeApi(ClusterApi):
    """A stored message, handled by a member."""

    permissions: ClassVar = {"POST": "message.consume"}
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="message_consume",
        request=MessageConsumeSerializer,
        responses={200: HandledSerializer},
        tags=["messages"],
    )
    @idempotent
    def post(
        self, request: Request, tenant: str, cluster: str, topic: str, broker: str, queue_id: int, queue_offset: int
    ) -> Response:
        """Have a connected member of a group handle the message now, and return what it says of it. No offset moves."""
        found = topic_get(self.cluster, topic)
        form = MessageConsumeSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        handled = message_consume(
            actor=self.actor,
            topic=found,
            broker_name=broker,
            queue_id=queue_id,
            queue_offset=queue_offset,
            **form.validated_data,
        )
        return Response(HandledSerializer(handled).data)
