"""OpenAPI's links, derived from the addresses: what an answer names, and what can be done with that next.

POST .../topics/           201  ->  GET, PATCH, DELETE .../topics/{topic}/, POST .../topics/{topic}/messages/
GET  .../topics/           200  ->  the same, of the list's first
GET  .../topics/{topic}/   200  ->  the same, of this one
POST that begins long work 202  ->  GET /operations/{operation_id}/
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# By parameter of a path: the members of an answer that may hold its value, the first that is there; `id` for all others.
_MEMBERS = {
    "tenant": ("slug",),
    "cluster": ("slug",),
    "plan": ("slug",),
    "topic": ("name",),
    "invoice": ("name",),
    "group": ("group", "name"),
    "access_key": ("access_key",),
    "kind": ("kind",),
    "number": ("number",),
}
_OPERATION = "operation_get"
# What follows the address of a collection in the address of one of it, or of something that is done with one.
_ONE_OF_IT = re.compile(r"{(\w+)}/[^{}]*")


@dataclass(frozen=True, slots=True)
class _Act:
    """One operation of the description."""

    method: str
    path: str
    row: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.row["operationId"])

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)


def add_links(result: dict[str, Any], generator: object, request: object, public: bool) -> dict[str, Any]:
    """Postprocessing hook: what an answer leads to, with the parameters of what follows filled in from it."""
    acts = [_Act(method, path, row) for path, methods in result["paths"].items() for method, row in methods.items()]
    schemas = result["components"]["schemas"]
    has_operations = any(act.name == _OPERATION for act in acts)
    for act in acts:
        passed = {name: f"$request.path.{name}" for name in act.parameters}
        for status, response in act.row["responses"].items():
            links = {}
            if status == "202" and _is_operation(response) and has_operations:
                links[_OPERATION] = _link(_OPERATION, {"operation_id": "$response.body#/id"})
            for other, where in _following(act, status, response, schemas, acts):
                new = {} if where is None else {other.parameters[-1]: where}
                links[other.name] = _link(other.name, passed | new)
            if links:
                response["links"] = links
    return result


def _following(
    act: _Act, status: str, response: dict[str, Any], schemas: dict[str, Any], acts: list[_Act]
) -> Iterator[tuple[_Act, str | None]]:
    """Yield what can follow an answer, with where the answer holds its one new parameter; None where it has none."""
    if status == "200" and act.path.endswith("}/") and act.method in ("get", "patch", "put"):
        for other in acts:
            below = act.method == "get" and other.path.startswith(act.path) and other.parameters == act.parameters
            if other is not act and (below or other.path == act.path):
                yield other, None
    for other in acts:
        if not other.path.startswith(act.path):
            continue
        rest = _ONE_OF_IT.fullmatch(other.path, len(act.path))
        where = None if rest is None else _where(act, status, response, schemas, rest[1])
        if where is not None:
            yield other, where


def _where(act: _Act, status: str, response: dict[str, Any], schemas: dict[str, Any], parameter: str) -> str | None:
    """Return the expression for the name of what was made, or of the first of a list; None when the answer has no such name."""
    answer = _properties(_body(response), schemas)
    members = _MEMBERS.get(parameter, ("id",))
    if act.method == "post" and _is_operation(response):  # which does not say the name of what it makes
        return f"$request.body#/{members[0]}" if parameter in _MEMBERS else None
    if act.method == "post" and status in ("201", "202"):
        return next((f"$response.body#/{member}" for member in members if member in answer), None)
    if act.method == "get" and status == "200":
        item = _properties(answer.get("results", {}).get("items", {}), schemas)
        return next((f"$response.body#/results/0/{member}" for member in members if member in item), None)
    return None


def _body(response: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = response.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def _is_operation(response: dict[str, Any]) -> bool:
    return str(_body(response).get("$ref", "")).endswith("/Operation")


def _properties(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a JSON object that is described here or by reference."""
    name = schema.get("$ref", "").rpartition("/")[2]
    described: dict[str, Any] = (schemas[name] if name else schema).get("properties", {})
    return described


def _link(operation_id: str, parameters: dict[str, str]) -> dict[str, Any]:
    return {"operationId": operation_id, "parameters": parameters}
