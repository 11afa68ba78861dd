"""Each action of the console as the curl line that does the same."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.forms import Form
from django.http import HttpRequest, HttpResponse


def curl(method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
    """Return a command for a POSIX shell. `path` is an API path; the token comes from $HIGHWATER_TOKEN."""
    lines = ["curl" if method == "GET" else f"curl -X {method}"]
    lines.append('  -H "Authorization: Bearer $HIGHWATER_TOKEN"')
    if body is not None:
        lines.append("  -H 'Content-Type: application/json'")
        lines.append(f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    lines.append(f"  {shlex.quote(settings.HIGHWATER_PUBLIC_URL.rstrip('/') + path)}")
    return " \\\n".join(lines)


def form_values(form: Form) -> dict[str, Any]:
    """Return what a form holds by field, valid or not: its initial values while nothing was typed. Empty ones are left out."""
    if form.is_bound:
        form.is_valid()  # reads what was typed, once: errors that a service added stay
        found = {name: form.cleaned_data.get(name, form[name].data) for name in form.fields}
    else:
        found = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def wants_curl(request: HttpRequest) -> bool:
    """Return whether a form asks only for the curl line of what was typed so far: console.js does while that is open."""
    return request.headers.get("X-Wants") == "curl"


def curl_answer(command: str) -> HttpResponse:
    """Return the command as text."""
    return HttpResponse(command, content_type="text/plain; charset=utf-8")
