"""Lists as files for spreadsheets. Names and bodies are typed by tenants and clients: none is a formula there."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.http import HttpResponse

from controlplane.common.downloads import as_download
from controlplane.common.spreadsheets import spreadsheet_text


def csv_response(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> HttpResponse:
    """Return the rows as a file to download. What is not known (None) is empty; times are in RFC 3339."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    response = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    return as_download(response, name, "csv")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, int):
        return str(value)  # a number below zero is no formula
    return spreadsheet_text(str(value))
