"""Addresses of the failover API, below /api/v1/."""

from django.urls import path

from controlplane.failover.apis import GroupListApi
from controlplane.failover.diverged import apis as diverged
from controlplane.failover.drill import apis as drill
from controlplane.failover.membership import apis as membership
from controlplane.failover.mode.apis import ClusterModeApi
from controlplane.failover.promotion import apis as promotion
from controlplane.failover.rolling import apis as rolling

_CLUSTER = "tenants/<slug:tenant>/clusters/<slug:cluster>/"
_CUT = f"{_CLUSTER}diverged/<slug:group>/<int:replica_id>/<str:name>/"
_WINDOWS = f"{_CLUSTER}drill-windows/"
_RESENDS = f"{_CLUSTER}diverged-resends/"

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
    path(_WINDOWS, drill.DrillWindowListApi.as_view(), name="drill-window-list"),
    path(f"{_WINDOWS}<uuid:window_id>/", drill.DrillWindowApi.as_view(), name="drill-window-detail"),
    path(f"{_WINDOWS}<uuid:window_id>/cancel/", drill.DrillWindowCancelApi.as_view(), name="drill-window-cancel"),
    path(f"{_CLUSTER}diverged/", diverged.SavedCutListApi.as_view(), name="diverged-list"),
    path(_CUT, diverged.SavedCutApi.as_view(), name="diverged-detail"),
    path(f"{_CUT}messages/", diverged.CutMessagesApi.as_view(), name="diverged-messages"),
    path(f"{_CUT}export/", diverged.CutExportApi.as_view(), name="diverged-export"),
    path(f"{_CUT}done/", diverged.CutDoneApi.as_view(), name="diverged-done"),
    path(f"{_CUT}resends/", diverged.CutResendApi.as_view(), name="diverged-resend"),
    path(_RESENDS, diverged.DivergedResendListApi.as_view(), name="diverged-resend-list"),
    path(f"{_RESENDS}<uuid:resend_id>/", diverged.DivergedResendApi.as_view(), name="diverged-resend-detail"),
    path(
        f"{_RESENDS}<uuid:resend_id>/cancel/",
        diverged.DivergedResendCancelApi.as_view(),
        name="diverged-resend-cancel",
    ),
    path(
        f"{_RESENDS}<uuid:resend_id>/continue/",
        diverged.DivergedResendContinueApi.as_view(),
        name="diverged-resend-continue",
    ),
    path(f"{_CLUSTER}mode/", ClusterModeApi.as_view(), name="cluster-mode"),
    path(f"{_CLUSTER}restart/", rolling.ClusterRestartApi.as_view(), name="cluster-restart"),
    path(f"{_CLUSTER}upgrade/", rolling.ClusterUpgradeApi.as_view(), name="cluster-upgrade"),
    path(f"{_CLUSTER}daemons/", rolling.ClusterDaemonsApi.as_view(), name="daemon-versions"),
    path(f"{_CLUSTER}failovers/", promotion.FailoverListApi.as_view(), name="failover-list"),
    path(f"{_CLUSTER}failovers/<uuid:failover_id>/", promotion.FailoverDetailApi.as_view(), name="failover-detail"),
]
