"""REST: by which protobuf message a topic's bodies are decoded."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.clusters.api_base import ClusterApi
from controlplane.topics.schemas import schema_delete, schema_get, schema_set
from controlplane.topics.selectors import topic_get
from controlplane.topics.serializers import TopicSchemaSerializer, TopicSchemaSetSerializer

_TAGS = ["topics"]


class TopicSchemaApi(ClusterApi):
    """The protobuf schema of a topic."""

    permissions: ClassVar = {"GET": "topic.view", "PUT": "topic.update", "DELETE": "topic.update"}

    @extend_schema(operation_id="topic_schema_get", responses=TopicSchemaSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Return the topic's schema; 404 where none was given."""
        return Response(TopicSchemaSerializer(schema_get(topic_get(self.cluster, topic))).data)

    @extend_schema(
        operation_id="topic_schema_set",
        request=TopicSchemaSetSerializer,
        responses=TopicSchemaSerializer,
        tags=_TAGS,
    )
    def put(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Decode the topic's bodies by a protobuf message, wherever messages are shown: as `auto`, where a body fits it.

        Brokers and clients know nothing of it. It needs a set with all imports, and replaces the one before.
        """
        found = topic_get(self.cluster, topic)
        form = TopicSchemaSetSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        return Response(TopicSchemaSerializer(schema_set(actor=self.actor, topic=found, **form.validated_data)).data)

    @extend_schema(operation_id="topic_schema_delete", responses={204: None}, tags=_TAGS)
    def delete(self, request: Request, tenant: str, cluster: str, topic: str) -> Response:
        """Show the topic's bodies as they come again."""
        schema_delete(actor=self.actor, topic=topic_get(self.cluster, topic))
        return Response(status=204)
