"""The OpenAPI description's common parts: each operation's problems and headers, the examples, and the Idempotency-Key header."""

import re
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework.serializers import Serializer

from controlplane.common.answers import (
    answer_components,
    is_idempotent,
    problem_references,
    problem_statuses,
    success_headers,
)

if TYPE_CHECKING:  # REST framework's settings import this module while that one is being imported
    from controlplane.common.api import Api

Parameters: TypeAlias = list[OpenApiParameter | Serializer[Any] | type[Serializer[Any]]]

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem object.",
    "required": ["type", "title", "status", "detail", "instance", "code", "errors", "request_id"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string", "description": "A stable word for programs."},
        "hint": {"type": "string", "description": "What to do next; may be empty."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message", "code"],
                "properties": {
                    "field": {"type": "string"},
                    "message": {"type": "string"},
                    "code": {"type": "string"},
                },
            },
        },
        "request_id": {"type": "string"},
    },
}


class ApiSchema(AutoSchema):
    """DEFAULT_SCHEMA_CLASS."""

    def get_override_parameters(self) -> Parameters:
        parameters: Parameters = list(super().get_override_parameters())
        if is_idempotent(cast("Api", self.view), self.method):
            parameters.append(
                OpenApiParameter(
                    "Idempotency-Key",
                    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
                    OpenApiParameter.HEADER,
                    description="The same key and request within 24 h get the stored answer.",
                )
            )
        return parameters

    def get_operation(self, path: str, path_regex: str, path_prefix: str, method: str, registry: Any) -> Any:
        """Return the operation with the problems that it answers and the headers of its answers; None for one that is left out."""
        operation = super().get_operation(path, path_regex, path_prefix, method, registry)
        if operation is not None:
            view = cast("Api", self.view)
            for status, response in operation["responses"].items():
                response["headers"] = success_headers(view, method, status)
            statuses = problem_statuses(view, method, path, "requestBody" in operation)
            operation["responses"] |= problem_references(statuses)
        return operation

    def get_summary(self) -> str:
        """Return the first sentence of the description, up to its first pause: a line for the reference's list."""
        described = " ".join(self.get_description().split())
        # A dot within a name, as in `stopped.purge_at`, is no pause.
        return re.split(r"[.:;](?=\s|$)", described, maxsplit=1)[0]

    def is_deprecated(self) -> bool:
        """Return whether the view says that this method will end."""
        return self.method in getattr(self.view, "deprecations", {})

    def get_tags(self) -> list[str]:
        """Group by the last collection of the path: `/tenants/{tenant}/clusters/` belongs to `clusters`."""
        names = [part for part in self.path.removeprefix("/api/v1/").split("/") if part and not part.startswith("{")]
        return names[-1:] or ["api"]


