"""The OpenAPI description's common parts: the problem object on every operation, and the Idempotency-Key header."""

import re
from typing import Any, TypeAlias

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework.serializers import Serializer

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
        if self.method == "POST":
            parameters.append(
                OpenApiParameter(
                    "Idempotency-Key",
                    {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
                    OpenApiParameter.HEADER,
                    description="The same key and request within 24 h get the stored answer.",
                )
            )
        return parameters

    def get_summary(self) -> str:
        """Return the first sentence of the description, up to its first pause: a line for the reference's list."""
        described = " ".join(self.get_description().split())
        return re.split(r"[.:;]", described, maxsplit=1)[0]

    def get_tags(self) -> list[str]:
        """Group by the last collection of the path: `/tenants/{tenant}/clusters/` belongs to `clusters`."""
        names = [part for part in self.path.removeprefix("/api/v1/").split("/") if part and not part.startswith("{")]
        return names[-1:] or ["api"]


# By component: what a request may look like. Each is valid by its own schema, which a test holds.
EXAMPLES: dict[str, dict[str, Any]] = {
    "TenantCreateRequest": {"slug": "acme", "name": "Acme Trading"},
    "InvitationCreateRequest": {"email": "someone@example.com", "role": "developer"},
    "ApiTokenCreateRequest": {"name": "deployment", "role": "operator", "scopes": ["read", "manage"], "days": 90},
    "ClusterCreateRequest": {"slug": "orders", "mode": "sync", "groups": 1, "replicas": 2},
    "ClusterGrowRequest": {"by": "replica"},
    "CredentialCreateRequest": {"name": "checkout service", "default_topic_perm": "PUB", "default_group_perm": "DENY"},
    "TopicCreateRequest": {"name": "payments", "read_queue_nums": 8, "write_queue_nums": 8, "message_type": "NORMAL"},
    "TestMessageRequest": {"body": "hello", "tags": "greeting", "keys": ["order-1"], "properties": {"colour": "blue"}},
}

# By operation: (status, operation that follows, its parameter, where that is in the answer). Parameters of the path are passed on.
_FOLLOWING = [
    ("tenant_create", "201", "tenant_get", "tenant", "$response.body#/slug"),
    ("topic_create", "201", "topic_get", "topic", "$response.body#/name"),
    ("topic_create", "201", "message_send", "topic", "$response.body#/name"),
    ("credential_create", "201", "credential_get", "access_key", "$response.body#/access_key"),
    ("credential_create", "201", "credential_delete", "access_key", "$response.body#/access_key"),
    ("token_issue", "201", "token_get", "token_id", "$response.body#/id"),
    ("token_issue", "201", "token_revoke", "token_id", "$response.body#/id"),
    ("invitation_create", "201", "invitation_get", "invitation_id", "$response.body#/id"),
    ("invitation_create", "201", "invitation_revoke", "invitation_id", "$response.body#/id"),
]


def add_examples(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: an example for each request that has one, and that a test message has one body of two."""
    schemas = result["components"]["schemas"]
    for name, example in EXAMPLES.items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    if message := schemas.get("TestMessageRequest"):
        message["oneOf"] = [{"required": ["body"]}, {"required": ["body_base64"]}]
    return result


def add_links(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: what an answer leads to, as OpenAPI's links: a 202 to its operation, a new row to its own address."""
    paths = {
        operation["operationId"]: path for path, methods in result["paths"].items() for operation in methods.values()
    }
    for path, methods in result["paths"].items():
        for operation in methods.values():
            accepted = operation["responses"].get("202", {}).get("content", {}).get("application/json", {})
            if accepted.get("schema", {}).get("$ref", "").endswith("/Operation") and "operation_get" in paths:
                _link(operation, "202", "operation_get", {"operation_id": "$response.body#/id"})
            for before, status, after, parameter, where in _FOLLOWING:
                if before == operation["operationId"] and after in paths:
                    passed = {name: f"$request.path.{name}" for name in re.findall(r"{(\w+)}", path)}
                    _link(operation, status, after, {**passed, parameter: where})
    return result


def _link(operation: dict[str, Any], status: str, after: str, parameters: dict[str, str]) -> None:
    links = operation["responses"][status].setdefault("links", {})
    links[after] = {"operationId": after, "parameters": parameters}


def add_problems(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: every operation may answer with a problem object."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM_SCHEMA
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"]["default"] = {
                "description": "A problem",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            }
    return result
