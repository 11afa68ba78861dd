"""The OpenAPI description's common parts: the problem object on every operation, and the Idempotency-Key header."""

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

    def get_tags(self) -> list[str]:
        """Group by the last collection of the path: `/tenants/{tenant}/clusters/` belongs to `clusters`."""
        names = [part for part in self.path.removeprefix("/api/v1/").split("/") if part and not part.startswith("{")]
        return names[-1:] or ["api"]


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
