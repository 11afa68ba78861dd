"""Answers that a browser saves as a file."""

from django.http import HttpResponse


def as_download(response: HttpResponse, name: str, kind: str) -> HttpResponse:
    """Have the answer saved as `name` with the suffix `kind`. Of a name, which tenants type, what no file system and no header
    minds is kept.
    """
    safe = "".join(letter for letter in name if letter.isascii() and (letter.isalnum() or letter in "-_."))
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}.{kind}"'
    return response
