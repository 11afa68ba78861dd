"""Unknown members and query parameters are refused: a misspelled `dry_run` or `tag` must not change or send something else."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any, cast

from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.utils import html
from rest_framework.views import APIView

from controlplane.common.errors import FieldError, InvalidInput

DRY_RUN = OpenApiParameter("dry_run", bool, description="Only say what would happen: 200 with the preview.")
_PAGE = frozenset({"cursor", "limit"})


class Shape(serializers.Serializer[Any]):
    """The root of all shapes of the API, of requests and answers alike."""

    def to_internal_value(self, data: Any) -> Any:
        """Validate; raises ValidationError that also names each member which the shape doesn't have."""
        # Query parameters are looked at by `refuse_unknown_parameters`: pages have some beside a shape's.
        if not isinstance(data, Mapping) or html.is_html_input(data):
            return super().to_internal_value(data)
        known = [name for name, field in self.fields.items() if not field.read_only]
        errors: dict[str, Any] = {
            str(name): serializers.ErrorDetail(_unknown("member", str(name), known), "unknown_member")
            for name in data
            if name not in known
        }
        if not errors:
            return super().to_internal_value(data)
        try:
            super().to_internal_value(data)
        except serializers.ValidationError as error:
            if isinstance(error.detail, Mapping):
                errors |= error.detail
        raise serializers.ValidationError(errors)


class MomentField(serializers.DateTimeField):
    """A moment that has others before and after it in any zone, as a span of time needs."""

    def to_internal_value(self, value: Any) -> datetime:
        """Raise ValidationError for the years at the calendar's ends, too."""
        moment: datetime = super().to_internal_value(value)
        if not 1 < moment.year < 9999:
            raise serializers.ValidationError("Use a year from 2 to 9998.", "out_of_range")
        return moment


class DryRunShape(Shape):
    """A request that can be tried: `dry_run` in the body says the same as in the query."""

    dry_run = serializers.BooleanField(required=False, default=False, help_text="Only say what would happen.")


def is_dry_run(request: Request, values: dict[str, Any]) -> bool:
    """Take `dry_run` out of a validated DryRunShape; return whether it or the query asks for a preview only.

    Raises InvalidInput for a query parameter that is neither true nor false.
    """
    asked = bool(values.pop("dry_run", False))
    return flag_of(request, "dry_run", default=False) or asked


def flag_of(request: Request, name: str, *, default: bool) -> bool:
    """Return a query parameter that is true or false; raises InvalidInput for another one."""
    text = request.query_params.get(name, str(default)).lower()
    if text not in ("true", "false", "1", "0"):
        raise InvalidInput.for_field(name, "Use true or false.", "invalid")
    return text in ("true", "1")


def refuse_unknown_parameters(view: APIView, request: Request) -> None:
    """Raise InvalidInput when the query has a parameter that the operation's description doesn't have."""
    handler = getattr(view, str(request.method).lower(), None)
    schema = getattr(handler, "kwargs", {}).get("schema")
    if schema is None:
        return
    known = _parameters(cast(Any, type(view)), str(request.method), schema)
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise InvalidInput(
            f"This operation has no query parameter {', '.join(unknown)}.",
            errors=tuple(
                FieldError(name, _unknown("parameter", name, sorted(known)), "unknown_parameter") for name in unknown
            ),
        )


def refuse_unknown_body(view: APIView, request: Request) -> None:
    """Raise InvalidInput when a request of an operation that takes no body has members."""
    handler = getattr(view, str(request.method).lower(), None)
    schema = getattr(handler, "kwargs", {}).get("schema")
    is_json = str(request.content_type).startswith("application/json")
    if schema is None or request.method != "POST" or not is_json or _takes_body(cast(Any, type(view)), schema):
        return
    if request.data:
        names = [str(name) for name in request.data] if isinstance(request.data, Mapping) else [""]
        raise InvalidInput(
            "This operation takes no body.",
            errors=tuple(FieldError(name, "This operation takes no body.", "unknown_member") for name in names),
        )


@cache
def _takes_body(view_class: Any, schema_class: Any) -> bool:
    schema = schema_class()
    schema.view, schema.method, schema.path = view_class(), "POST", ""
    schema.view.request, schema.view.kwargs = None, {}
    return schema.get_request_serializer() is not None


@cache
def _parameters(view_class: Any, method: str, schema_class: Any) -> frozenset[str]:
    schema = schema_class()
    schema.view, schema.method, schema.path = view_class(), method, ""
    schema.view.request, schema.view.kwargs = None, {}
    names = set()
    for parameter in schema.get_override_parameters():
        if isinstance(parameter, OpenApiParameter):
            if parameter.location == OpenApiParameter.QUERY:
                names.add(parameter.name)
        else:
            names |= set((parameter() if isinstance(parameter, type) else parameter).fields)
    if isinstance(schema.get_response_serializers(), serializers.ListSerializer):
        names |= _PAGE
    return frozenset(names)


def _unknown(kind: str, name: str, known: list[str]) -> str:
    near = [other for other in known if other.startswith(name[:3]) or name.startswith(other[:3])] if name else []
    if near:
        return f"There is no {kind} {name} here. Did you mean {near[0]}?"
    return f"There is no {kind} {name} here. " + (f"Known: {', '.join(known)}." if known else "There are none.")
