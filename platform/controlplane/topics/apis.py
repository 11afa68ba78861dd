"""REST: topics and their messages."""

from dataclasses import replace
from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import ByName, CursorPagination
from controlplane.common.strictness import flag_of
from controlplane.topics.bodies import BodyForm
from controlplane.topics.copies import Edit
from controlplane.topics.gateway import TestMessage, message_get, message_send, messages_browse
from controlplane.topics.models import Topic
from controlplane.topics.resends import message_resend, resend_list
from controlplane.topics.search import Sought, messages_search
from controlplane.topics.selectors import TopicLive, topic_get, topic_list, topics_live
from controlplane.topics.serializers import (
    BrowseQuerySerializer,
    FoundMessagesSerializer,
    MessageQuerySerializer,
    MessageResendSerializer,
    MessageSerializer,
    MessagesSerializer,
    ResendSerializer,
    SearchQuerySerializer,
    SentMessageSerializer,
    StoredMessageSerializer,
    TailQuerySerializer,
    TailSerializer,
    TestMessageSerializer,
    TopicCreateSerializer,
    TopicLiveSerializer,
    TopicSerializer,
    TopicUpdateSerializer,
    TopicWithLiveSerializer,
)
from controlplane.topics.services import TopicOptions, topic_create, topic_delete, topic_update
from controlplane.topics.tail import TailFilter, messages_tail

_LIVE = OpenApiParameter("live", bool, description="false: don't ask the brokers for offsets.", default=True)


class TopicListApi(ClusterApi):
    """Topics of a cluster."""

    permissions: ClassVar = {"GET": "topic.view", "POST": "topic.create"}
    problems: ClassVar = {"GET": (409, 502, 503), "POST": (502, 503)}
    pagination_class: type[CursorPagination] = ByName

    @extend_schema(operation_id="topic_list", parameters=[_LIVE], responses=TopicWithLiveSerializer(many=True))
    def get(self, request: Request, tenant: str, cluster: str) -> Response:
        """List the topics with their offsets as the brokers report them now. What is not known is null."""
        paginator = self.pagination_class()
        page: list[Topic] = paginator.paginate_queryset(topic_list(self.cluster), request) or []
        live = topics_live(self.cluster, page) if _wants_live(request) else {}
        return paginator.get_paginated_response([_topic(topic, live.get(topic.name)) for topic in page])

    @extend_schema(operation_id="topic_create", request=TopicCreateSerializer, responses={201: TopicSerializer})
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str) -> Response:
        """Create a topic on every broker."""
        form = TopicCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(form.validated_data)
        name = values.pop("name")
        topic = topic_create(actor=self.actor, cluster=self.cluster, name=name, options=TopicOptions(**values))
        return Response(TopicSerializer(topic).data, status=201, headers={"Location": topic.path})


