"""Addresses of the failover API, below /api/v1/."""

from django.urls import path

from controlplane.failover.apis import GroupListApi
from controlplane.failover.drill import apis as drill
from controlplane.failover.membership import apis as membership
from controlplane.failover.mode.apis import ClusterModeApi
from controlplane.failover.promotion import apis as promotion

_CLUSTER = "tenants/<slug:tenant>/clusters/<slug:cluster>/"

urlpatterns = [
    path(f"{_CLUSTER}groups/", GroupListApi.as_view(), name="group-list"),
    path(f"{_CLUSTER}groups/<slug:group>/promote/", promotion.GroupPromoteApi.as_view(), name="group-promote"),
    path(f"{_CLUSTER}groups/<slug:group>/switchover/", promotion.GroupSwitchoverApi.as_view(), name="group-switchover"),
    path(f"{_CLUSTER}groups/<slug:group>/transfer/", membership.GroupTransferApi.as_view(), name="group-transfer"),
    path(f"{_CLUSTER}groups/<slug:group>/prefer/", membership.GroupPreferApi.as_view(), name="group-prefer"),
    path(f"{_CLUSTER}groups/<slug:group>/recover/", membership.GroupRecoverApi.as_view(), name="group-recover"),
    path(f"{_CLUSTER}groups/<slug:group>/replace/", membership.GroupReplaceApi.as_view(), name="group-replace"),
    path(f"{_CLUSTER}groups/<slug:group>/resize/", membership.GroupResizeApi.as_view(), name="group-resize"),
    path(f"{_CLUSTER}groups/<slug:group>/drill/", drill.GroupDrillApi.as_view(), name="group-drill"),
    path(f"{_CLUSTER}drills/", drill.DrillListApi.as_view(), name="drill-list"),
    path(f"{_CLUSTER}drills/<uuid:drill_id>/", drill.DrillDetailApi.as_view(), name="drill-detail"),
    path(f"{_CLUSTER}mode/", ClusterModeApi.as_view(), name="cluster-mode"),
    path(f"{_CLUSTER}failovers/", promotion.FailoverListApi.as_view(), name="failover-list"),
    path(f"{_CLUSTER}failovers/<uuid:failover_id>/", promotion.FailoverDetailApi.as_view(), name="failover-detail"),
]
