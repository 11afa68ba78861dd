"""REST: what of a tenant's messages is hidden from whom."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.tenants.api_base import TenantApi
from controlplane.topics.masking_rules import (
    masking_rule_create,
    masking_rule_delete,
    masking_rule_get,
    masking_rule_list,
)
from controlplane.topics.serializers import MaskingRuleCreateSerializer, MaskingRuleSerializer

_TAGS = ["messages"]


class MaskingRuleListApi(TenantApi):
    """Masking rules of a tenant."""

    permissions: ClassVar = {"GET": "masking.view", "POST": "masking.manage"}
    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="masking_rule_list", responses=MaskingRuleSerializer(many=True), tags=_TAGS)
    def get(self, request: Request, tenant: str) -> Response:
        """List the rules, newest first."""
        return paginated(self, request, masking_rule_list(self.tenant), MaskingRuleSerializer)

    @extend_schema(
        operation_id="masking_rule_create",
        request=MaskingRuleCreateSerializer,
        responses={201: MaskingRuleSerializer},
        tags=_TAGS,
    )
    @idempotent
    def post(self, request: Request, tenant: str) -> Response:
        """Hide members of JSON bodies, or properties, from roles below one, wherever messages are shown.

        It holds from the next request on. An access key reads messages as they are: rules are of the console and this API.
        """
        form = MaskingRuleCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        rule = masking_rule_create(actor=self.actor, tenant=self.tenant, **form.validated_data)
        return Response(MaskingRuleSerializer(rule).data, status=201, headers={"Location": rule.path})


class MaskingRuleDetailApi(TenantApi):
    """One masking rule."""

    permissions: ClassVar = {"GET": "masking.view", "DELETE": "masking.manage"}

    @extend_schema(operation_id="masking_rule_get", responses=MaskingRuleSerializer, tags=_TAGS)
    def get(self, request: Request, tenant: str, rule_id: uuid.UUID) -> Response:
        """Return the rule."""
        return Response(MaskingRuleSerializer(masking_rule_get(self.tenant, rule_id)).data)

    @extend_schema(operation_id="masking_rule_delete", responses={204: None}, tags=_TAGS)
    def delete(self, request: Request, tenant: str, rule_id: uuid.UUID) -> Response:
        """Show again what the rule hid. Needs a role that sees it."""
        masking_rule_delete(actor=self.actor, rule=masking_rule_get(self.tenant, rule_id))
        return Response(status=204)
