"""Addresses of the alerts API, below /api/v1/."""

from django.urls import path

from controlplane.alerts import apis, channel_apis

_TENANT = "tenants/<slug:tenant>/"
_RULES = f"{_TENANT}clusters/<slug:cluster>/alert-rules/"
_CHANNEL = f"{_TENANT}alert-channels/<uuid:channel_id>/"
_DELIVERY = f"{_TENANT}alert-deliveries/<uuid:delivery_id>/"

urlpatterns = [
    path(f"{_TENANT}alerts/", apis.AlertListApi.as_view(), name="alert-list"),
    path(f"{_TENANT}alerts/<uuid:alert_id>/", apis.AlertDetailApi.as_view(), name="alert-detail"),
    path(f"{_TENANT}alerts/<uuid:alert_id>/acknowledge/", apis.AlertAcknowledgeApi.as_view(), name="alert-acknowledge"),
    path(_RULES, apis.RuleListApi.as_view(), name="alert-rule-list"),
    path(f"{_RULES}<slug:kind>/", apis.RuleDetailApi.as_view(), name="alert-rule-detail"),
    path(f"{_TENANT}alert-silences/", apis.SilenceListApi.as_view(), name="alert-silence-list"),
    path(f"{_TENANT}alert-channels/", channel_apis.ChannelListApi.as_view(), name="alert-channel-list"),
    path(f"{_CHANNEL}", channel_apis.ChannelDetailApi.as_view(), name="alert-channel-detail"),
    path(f"{_CHANNEL}test/", channel_apis.ChannelTestApi.as_view(), name="alert-channel-test"),
    path(f"{_TENANT}alert-deliveries/", channel_apis.DeliveryListApi.as_view(), name="alert-delivery-list"),
    path(_DELIVERY, channel_apis.DeliveryDetailApi.as_view(), name="alert-delivery-detail"),
    path(f"{_DELIVERY}again/", channel_apis.DeliveryAgainApi.as_view(), name="alert-delivery-again"),
    path(f"{_TENANT}alert-silences/<uuid:silence_id>/", apis.SilenceDetailApi.as_view(), name="alert-silence-detail"),
]
