"""Addresses of the consumer groups' API, below /api/v1/."""

from django.urls import path

from controlplane.consumers import apis
from controlplane.consumers import names as names  # gives addresses the converter of a group's name

_GROUP = "tenants/<slug:tenant>/clusters/<slug:cluster>/consumer-groups/<consumer_group:group>/"
_RESETS = f"{_GROUP}offset-resets/"

urlpatterns = [
    path(f"{_GROUP}members/", apis.GroupMembersApi.as_view(), name="group-members"),
    path(_RESETS, apis.OffsetResetListApi.as_view(), name="offset-reset-list"),
    path(f"{_RESETS}<uuid:reset_id>/", apis.OffsetResetDetailApi.as_view(), name="offset-reset-detail"),
    path(f"{_RESETS}<uuid:reset_id>/undo/", apis.OffsetResetUndoApi.as_view(), name="offset-reset-undo"),
]
