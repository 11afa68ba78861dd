"""Holds each answer of the REST API against its description: a status or header that is not in there fails the test."""

from __future__ import annotations

import re

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.api import Api
from controlplane.common.description import api_description

# Whether these are sent depends on the answer alone; the rate limit's need a cache, too.
_TELLING = ("Location", "ETag", "Retry-After", "WWW-Authenticate", "Deprecation", "Sunset")


def differences(method: str, route: str, response: Response) -> list[str]:
    """Return what an answer has and its description has not, or the other way about. `route` is as in Django's urls."""
    path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", route)
    operation = api_description()["paths"].get(path, {}).get(method.lower())
    if operation is None:  # HEAD, OPTIONS, and methods that the address does not have
        return []
    described = operation["responses"].get(str(response.status_code))
    if described is None:
        return [f"{method} {path} answers {response.status_code}, which its description does not have: {response.data}"]
    if "$ref" in described:
        described = api_description()["components"]["responses"][described["$ref"].rpartition("/")[2]]
    headers = described.get("headers", {})
    return [
        f"{method} {path} {response.status_code}: {name} is {'not described' if name in response.headers else 'missing'}"
        for name in _TELLING
        if (name in response.headers) != (name in headers)
    ]


def as_described(view: Api, request: Request, response: Response) -> None:
    """Raise AssertionError unless the answer is described."""
    match = request._request.resolver_match
    if match is not None:
        found = differences(str(request.method), match.route, response)
        assert not found, "; ".join(found)
