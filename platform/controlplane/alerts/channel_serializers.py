"""Shapes of channels and of what was sent to them."""

from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from controlplane.alerts.channels import address_shown
from controlplane.alerts.models import AlertChannel, AlertDelivery, ChannelKind, DeliveryState
from controlplane.alerts.outgoing import URL_CHARACTERS_MAX
from controlplane.common.strictness import Shape

MADE_KINDS = [(value, label) for value, label in ChannelKind.choices if value != ChannelKind.EMAIL]


# What `url_problem` refuses of a text alone. An operator who allows networks of their own allows http to them, too.
_SCHEME = "https?" if settings.HIGHWATER_WEBHOOK_NETWORKS else "https"
# Between the scheme and the path, neither a user's name (`@`) nor anything but ASCII.
URL_PATTERN = rf"^{_SCHEME}://[!$-.0->A-~]+([/?#][!-~]*)?$"


@extend_schema_field({"type": "string", "maxLength": URL_CHARACTERS_MAX, "pattern": URL_PATTERN})
class ChannelAddress(serializers.CharField):
    """Where a channel's messages are sent; services check it, and say which rule it breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=URL_CHARACTERS_MAX, **options)


class ChannelSerializer(Shape):
    """Where alerts are sent."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=ChannelKind.choices)
    address = serializers.SerializerMethodField(help_text="its host only: the rest may be a secret; empty: e-mail")
    is_signed = serializers.SerializerMethodField()
    is_on = serializers.BooleanField()
    critical_only = serializers.BooleanField()
    created_at = serializers.DateTimeField()

    @extend_schema_field(serializers.CharField())
    def get_address(self, channel: AlertChannel) -> str:
        return address_shown(channel)

    @extend_schema_field(serializers.BooleanField())
    def get_is_signed(self, channel: AlertChannel) -> bool:
        return bool(channel.secret_encrypted)


class ChannelCreatedSerializer(ChannelSerializer):
    """A new channel."""

    secret = serializers.CharField(
        allow_blank=True,
        help_text="what a webhook's messages are signed with, shown once; empty: it was given, or there is none",
    )


class ChannelCreateSerializer(Shape):
    """A channel to be made."""

    kind = serializers.ChoiceField(choices=MADE_KINDS)
    name = serializers.CharField(max_length=100)
    address = ChannelAddress(
        help_text="on the public internet, without a user's name, at port 443 or one from 1024 on; another one is answered with 400"
    )
    secret = serializers.CharField(
        max_length=200,
        required=False,
        default="",
        allow_blank=True,
        help_text="of a webhook, DingTalk's or Feishu's signature; a webhook without one gets one",
    )
    critical_only = serializers.BooleanField(required=False, default=False)


class ChannelUpdateSerializer(Shape):
    """What is to be changed; what is left out stays."""

    is_on = serializers.BooleanField(required=False)
    critical_only = serializers.BooleanField(required=False)


class DeliverySerializer(Shape):
    """One message to one channel."""

    id = serializers.UUIDField()
    channel = serializers.UUIDField(source="channel_id")
    channel_name = serializers.CharField(source="channel.name")
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField()
    next_attempt_at = serializers.SerializerMethodField(help_text="null: there is none")
    http_status = serializers.IntegerField(allow_null=True, help_text="of the last try; null: there was no answer")
    error = serializers.CharField(allow_blank=True, help_text="why the last try failed")
    payload = serializers.DictField(help_text="what was sent")
    created_at = serializers.DateTimeField()
    delivered_at = serializers.DateTimeField(allow_null=True)
    is_again_of = serializers.UUIDField(source="is_again_of_id", allow_null=True)

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_next_attempt_at(self, delivery: AlertDelivery) -> str | None:
        return delivery.not_before.isoformat() if delivery.state == DeliveryState.QUEUED else None
