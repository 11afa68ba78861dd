"""REST for operators: plans, versions of their prices, subscriptions."""

import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.accounts.operator_api import OperatorApi
from controlplane.billing.models import Plan, Price, Subscription
from controlplane.billing.plan_services import (
    Rates,
    plan_create,
    plan_update,
    price_add,
    price_remove,
    price_update,
    subscription_set,
)
from controlplane.billing.reproductions import invoice_by_number, reproduction_queue
from controlplane.billing.selectors import plan_get, price_get
from controlplane.billing.serializers import (
    InvoiceReproductionSerializer,
    PlanCreateSerializer,
    PlanSerializer,
    PlanUpdateSerializer,
    PriceCreateSerializer,
    PriceSerializer,
    RatesSerializer,
    SubscriptionSerializer,
    SubscriptionSetSerializer,
)
from controlplane.common.errors import InvalidInput
from controlplane.common.idempotency import idempotent
from controlplane.common.pagination import CursorPagination, NewestFirst, paginated
from controlplane.common.sentences import say
from controlplane.tenants.models import Tenant


class ByBegin(CursorPagination):
    """For versions."""

    ordering = ("-valid_from", "-id")


class PlanListApi(OperatorApi):
    """Plans."""

    @extend_schema(operation_id="plan_list", responses=PlanSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """List the plans."""
        return paginated(self, request, Plan.objects.all(), PlanSerializer)

    @extend_schema(
        operation_id="plan_create", request=PlanCreateSerializer, responses={201: PlanSerializer}, tags=["operator"]
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Create a plan; its prices come next."""
        form = PlanCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        plan = plan_create(actor=self.actor, **form.validated_data)
        return Response(PlanSerializer(plan).data, status=201, headers={"Location": plan.path})


class PlanDetailApi(OperatorApi):
    """One plan."""

    @extend_schema(operation_id="plan_get", responses=PlanSerializer, tags=["operator"])
    def get(self, request: Request, plan: str) -> Response:
        """Return the plan."""
        return Response(PlanSerializer(plan_get(plan)).data)

    @extend_schema(
        operation_id="plan_update", request=PlanUpdateSerializer, responses=PlanSerializer, tags=["operator"]
    )
    def patch(self, request: Request, plan: str) -> Response:
        """Change what it is called, and whether new tenants get it."""
        found = plan_get(plan)
        form = PlanUpdateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        present = {"name": found.name, "description": found.description, "is_default": found.is_default}
        updated = plan_update(actor=self.actor, plan=found, **{**present, **form.validated_data})
        return Response(PlanSerializer(updated).data)


class PriceListApi(OperatorApi):
    """Versions of a plan's prices."""

    pagination_class: type[CursorPagination] = ByBegin

    @extend_schema(operation_id="price_list", responses=PriceSerializer(many=True), tags=["operator"])
    def get(self, request: Request, plan: str) -> Response:
        """List the versions, the latest begin first."""
        return paginated(self, request, Price.objects.filter(plan=plan_get(plan)), PriceSerializer)

    @extend_schema(
        operation_id="price_add", request=PriceCreateSerializer, responses={201: PriceSerializer}, tags=["operator"]
    )
    @idempotent
    def post(self, request: Request, plan: str) -> Response:
        """Add a version from a full UTC hour on; the one before ends there."""
        found = plan_get(plan)
        form = PriceCreateSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values: dict[str, Any] = dict(form.validated_data)
        begin = values.pop("valid_from")
        price = price_add(actor=self.actor, plan=found, valid_from=begin, rates=Rates(**values))
        location = f"{found.path}prices/{price.pk}/"
        return Response(PriceSerializer(price).data, status=201, headers={"Location": location})


class PriceDetailApi(OperatorApi):
    """One version."""

    problems: ClassVar = {"PUT": (409,), "DELETE": (409,)}

    @extend_schema(operation_id="price_get", responses=PriceSerializer, tags=["operator"])
    def get(self, request: Request, plan: str, price_id: uuid.UUID) -> Response:
        """Return the version."""
        return Response(PriceSerializer(price_get(plan_get(plan), price_id)).data)

    @extend_schema(operation_id="price_update", request=RatesSerializer, responses=PriceSerializer, tags=["operator"])
    def put(self, request: Request, plan: str, price_id: uuid.UUID) -> Response:
        """Change a version that has not begun; 409 for one that has."""
        found = price_get(plan_get(plan), price_id)
        form = RatesSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        updated = price_update(actor=self.actor, price=found, rates=Rates(**form.validated_data))
        return Response(PriceSerializer(updated).data)

    @extend_schema(operation_id="price_remove", responses={204: None}, tags=["operator"])
    def delete(self, request: Request, plan: str, price_id: uuid.UUID) -> Response:
        """Remove a version that has not begun; 409 for one that has."""
        price_remove(actor=self.actor, price=price_get(plan_get(plan), price_id))
        return Response(status=204)


class SubscriptionListApi(OperatorApi):
    """Who has which plan."""

    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(operation_id="subscription_list", responses=SubscriptionSerializer(many=True), tags=["operator"])
    def get(self, request: Request) -> Response:
        """List the subscriptions, newest first."""
        return paginated(self, request, Subscription.objects.select_related("tenant", "plan"), SubscriptionSerializer)

    @extend_schema(
        operation_id="subscription_set",
        request=SubscriptionSetSerializer,
        responses={201: SubscriptionSerializer, 204: None},
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Give a tenant a plan from a full UTC hour on, or (plan null) end the one it has."""
        form = SubscriptionSetSerializer(data=request.data)
        form.is_valid(raise_exception=True)
        values = form.validated_data
        tenant = Tenant.objects.filter(slug=values["tenant"]).first()
        if tenant is None:
            raise InvalidInput.for_field("tenant", say("There is no such tenant."), "unknown_tenant")
        plan = None if values["plan"] is None else Plan.objects.filter(slug=values["plan"]).first()
        if plan is None and values["plan"] is not None:
            raise InvalidInput.for_field("plan", say("There is no such plan."), "unknown_plan")
        made = subscription_set(actor=self.actor, tenant=tenant, plan=plan, valid_from=values["valid_from"])
        return Response(status=204) if made is None else Response(SubscriptionSerializer(made).data, status=201)

    makes_unaddressed: ClassVar = True


class InvoiceReproductionListApi(OperatorApi):
    """Bills of one issued invoice, made again from its snapshot."""

    pagination_class: type[CursorPagination] = NewestFirst

    @extend_schema(
        operation_id="invoice_reproduction_list",
        responses=InvoiceReproductionSerializer(many=True),
        tags=["operator"],
    )
    def get(self, request: Request, invoice: str) -> Response:
        """List how often it was made again, and whether that was equal, newest first."""
        return paginated(self, request, invoice_by_number(invoice).reproductions.all(), InvoiceReproductionSerializer)

    @extend_schema(
        operation_id="invoice_reproduce",
        request=None,
        responses={202: InvoiceReproductionSerializer},
        tags=["operator"],
    )
    @idempotent
    def post(self, request: Request, invoice: str) -> Response:
        """Make the bill again from the snapshot that the invoice keeps; the invoice stays as it is."""
        made = reproduction_queue(actor=self.actor, invoice=invoice_by_number(invoice))
        return Response(InvoiceReproductionSerializer(made).data, status=202)

    makes_unaddressed: ClassVar = True
