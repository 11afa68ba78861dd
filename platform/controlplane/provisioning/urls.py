"""Addresses of provisioning's API, below /api/v1/: for operators."""

from django.urls import path

from controlplane.provisioning.apis import LeftoversApi, OperationFailApi, OperationRequeueApi
from controlplane.provisioning.authority_apis import AuthorityRenewApi
from controlplane.provisioning.host_apis import HostsApi

_OPERATION = "operator/operations/<uuid:operation_id>/"

urlpatterns = [
    path("operator/leftovers/", LeftoversApi.as_view(), name="leftovers"),
    path(f"{_OPERATION}requeue/", OperationRequeueApi.as_view(), name="operation-requeue"),
    path(f"{_OPERATION}fail/", OperationFailApi.as_view(), name="operation-fail"),
    path(
        "tenants/<slug:tenant>/clusters/<slug:cluster>/certificate-authority/renew/",
        AuthorityRenewApi.as_view(),
        name="authority-renew",
    ),
    path("operator/hosts/", HostsApi.as_view(), name="hosts"),
]
