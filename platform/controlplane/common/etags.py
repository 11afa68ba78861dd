"""ETag, If-None-Match and If-Match (RFC 9110) for one representation."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from controlplane.common.errors import PreconditionFailed

# A new sample that says the same is no change: else no client could ever change a running cluster by If-Match.
_NO_CHANGE = frozenset({"sampled_at"})


def etag_of(data: Any) -> str:
    """Return the entity tag of a serialized representation. Weak: times of samples don't count."""
    text = json.dumps(_lasting(data), cls=JSONEncoder, sort_keys=True)
    return f'W/"{hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]}"'


def etag_response(request: Request, data: Any) -> Response:
    """Return 200 with the ETag, or 304 when the client has this representation already."""
    etag = etag_of(data)
    if _matches(request.headers.get("If-None-Match"), etag):
        return Response(status=304, headers={"ETag": etag})
    return Response(data, headers={"ETag": etag})


def require_match(request: Request, data: Any) -> None:
    """Raise PreconditionFailed when If-Match is given and the representation has changed."""
    condition = request.headers.get("If-Match")
    if condition is not None and not _matches(condition, etag_of(data)):
        raise PreconditionFailed(
            "The resource changed since it was read.", hint="Read it again, and repeat the change."
        )


def _matches(condition: str | None, etag: str) -> bool:
    if condition is None:
        return False
    if condition.strip() == "*":
        return True
    # Weak comparison for both conditions: what is compared is the resource's state, not its bytes.
    return etag.removeprefix("W/") in {part.strip().removeprefix("W/") for part in condition.split(",")}


def _lasting(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {name: _lasting(value) for name, value in data.items() if name not in _NO_CHANGE}
    if isinstance(data, (list, tuple)):
        return [_lasting(value) for value in data]
    return data
