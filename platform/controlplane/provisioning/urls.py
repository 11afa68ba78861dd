"""Addresses of provisioning's API, below /api/v1/: for operators."""

from django.urls import path

from controlplane.provisioning.apis import LeftoversApi

urlpatterns = [path("operator/leftovers/", LeftoversApi.as_view(), name="leftovers")]
