"""REST: where alerts are sent, and what was sent."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.alerts.channel_serializers import (
    ChannelCreatedSerializer,
    ChannelCreateSerializer,
    ChannelSerializer,
    ChannelUpdateSerializer,
    DeliverySerializer,
)
from controlplane.alerts.channels import channel_create, channel_delete, channel_get, channel_list, channel_update
from controlplane.alerts.deliveries import channel_test, delivery_again, delivery_get, delivery_list
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.tenants.api_base import TenantApi

_TAGS = ["alerts"]


class ChannelListApi(TenantApi):
    """Channels of a tenant."""

    permissions: ClassVar = {"GET": "alert.view", "POST": "alert.manage"}
    pagination_class: type[CursorPagination] = CursorPagination

    @extend_schema(operation_id="alert_channel_list", responses=ChannelSerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str) -> Response:
        """List where alerts are sent, oldest first. E-mail to owners, admins and operators is there from the start."""
        return paginated(self, request, channel_list(self.tenant), ChannelSerializer)

    @extend_schema(
        operation_id="alert_channel_create",
        request=ChannelCreateSerializer,
        responses={201: ChannelCreatedSerializer},
        tags=_TAGS,
    )
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Make a channel. A webhook's secret is in this answer and nowhere else.

        A webhook gets JSON with `Highwater-Timestamp` and `Highwater-Signature`: `v1=` and the HMAC-SHA256, in hex, of the
        timestamp, a full stop and the body. Any 2xx answer within 20 s takes the message; others are tried again for 75 minutes.
        """
        form = ChannelCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        channel, secret = channel_create(actor=self.actor, tenant=self.tenant, **form.validated_data)
        return Response(
            {**ChannelSerializer(channel).data, "secret": secret}, status=201, headers={"Location": channel.path}
        )


class ChannelDetailApi(TenantApi):
    """One channel."""

    permissions: ClassVar = {"GET": "alert.view", "PATCH": "alert.manage", "DELETE": "alert.manage"}
    problems: ClassVar = {"DELETE": (409,)}

    @extend_schema(operation_id="alert_channel_get", responses=ChannelSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, channel_id: uuid.UUID) -> Response:
        """Return the channel."""
        return Response(ChannelSerializer(channel_get(self.tenant, channel_id)).data)

    @extend_schema(
        operation_id="alert_channel_update", request=ChannelUpdateSerializer, responses=ChannelSerializer, tags=_TAGS
    )
    def patch(self, request: Request, tenant: str, channel_id: uuid.UUID) -> Response:
        """Switch it on or off, or to critical alerts only."""
        form = ChannelUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        channel = channel_update(actor=self.actor, channel=channel_get(self.tenant, channel_id), **form.validated_data)
        return Response(ChannelSerializer(channel).data)

    @extend_schema(operation_id="alert_channel_delete", responses={204: None}, tags=_TAGS)
    def delete(self, request: Request, tenant: str, channel_id: uuid.UUID) -> Response:
        """Delete it with its log. E-mail can only be switched off."""
        channel_delete(actor=self.actor, channel=channel_get(self.tenant, channel_id))
        return Response(status=204)


class ChannelTestApi(TenantApi):
    """A message that only shows that messages arrive."""

    permissions: ClassVar = {"POST": "alert.manage"}

    @extend_schema(operation_id="alert_channel_test", request=None, responses={202: DeliverySerializer}, tags=_TAGS)
    @idempotent
    def post(self, request: Request, tenant: str, channel_id: uuid.UUID) -> Response:
        """Send a test; its delivery says how it went."""
        delivery = channel_test(actor=self.actor, channel=channel_get(self.tenant, channel_id))
        return Response(DeliverySerializer(delivery).data, status=202, headers={"Location": delivery.path})


class DeliveryListApi(TenantApi):
    """What was sent."""

    permissions: ClassVar = {"GET": "alert.view"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="alert_delivery_list", responses=DeliverySerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str) -> Response:
        """List the messages of the last 90 days, newest first."""
        return paginated(self, request, delivery_list(self.tenant), DeliverySerializer)


class DeliveryDetailApi(TenantApi):
    """One message."""

    permissions: ClassVar = {"GET": "alert.view"}

    @extend_schema(operation_id="alert_delivery_get", responses=DeliverySerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, delivery_id: uuid.UUID) -> Response:
        """Return the message and how its tries went."""
        return Response(DeliverySerializer(delivery_get(self.tenant, delivery_id)).data)


class DeliveryAgainApi(TenantApi):
    """A message once more."""

    permissions: ClassVar = {"POST": "alert.manage"}

    @extend_schema(operation_id="alert_delivery_again", request=None, responses={202: DeliverySerializer}, tags=_TAGS)
    @idempotent
    def post(self, request: Request, tenant: str, delivery_id: uuid.UUID) -> Response:
        """Send the same to the same channel, as a new delivery."""
        delivery = delivery_again(actor=self.actor, delivery=delivery_get(self.tenant, delivery_id))
        return Response(DeliverySerializer(delivery).data, status=202, headers={"Location": delivery.path})