# By component: what a request may look like. Each is valid by its own schema, which a test holds.
EXAMPLES: dict[str, dict[str, Any]] = {
    "IncidentCreateRequest": {
        "title": "Changes of clusters are slow",
        "text": "We look into it.",
        "impact": "degraded",
        "parts": ["workers"],
    },
    "IncidentUpdateCreateRequest": {"state": "resolved", "text": "A worker was replaced."},
    "MaintenancePlanRequest": {
        "title": "New disks",
        "text": "Each cluster is unavailable for a few seconds.",
        "parts": ["name_servers"],
        "starts_at": "2026-12-05T02:00:00Z",
        "ends_at": "2026-12-05T04:00:00Z",
    },
    "TenantCreateRequest": {"slug": "acme", "name": "Acme Trading"},
    "InvitationCreateRequest": {"email": "someone@example.com", "role": "developer"},
    "ApiTokenCreateRequest": {"name": "deployment", "role": "operator", "scopes": ["read", "manage"], "days": 90},
    "ClusterCreateRequest": {"slug": "orders", "mode": "sync", "groups": 1, "replicas": 2},
    "ClusterGrowRequest": {"by": "replica"},
    "PatchedConfigurationUpdateRequest": {"values": {"fileReservedTime": 96}, "dry_run": True},
    "RollingRequestRequest": {"dry_run": True},
    "CredentialCreateRequest": {"name": "checkout service", "default_topic_perm": "PUB", "default_group_perm": "DENY"},
    "PatchedClusterUpdateRequest": {"name": "Orders of the shop"},
    "PatchedTopicUpdateRequest": {"read_queue_nums": 16, "write_queue_nums": 16},
    "DrillRequestRequest": {"fault": "kill", "dry_run": True},
    "DrillWindowCreateRequest": {
        "group": "broker-a",
        "opens_at": "2026-12-05T02:00:00Z",
        "closes_at": "2026-12-05T04:00:00Z",
        "confirm": "broker-a",
    },
    "ModeRequest": {"mode": "sync", "replicas": 2, "dry_run": True},
    "OffsetResetCreateRequest": {"topic": "payments", "target": "latest", "dry_run": True},
    "ReplayCreateRequest": {"rate_per_second": 10, "stop_after_failures": 10},
    "ThresholdsRequest": {"lag_messages": 10_000, "growth_per_second": 50.0},
    "PatchedRuleSetRequest": {"threshold": 80.0, "duration_s": 300},
    "ChannelCreateRequest": {"kind": "webhook", "name": "On call", "address": "https://alerts.example.com/highwater"},
    "PatchedChannelUpdateRequest": {"critical_only": True},
    "BudgetSetRequest": {"amount": "250.00", "currency": "EUR"},
    "PlanCreateRequest": {"slug": "standard", "name": "Standard", "currency": "EUR"},
    "PatchedPlanUpdateRequest": {"name": "Standard, since 2027"},
    "PriceCreateRequest": {
        "per_million_units": "1.20",
        "per_million_units_out": "0.60",
        "per_gib_month_stored": "0.08",
        "valid_from": "2027-01-01T00:00:00Z",
    },
    "RatesRequest": {"per_million_units": "1.10", "per_million_units_out": "0.55", "per_gib_month_stored": "0.08"},
    "SubscriptionSetRequest": {"tenant": "acme", "plan": "standard", "valid_from": "2027-01-01T00:00:00Z"},
    "PatchedMembershipUpdateRequest": {"role": "developer"},
    "TopicCreateRequest": {"name": "payments", "read_queue_nums": 8, "write_queue_nums": 8, "message_type": "NORMAL"},
    # `message Order { string id = 1; int64 cents = 2; }` of the package `shop`.
    "TopicSchemaSetRequest": {
        "message": "shop.Order",
        "descriptor_set": "Cj8KC29yZGVyLnByb3RvEgRzaG9wIiIKBU9yZGVyEgoKAmlkGAEgASgJEg0KBWNlbnRzGAIgASgDYgZwcm90bzM=",
    },
    "TestMessageRequest": {"body": "hello", "tags": "greeting", "keys": ["order-1"], "properties": {"colour": "blue"}},
    "ResendRequest": {"body": "hello again", "tags": "corrected"},
    "InvitationAnswerRequest": {"secret": "Zt3bHc0vWq8yJr5nLx1mPd7kTf2sGu9a"},
    "AgreedEndSetRequest": {"until": "2026-12-05T02:00:00Z", "reason": "The disk with the later records is lost."},
    "JobRunCreateRequest": {
        "job": "usage_billing",
        "range_from": "2026-12-01T00:00:00Z",
        "range_to": "2026-12-02T00:00:00Z",
    },
    "LeftoversClearRequest": {"delete_data": False},
    "OperationFailRequest": {"reason": "Its host is gone. Please create the cluster again."},
    "LimitSetRequest": {"value": 20, "reason": "Agreed with the customer."},
    "PatchedTenantUpdateRequest": {"name": "Acme Trading", "time_zone": "Asia/Shanghai"},
    "SilenceCreateRequest": {
        "cluster": "orders",
        "kind": "leader_missing",
        "until": "2026-12-05T04:00:00Z",
        "reason": "A drill",
    },
    "AcknowledgeRequest": {"note": "The host gets a new disk."},
    "PutBackRequest": {"dry_run": True},
    "UndoRequest": {"dry_run": True},
    "CredentialRotateRequest": {"overlap_hours": 24},
    "PatchedCredentialUpdateRequest": {"quota_messages_per_second": 500, "quota_held_pulls": None},
    "CutDoneRequestRequest": {"done": True, "note": "All of it was sent again."},
    "ResendCreateRequest": {"rate_per_second": 10, "stop_after_failures": 10, "positions": [0, 4096]},
    "PreferRequest": {"replica": 1, "dry_run": True},
    "PromoteRequest": {"candidate": 1, "dry_run": True},
    "RecoverRequest": {"replica": 1, "confirm": "broker-a", "dry_run": True},
    "ReplaceRequest": {"replica": 2, "dry_run": True},
    "ResizeRequest": {"replicas": 3, "dry_run": True},
    "SwitchoverRequest": {"candidate": 1, "dry_run": True},
    "TransferRequest": {"target": 1, "dry_run": True},
    "ClusterPurgeRequest": {"confirm": "orders"},
    "AuthorityRenewRequest": {"step": "trust_next", "overlap_days": 30},
    "ClusterSuspendRequest": {"reason": "Not needed before Monday."},
    "MessageConsumeRequest": {"group": "billing", "client_id": "10.0.0.7@4711"},
    "MaskingRuleCreateRequest": {"topic": "payments*", "part": "body", "pattern": "$.card.number"},
    "ServiceAccountCreateRequest": {"name": "deployment", "description": "Runs in the build farm", "role": "operator"},
    "PatchedServiceAccountUpdateRequest": {"disabled": True},
}


