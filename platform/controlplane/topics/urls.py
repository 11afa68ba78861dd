"""Addresses of the topics API, below /api/v1/."""

from django.urls import path, register_converter

from controlplane.topics import apis, masking_apis, schema_apis
from controlplane.topics.names import NAME_PATTERN


class TopicNameConverter:
    """A topic's name in an address. `%` and `|` come percent-encoded, and are decoded before this matches."""

    regex = NAME_PATTERN

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(TopicNameConverter, "topic")

_MESSAGE = "<topic:topic>/messages/<slug:broker>/<int:queue_id>/<int:queue_offset>/"
_TOPICS = "tenants/<slug:tenant>/clusters/<slug:cluster>/topics/"

urlpatterns = [
    path("tenants/<slug:tenant>/masking-rules/", masking_apis.MaskingRuleListApi.as_view(), name="masking-rule-list"),
    path(
        "tenants/<slug:tenant>/masking-rules/<uuid:rule_id>/",
        masking_apis.MaskingRuleDetailApi.as_view(),
        name="masking-rule-detail",
    ),
    path(_TOPICS, apis.TopicListApi.as_view(), name="topic-list"),
    path(f"{_TOPICS}<topic:topic>/", apis.TopicDetailApi.as_view(), name="topic-detail"),
    path(f"{_TOPICS}<topic:topic>/schema/", schema_apis.TopicSchemaApi.as_view(), name="topic-schema"),
    path(f"{_TOPICS}<topic:topic>/messages/", apis.MessageListApi.as_view(), name="message-list"),
    path(f"{_TOPICS}<topic:topic>/messages/search/", apis.MessageSearchApi.as_view(), name="message-search"),
    path(f"{_TOPICS}<topic:topic>/messages/tail/", apis.MessageTailApi.as_view(), name="message-tail"),
    path(f"{_TOPICS}{_MESSAGE}", apis.MessageDetailApi.as_view(), name="message-detail"),
    path(f"{_TOPICS}{_MESSAGE}resend/", apis.MessageResendApi.as_view(), name="message-resend"),
]
