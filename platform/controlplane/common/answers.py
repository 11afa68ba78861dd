"""Which problems an operation answers with, and which headers its answers have: read off its view, for the OpenAPI description.

What every view does tells most of it: it asks who calls, what they may do and how often, and reads the request. What a view's
own work adds, such as 409 for a state that does not admit it, the view names in `problems`. The tests hold each answer against
the description: one that is not in it fails them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.negotiation import DefaultContentNegotiation

if TYPE_CHECKING:  # REST framework's settings import `schema`, and so this module, while that one is being imported
    from controlplane.common.api import Api

# By status: the component's name, and what it means wherever it is answered.
PROBLEMS: dict[int, tuple[str, str]] = {
    400: ("BadRequest", "The address, a parameter or the body is not valid; `errors` names the members."),
    401: ("Unauthorized", "There is no token and no session, or the token is unknown, revoked or expired."),
    403: (
        "Forbidden",
        "The caller may not do this, or has to give the second factor first; of a session: the CSRF token.",
    ),
    404: ("NotFound", "There is no such thing, or the caller may not know of it."),
    406: ("NotAcceptable", "The `Accept` header leaves out every form that the answer has."),
    409: ("Conflict", "The state does not admit this, a name is taken or a limit is reached; `code` says which."),
    412: ("PreconditionFailed", "The resource changed since it was read."),
    413: ("ContentTooLarge", "The body is larger than 8 MiB."),
    415: ("UnsupportedMediaType", "The body is no `application/json`."),
    422: (
        "Unprocessable",
        "The Idempotency-Key was used with another request, or what is asked can't be done as things are.",
    ),
    429: ("TooManyRequests", "The limit of requests is reached; `Retry-After` says when to ask again."),
    500: ("InternalError", "Something broke on our side; the log has it under `request_id`."),
    502: ("BrokerRefused", "A broker or name server of the cluster answered with an error."),
    503: ("Unavailable", "The cluster, or what runs it, does not answer; whether it acted is unknown."),
}

# By name: what the headers of answers say.
HEADERS: dict[str, dict[str, Any]] = {
    "RateLimit": {
        "description": "What is left of the caller's limit: `r` requests within `t` seconds"
        " (draft-ietf-httpapi-ratelimit-headers-10). Left out while requests are not counted.",
        "schema": {"type": "string", "pattern": r'^"api";r=\d+;t=\d+$'},
        "example": '"api";r=1187;t=42',
    },
    "RateLimit-Policy": {
        "description": "The caller's limit: `q` requests within `w` seconds.",
        "schema": {"type": "string", "pattern": r'^"api";q=\d+;w=\d+$'},
        "example": '"api";q=1200;w=60',
    },
    "Retry-After": {
        "description": "Seconds until the next request is answered.",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
        "example": 18,
    },
    "WWW-Authenticate": {
        "description": "How to say who calls.",
        "required": True,
        "schema": {"type": "string"},
        "example": 'Bearer realm="highwater"',
    },
    "Location": {
        "description": "The address of what was made; of long work, of the operation to ask for until it has ended.",
        "required": True,
        "schema": {"type": "string", "format": "uri-reference"},
        "example": "/api/v1/operations/6f0a2a53-6d0c-4a5c-9f3f-0b1f3f0a4c11/",
    },
    "ETag": {
        "description": "Names this state of the resource, for `If-Match` and `If-None-Match`.",
        "required": True,
        "schema": {"type": "string", "pattern": r'^W/"[0-9a-f]{32}"$'},
        "example": 'W/"0f343b0931126a20f133d67c2b018a3b"',
    },
    "Idempotent-Replayed": {
        "description": "`true` when this is the stored answer to an earlier request with the same Idempotency-Key.",
        "schema": {"type": "string", "enum": ["true"]},
        "example": "true",
    },
    "X-Request-ID": {
        "description": "The request's name in our logs and in the audit trail; the caller's own where it sent one.",
        "required": True,
        "schema": {"type": "string"},
        "example": "b7f1e3a0c5d94d0f8f6f2f5f0f4f9b11",
    },
    "Deprecation": {
        "description": "Since when this method is deprecated (RFC 9745).",
        "required": True,
        "schema": {"type": "string", "pattern": r"^@\d+$"},
        "example": "@1798761600",
    },
    "Sunset": {
        "description": "From when on this method answers no more (RFC 8594).",
        "required": True,
        "schema": {"type": "string"},
        "example": "Thu, 01 Jul 2027 00:00:00 GMT",
    },
}
_ALWAYS = ("RateLimit", "RateLimit-Policy", "X-Request-ID")
_OF_PROBLEMS = {401: ("WWW-Authenticate",), 429: ("Retry-After",)}


def is_idempotent(view: Api, method: str) -> bool:
    """Return whether the method takes an Idempotency-Key."""
    return bool(getattr(getattr(view, method.lower(), None), "takes_idempotency_key", False))


def problem_statuses(view: Api, method: str, path: str, takes_body: bool) -> list[int]:
    """Return the statuses of the problem objects that a method answers with, in ascending order."""
    changes = method not in ("GET", "HEAD", "OPTIONS")
    found = {400, 401, 500, *view.problems.get(method, ())}  # 400: a parameter that it does not have
    if changes or method in getattr(
        view, "permissions", {}
    ):  # what changes something asks a session for its CSRF token
        found.add(403)
    if "{" in path or view.is_hidden:
        found.add(404)
    if view.content_negotiation_class is DefaultContentNegotiation:
        found.add(406)
    if method in ("POST", "PUT", "PATCH"):
        found.add(413)
    if takes_body:
        found.add(415)
    if is_idempotent(view, method):
        found |= {409, 422}
    if view.throttle_classes:
        found.add(429)
    return sorted(found)


def answer_components() -> dict[str, dict[str, Any]]:
    """Return `responses` and `headers` of the description's components."""
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses = {
        name: {
            "description": text,
            "headers": header_references((*_ALWAYS, *_OF_PROBLEMS.get(status, ()))),
            "content": problem,
        }
        for status, (name, text) in PROBLEMS.items()
    }
    return {"responses": responses, "headers": HEADERS}


def problem_references(statuses: list[int]) -> dict[str, Any]:
    """Return an operation's answers with these statuses."""
    return {str(status): {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"} for status in statuses}


def success_headers(view: Api, method: str, status: str) -> dict[str, Any]:
    """Return the headers of a method's answer that is no problem."""
    names = [*_ALWAYS]
    if status in ("201", "202") and not view.makes_unaddressed:
        names.append("Location")
    if method in view.tagged:
        names.append("ETag")
    if is_idempotent(view, method):
        names.append("Idempotent-Replayed")
    if method in view.deprecations:
        names += ["Deprecation", "Sunset"]
    return header_references(names)


def header_references(names: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return the headers of an answer, as references to their descriptions."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
