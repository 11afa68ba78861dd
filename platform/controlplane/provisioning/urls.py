"""Addresses of provisioning's API, below /api/v1/: for operators."""

from django.urls import path

from controlplane.provisioning.apis import LeftoversApi
from controlplane.provisioning.host_apis import HostsApi, HostsTakenApi

urlpatterns = [
    path("operator/leftovers/", LeftoversApi.as_view(), name="leftovers"),
    path("operator/hosts/", HostsApi.as_view(), name="hosts"),
    path("operator/hosts/taken/", HostsTakenApi.as_view(), name="hosts-taken"),
]
