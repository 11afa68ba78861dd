"""Each action of the console as the curl line that does the same."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from django.conf import settings


def curl(method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
    """Return a command for a POSIX shell. `path` is an API path; the token comes from $HIGHWATER_TOKEN."""
    lines = ["curl" if method == "GET" else f"curl -X {method}"]
    lines.append('  -H "Authorization: Bearer $HIGHWATER_TOKEN"')
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    lines.append(f"  {shlex.quote(settings.HIGHWATER_PUBLIC_URL.rstrip('/') + path)}")
    return " \\\n".join(lines)