class TopicDetailApi(ClusterApi):
    """One topic."""

    permissions: ClassVar = {"GET": "topic.view", "PATCH": "topic.update", "DELETE": "topic.delete"}
    problems: ClassVar = {"GET": (409, 502, 503), "PATCH": (409, 502, 503), "DELETE": (409, 502, 503)}

    @extend_schema(operation_id="topic_get", parameters=[_LIVE], responses=TopicWithLiveSerializer)
    def get(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Return the topic with its live offsets, and how much of its limits is used."""
        found = topic_get(self.cluster, topic)
        live = topics_live(self.cluster, [found], with_limits=True) if _wants_live(request) else {}
        return Response(_topic(found, live.get(found.name)))

    @extend_schema(operation_id="topic_update", request=TopicUpdateSerializer, responses=TopicSerializer)
    def patch(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Change queues, permission, retention, quotas or description on every broker. null takes a limit away."""
        found = topic_get(self.cluster, topic)
        form = TopicUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        options = replace(TopicOptions.of(found), **form.validated_data)
        return Response(TopicSerializer(topic_update(actor=self.actor, topic=found, options=options)).data)

    @extend_schema(operation_id="topic_delete", responses={204: None})
    def delete(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Delete the topic with its messages from every broker."""
        topic_delete(actor=self.actor, topic=topic_get(self.cluster, topic))
        return Response(status=204)


class MessageListApi(ClusterApi):
    """Messages of a topic."""

    permissions: ClassVar = {"GET": "message.browse", "POST": "message.send"}
    makes_unaddressed: ClassVar = True
    problems: ClassVar = {"GET": (409, 502, 503), "POST": (502, 503)}

    @extend_schema(operation_id="message_list", parameters=[BrowseQuerySerializer], responses={200: MessagesSerializer})
    def get(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Return the newest messages of all queues, or with `since` the first from then on. Reading moves no consumer's offset."""
        query = BrowseQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        found = topic_get(self.cluster, topic)
        values = dict(query.validated_data)
        values["body_as"] = BodyForm(values["body_as"])
        page = messages_browse(actor=self.actor, topic=found, **values)
        results = MessageSerializer(page.messages, many=True).data
        return Response({"results": results, "complete": page.complete})

    @extend_schema(operation_id="message_send", request=TestMessageSerializer, responses={201: SentMessageSerializer})
    @idempotent
    def post(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Send one test message."""
        found = topic_get(self.cluster, topic)
        form = TestMessageSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values = form.validated_data
        message = TestMessage(
            body=values["bytes"],
            tags=values["tags"],
            keys=tuple(values["keys"]),
            properties=dict(values["properties"]),
        )
        sent = message_send(actor=self.actor, topic=found, message=message)
        return Response(SentMessageSerializer(sent).data, status=201)


class MessageTailApi(ClusterApi):
    """Messages of a topic as they come."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="message_tail", parameters=[TailQuerySerializer], responses={200: TailSerializer})
    def get(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Return what was stored since the cursor of the last answer, and a new one. It consumes nothing: no group, no offsets.

        Ask each 2 seconds or less often: 12 times in 10 seconds at most, and 150 for all of a tenant (429).
        """
        query = TailQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(query.validated_data)
        wanted = TailFilter(values.pop("tag"), values.pop("key"), values.pop("text"))
        page = messages_tail(actor=self.actor, topic=topic_get(self.cluster, topic), wanted=wanted, **values)
        return Response(TailSerializer(page).data)


class MessageDetailApi(ClusterApi):
    """One stored message."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(operation_id="message_get", parameters=[MessageQuerySerializer], responses=StoredMessageSerializer)
    def get(
        self, request: Request, tenant: str, cluster: str, topic: str, broker: str, queue_id: int, queue_offset: int
    ) -> Response:
        """Return the message at one place, with the first 64 KiB of its body. Reading moves no consumer's offset."""
        query = MessageQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        found = topic_get(self.cluster, topic)
        message = message_get(
            actor=self.actor,
            topic=found,
            broker_name=broker,
            queue_id=queue_id,
            queue_offset=queue_offset,
            body_as=BodyForm(query.validated_data["body_as"]),
        )
        resends = resend_list(found, broker, queue_id, queue_offset)
        shown = MessageSerializer(message).data
        return Response({**shown, "resends": MessageResendSerializer(resends, many=True).data})


class MessageResendApi(ClusterApi):
    """A stored message, sent again."""

    permissions: ClassVar = {"POST": "message.send"}
    makes_unaddressed: ClassVar = True
    problems: ClassVar = {"POST": (502, 503)}

    @extend_schema(
        operation_id="message_resend",
        request=ResendSerializer,
        responses={201: SentMessageSerializer},
        tags=["messages"],
    )
    @idempotent
    def post(
        self, request: Request, tenant: str, cluster: str, topic: str, broker: str, queue_id: int, queue_offset: int
    ) -> Response:
        """Send the message again as a new one, changed as the request says, with its origin in the property RESEND_OF.

        Properties of delays, retries and transactions are left out.
        """
        found = topic_get(self.cluster, topic)
        form = ResendSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values = form.validated_data
        edit = Edit(
            topic=values.get("topic"),
            body=values["bytes"],
            tags=values.get("tags"),
            keys=tuple(values["keys"]) if "keys" in values else None,
            properties=dict(values["properties"]) if "properties" in values else None,
        )
        sent = message_resend(
            actor=self.actor,
            topic=found,
            broker_name=broker,
            queue_id=queue_id,
            queue_offset=queue_offset,
            edit=edit,
            again=values["again"],
        )
        return Response(SentMessageSerializer(sent).data, status=201)


class MessageSearchApi(ClusterApi):
    """Messages of a topic by key or id."""

    permissions: ClassVar = {"GET": "message.browse"}
    problems: ClassVar = {"GET": (409, 502, 503)}

    @extend_schema(
        operation_id="message_search", parameters=[SearchQuerySerializer], responses={200: FoundMessagesSerializer}
    )
    def get(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Return the newest messages with a key, or the one with a message id: the client's or the broker's.

        The brokers' index follows the log by moments. Reading moves no consumer's offset.
        """
        query = SearchQuerySerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(query.validated_data)
        sought = Sought(values.pop("key"), values.pop("since"), values.pop("until"))
        found = messages_search(actor=self.actor, topic=topic_get(self.cluster, topic), sought=sought, **values)
        return Response({"results": MessageSerializer(found.messages, many=True).data, "reasons": found.reasons})


def _wants_live(request: Request) -> bool:
    return flag_of(request, "live", default=True)


def _topic(topic: Topic, live: TopicLive | None) -> dict[str, Any]:
    return {**TopicSerializer(topic).data, "live": None if live is None else dict(TopicLiveSerializer(live).data)}
