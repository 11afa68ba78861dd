"""Addresses of the failover API, below /api/v1/."""

from django.urls import path

from controlplane.failover import apis

_CLUSTER = "tenants/<slug:tenant>/clusters/<slug:cluster>/"

urlpatterns = [
    path(f"{_CLUSTER}groups/", apis.GroupListApi.as_view(), name="group-list"),
    path(f"{_CLUSTER}groups/<slug:group>/promote/", apis.GroupPromoteApi.as_view(), name="group-promote"),
    path(f"{_CLUSTER}groups/<slug:group>/switchover/", apis.GroupSwitchoverApi.as_view(), name="group-switchover"),
    path(f"{_CLUSTER}failovers/", apis.FailoverListApi.as_view(), name="failover-list"),
    path(f"{_CLUSTER}failovers/<uuid:failover_id>/", apis.FailoverDetailApi.as_view(), name="failover-detail"),
]
