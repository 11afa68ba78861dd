"""Cursor pagination: `{results, next, previous}`, `limit` 1 to 200, opaque `cursor`."""

from typing import Any, Protocol

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from rest_framework import pagination, serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.common.errors import InvalidInput

LIMIT_MAX = 200


class CursorPagination(pagination.CursorPagination):
    """Oldest first unless a view says otherwise by `ordering`."""

    page_size = 50
    page_size_query_param = "limit"
    max_page_size = LIMIT_MAX
    cursor_query_param = "cursor"
    ordering: str | tuple[str, ...] = ("created_at", "id")

    def get_page_size(self, request: Request) -> int:
        """Return `limit`; raises InvalidInput for anything but 1 to 200."""
        text = request.query_params.get("limit")
        if text is None:
            return self.page_size
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= LIMIT_MAX):
            raise InvalidInput.for_field("limit", f"Use a number from 1 to {LIMIT_MAX}.", "out_of_range")
        return int(text)

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any] | None:
        """Return one page; raises InvalidInput for a cursor that isn't ours."""
        try:
            return super().paginate_queryset(queryset, request, view)
        except (NotFound, ValidationError, ValueError):
            raise InvalidInput.for_field("cursor", "This cursor isn't one of ours.", "invalid_cursor") from None

    def decode_cursor(self, request: Request) -> pagination.Cursor | None:
        """Return the place to go on at; raises ValueError for a text or time that the database can't hold."""
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None:
            position = str(cursor.position)
            moment = parse_datetime(position)  # raises ValueError for the 31st of February
            if "\x00" in position or (moment is not None and not 1 < moment.year < 9999):
                raise ValueError("no row has this position")
        return cursor

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return the parameters as the API's description has them, with the bounds of `limit`."""
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        for parameter in parameters:
            if parameter["name"] == self.page_size_query_param:
                parameter["schema"] |= {"minimum": 1, "maximum": LIMIT_MAX, "default": self.page_size}
        return parameters

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        return {
            "type": "object",
            "required": ["results", "next", "previous"],
            "properties": {"results": schema, "next": link, "previous": link},
        }


class NewestFirst(CursorPagination):
    """For logs and histories."""

    ordering = ("-created_at", "-id")


class ByName(CursorPagination):
    """For names that are unique within the list."""

    ordering = ("name",)


class HasPaginator(Protocol):
    """An API view."""

    pagination_class: type[CursorPagination]


def paginated(
    view: HasPaginator, request: Request, queryset: QuerySet[Any], serializer: type[serializers.Serializer[Any]]
) -> Response:
    """Return one page of a queryset, serialized."""
    paginator = view.pagination_class()
    page = paginator.paginate_queryset(queryset, request)
    return paginator.get_paginated_response(serializer(page, many=True).data)
