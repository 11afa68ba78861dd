"""Addresses of the alerts API, below /api/v1/."""

from django.urls import path

from controlplane.alerts import apis

_TENANT = "tenants/<slug:tenant>/"
_RULES = f"{_TENANT}clusters/<slug:cluster>/alert-rules/"

urlpatterns = [
    path(f"{_TENANT}alerts/", apis.AlertListApi.as_view(), name="alert-list"),
    path(f"{_TENANT}alerts/<uuid:alert_id>/", apis.AlertDetailApi.as_view(), name="alert-detail"),
    path(f"{_TENANT}alerts/<uuid:alert_id>/acknowledge/", apis.AlertAcknowledgeApi.as_view(), name="alert-acknowledge"),
    path(_RULES, apis.RuleListApi.as_view(), name="alert-rule-list"),
    path(f"{_RULES}<slug:kind>/", apis.RuleDetailApi.as_view(), name="alert-rule-detail"),
    path(f"{_TENANT}alert-silences/", apis.SilenceListApi.as_view(), name="alert-silence-list"),
    path(f"{_TENANT}alert-silences/<uuid:silence_id>/", apis.SilenceDetailApi.as_view(), name="alert-silence-detail"),
]
