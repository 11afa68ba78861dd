"""Each act of the console as code that does the same by the REST API: a curl line, a Python program, a command of `highwater`."""

import functools
import json
import pprint
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.forms import Form
from django.http import HttpRequest, HttpResponse, JsonResponse

from controlplane.common.description import api_description
from highwater.api_commands import Command, command_line, commands_of
from highwater.printable import printable_json


@dataclass(frozen=True)
class Act:
    """One request. `path` is an API path, with its query; the token comes from $HIGHWATER_TOKEN in each of its forms."""

    method: str
    path: str
    body: dict[str, Any] | None = None

    @property
    def _address(self) -> str:
        return f"{settings.HIGHWATER_PUBLIC_URL.rstrip('/')}{self.path}"

    @property
    def curl(self) -> str:
        """A command for a POSIX shell."""
        lines = ["curl" if self.method == "GET" else f"curl -X {self.method}"]
        lines.append('  -H "Authorization: Bearer $HIGHWATER_TOKEN"')
        if self.body is not None:
            lines.append("  -H 'Content-Type: application/json'")
            lines.append(f"  -d {shlex.quote(printable_json(self.body))}")
        lines.append(f"  {shlex.quote(self._address)}")
        return " \\\n".join(lines)

    @property
    def python(self) -> str:
        """A whole program, for Python with httpx."""
        lines = [
            "import os",
            "",
            "import httpx",
            "",
            "answer = httpx.request(",
            f"    {self.method!r},",
            f"    {self._address!r},",
            """    headers={"Authorization": f"Bearer {os.environ['HIGHWATER_TOKEN']}"},""",
        ]
        if self.body is not None:
            written = pprint.pformat(self.body, sort_dicts=False, width=72)
            lines.append(f"    json={written},".replace("\n", "\n" + " " * len("    json=")))
        return "\n".join([*lines, ")", "answer.raise_for_status()", "print(answer.text)"])

    @property
    def command(self) -> str:
        """A command of `highwater`, for a POSIX shell."""
        path = self.path.partition("?")[0]
        found = next(each for pattern, each in _commands() if each.method == self.method and pattern.fullmatch(path))
        return command_line(found, self.path, self.body)

    def as_json(self) -> dict[str, str]:
        """Return its three forms by name, as console.js puts them into the page."""
        return {"curl": self.curl, "python": self.python, "command": self.command}


def act_of(method: str, path: str, body: Mapping[str, Any] | None = None) -> Act:
    """Return an act of the API. The body is what JSON makes of it: an enumeration's member is its value."""
    return Act(method, path.removesuffix("?"), None if body is None else json.loads(json.dumps(body)))


@functools.cache
def _commands() -> list[tuple[re.Pattern[str], Command]]:
    """Return the API's operations with the pattern of their paths; paths without places come first."""
    commands = sorted(commands_of(api_description()), key=lambda command: command.path.count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", command.path)), command) for command in commands]


def form_values(form: Form) -> dict[str, Any]:
    """Return what a form holds by field, valid or not: its initial values while nothing was typed. Empty ones are left out."""
    if form.is_bound:
        form.is_valid()  # reads what was typed, once: errors that a service added stay
        found = {name: form.cleaned_data.get(name, form[name].data) for name in form.fields}
    else:
        found = {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def wants_code(request: HttpRequest) -> bool:
    """Return whether a form asks only for the code of what was typed so far: console.js does while that is open."""
    return request.headers.get("X-Wants") == "curl"


def code_answer(act: Act) -> HttpResponse:
    """Return the act in its forms."""
    return JsonResponse(act.as_json())
