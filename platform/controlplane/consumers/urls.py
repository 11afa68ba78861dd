"""Addresses of the consumer groups' API, below /api/v1/."""

from django.urls import path

from controlplane.consumers import apis, dead_letter_apis
from controlplane.consumers import names as names  # gives addresses the converter of a group's name
from controlplane.topics import urls as urls  # and that of a topic's name

_GROUP = "tenants/<slug:tenant>/clusters/<slug:cluster>/consumer-groups/<consumer_group:group>/"
_REPLAYS = f"{_GROUP}dead-letter-replays/"
_MESSAGE = (
    "tenants/<slug:tenant>/clusters/<slug:cluster>/topics/<topic:topic>/messages/"
    "<slug:broker>/<int:queue_id>/<int:queue_offset>/"
)
_RESETS = f"{_GROUP}offset-resets/"

urlpatterns = [
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/topics/<topic:topic>/route/",
        apis.TopicRouteApi.as_view(),
        name="topic-route",
    ),
    path(f"{_GROUP}members/", apis.GroupMembersApi.as_view(), name="group-members"),
    path(f"{_GROUP}members/running/", apis.MemberRunningApi.as_view(), name="group-member-running"),
    path(f"{_MESSAGE}consume/", apis.MessageConsumeApi.as_view(), name="message-consume"),
    path(_RESETS, apis.OffsetResetListApi.as_view(), name="offset-reset-list"),
    path(f"{_RESETS}<uuid:reset_id>/", apis.OffsetResetDetailApi.as_view(), name="offset-reset-detail"),
    path(f"{_RESETS}<uuid:reset_id>/undo/", apis.OffsetResetUndoApi.as_view(), name="offset-reset-undo"),
    path(f"{_GROUP}dead-letters/", dead_letter_apis.DeadLetterListApi.as_view(), name="dead-letter-list"),
    path(f"{_GROUP}dead-letters/export/", dead_letter_apis.DeadLetterExportApi.as_view(), name="dead-letter-export"),
    path(_REPLAYS, dead_letter_apis.ReplayListApi.as_view(), name="dead-letter-replay-list"),
    path(f"{_REPLAYS}<uuid:replay_id>/", dead_letter_apis.ReplayDetailApi.as_view(), name="dead-letter-replay-detail"),
    path(
        f"{_REPLAYS}<uuid:replay_id>/cancel/",
        dead_letter_apis.ReplayCancelApi.as_view(),
        name="dead-letter-replay-cancel",
    ),
    path(
        f"{_REPLAYS}<uuid:replay_id>/continue/",
        dead_letter_apis.ReplayContinueApi.as_view(),
        name="dead-letter-replay-continue",
    ),
]