# What a reset to this target needs, and what that is.
_RESET_NEEDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("time", "at", {"type": "string"}),
    ("shift", "shift", {"type": "integer", "not": {"const": 0}}),
    ("group", "source_group", {"type": "string", "minLength": 1}),
)


def add_examples(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: an example for each request that has one, and that a message has one body of two."""
    schemas = result["components"]["schemas"]
    for name, example in EXAMPLES.items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    if message := schemas.get("TestMessageRequest"):
        message["oneOf"] = [{"required": ["body"]}, {"required": ["body_base64"]}]
    if resend := schemas.get("ResendRequest"):
        resend["not"] = {"required": ["body", "body_base64"]}
    if reset := schemas.get("OffsetResetCreateRequest"):
        reset["allOf"] = [
            {
                "if": {"properties": {"target": {"const": target}}, "required": ["target"]},
                "then": {"required": [member], "properties": {member: shape}},
            }
            for target, member, shape in _RESET_NEEDS
        ]
    return result


# What changes something is to name something.
_AT_LEAST_ONE = (
    "PatchedTenantUpdateRequest",
    "PatchedClusterUpdateRequest",
    "PatchedCredentialUpdateRequest",
    "PatchedRuleSetRequest",
)
# drf-spectacular's of a decimal number, which takes "", "-" and "." as well.
_DECIMAL = re.compile(r"\^-\?\\d\{0,(\d+)\}\(\?:\\\.\\d\{0,(\d+)\}\)\?\$")


def add_refusals(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: what the shapes of requests refuse, and drf-spectacular does not say of them."""
    for name, shape in result["components"]["schemas"].items():
        if not name.endswith("Request") or "properties" not in shape:
            continue
        shape.setdefault("additionalProperties", False)  # strictness.py
        if name in _AT_LEAST_ONE:
            shape["minProperties"] = 1
        for member in shape["properties"].values():
            if decimal := _DECIMAL.fullmatch(member.get("pattern", "")):
                digits, places = decimal.groups()
                member["pattern"] = rf"^-?(?:\d{{1,{digits}}}(?:\.\d{{0,{places}}})?|\.\d{{1,{places}}})$"
    return result


def add_problems(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: what the operations' references to problems and headers lead to."""
    components = result.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = PROBLEM_SCHEMA
    components |= answer_components()
    return result
