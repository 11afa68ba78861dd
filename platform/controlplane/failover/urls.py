"""Addresses of the failover API, below /api/v1/."""

from django.urls import path

from controlplane.failover import apis, quorum_apis

_CLUSTER = "tenants/<slug:tenant>/clusters/<slug:cluster>/"

urlpatterns = [
    path(f"{_CLUSTER}groups/", apis.GroupListApi.as_view(), name="group-list"),
    path(f"{_CLUSTER}groups/<slug:group>/promote/", apis.GroupPromoteApi.as_view(), name="group-promote"),
    path(f"{_CLUSTER}groups/<slug:group>/switchover/", apis.GroupSwitchoverApi.as_view(), name="group-switchover"),
    path(f"{_CLUSTER}groups/<slug:group>/transfer/", quorum_apis.GroupTransferApi.as_view(), name="group-transfer"),
    path(f"{_CLUSTER}groups/<slug:group>/prefer/", quorum_apis.GroupPreferApi.as_view(), name="group-prefer"),
    path(f"{_CLUSTER}groups/<slug:group>/recover/", quorum_apis.GroupRecoverApi.as_view(), name="group-recover"),
    path(f"{_CLUSTER}groups/<slug:group>/replace/", quorum_apis.GroupReplaceApi.as_view(), name="group-replace"),
    path(f"{_CLUSTER}groups/<slug:group>/resize/", quorum_apis.GroupResizeApi.as_view(), name="group-resize"),
    path(f"{_CLUSTER}mode/", quorum_apis.ClusterModeApi.as_view(), name="cluster-mode"),
    path(f"{_CLUSTER}failovers/", apis.FailoverListApi.as_view(), name="failover-list"),
    path(f"{_CLUSTER}failovers/<uuid:failover_id>/", apis.FailoverDetailApi.as_view(), name="failover-detail"),
]
