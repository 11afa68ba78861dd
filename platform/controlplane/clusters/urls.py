"""Addresses of the clusters API, below /api/v1/."""

from django.urls import path

from controlplane.clusters import apis, operator_apis
from controlplane.clusters import configuration_apis as configuration

_CLUSTER = "tenants/<slug:tenant>/clusters/<slug:cluster>/"

urlpatterns = [
    path("tenants/<slug:tenant>/clusters/", apis.ClusterListApi.as_view(), name="cluster-list"),
    path(_CLUSTER, apis.ClusterDetailApi.as_view(), name="cluster-detail"),
    path(f"{_CLUSTER}suspend/", apis.ClusterSuspendApi.as_view(), name="cluster-suspend"),
    path(f"{_CLUSTER}resume/", apis.ClusterResumeApi.as_view(), name="cluster-resume"),
    path(f"{_CLUSTER}restore/", apis.ClusterRestoreApi.as_view(), name="cluster-restore"),
    path(f"{_CLUSTER}purge/", apis.ClusterPurgeApi.as_view(), name="cluster-purge"),
    path(f"{_CLUSTER}grow/", apis.ClusterGrowApi.as_view(), name="cluster-grow"),
    path(f"{_CLUSTER}configuration/", configuration.ConfigurationApi.as_view(), name="configuration"),
    path(f"{_CLUSTER}configuration/apply/", configuration.ConfigurationApplyApi.as_view(), name="configuration-apply"),
    path(
        f"{_CLUSTER}configuration/changes/",
        configuration.ConfigurationChangeListApi.as_view(),
        name="configuration-change-list",
    ),
    path(
        f"{_CLUSTER}configuration/changes/<int:number>/",
        configuration.ConfigurationChangeApi.as_view(),
        name="configuration-change",
    ),
    path(
        f"{_CLUSTER}configuration/changes/<int:number>/put-back/",
        configuration.ConfigurationPutBackApi.as_view(),
        name="configuration-put-back",
    ),
    path(f"{_CLUSTER}credentials/", apis.CredentialListApi.as_view(), name="credential-list"),
    path(f"{_CLUSTER}credentials/<slug:access_key>/", apis.CredentialDetailApi.as_view(), name="credential-detail"),
    path(
        f"{_CLUSTER}credentials/<slug:access_key>/quotas/",
        apis.CredentialQuotasApi.as_view(),
        name="credential-quotas",
    ),
    path(
        f"{_CLUSTER}credentials/<slug:access_key>/reveal/",
        apis.CredentialRevealApi.as_view(),
        name="credential-reveal",
    ),
    path(
        f"{_CLUSTER}credentials/<slug:access_key>/rotate/",
        apis.CredentialRotateApi.as_view(),
        name="credential-rotate",
    ),
    path("tenants/<slug:tenant>/limits/", apis.LimitsApi.as_view(), name="limits"),
    path("tenants/<slug:tenant>/operations/", apis.TenantOperationListApi.as_view(), name="operation-list"),
    path("operator/tenants/", operator_apis.OwnLimitsListApi.as_view(), name="tenant-limits-list"),
    path("operator/tenants/<slug:tenant>/limits/", operator_apis.TenantLimitsApi.as_view(), name="tenant-limits"),
    path(
        "operator/tenants/<slug:tenant>/limits/<str:limit>/",
        operator_apis.TenantLimitApi.as_view(),
        name="tenant-limit",
    ),
    path("operations/<uuid:operation_id>/", apis.OperationDetailApi.as_view(), name="operation-detail"),
    path("operations/<uuid:operation_id>/retry/", apis.OperationRetryApi.as_view(), name="operation-retry"),
    path("operations/<uuid:operation_id>/cancel/", apis.OperationCancelApi.as_view(), name="operation-cancel"),
]
