"""Answers that a browser saves as a file."""

from typing import Any

from django.http import HttpResponse
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


def as_download(response: HttpResponse, name: str, kind: str) -> HttpResponse:
    """Have the answer saved as `name` with the suffix `kind`. Of a name, which tenants type, what no file system and no header
    minds is kept.
    """
    safe = "".join(letter for letter in name if letter.isascii() and (letter.isalnum() or letter in "-_."))
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}.{kind}"'
    return response


class OneAnswer(DefaultContentNegotiation):
    """Whatever the client accepts: a file for those who may have it, a problem object for the others."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type
