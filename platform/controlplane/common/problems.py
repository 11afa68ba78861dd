"""Errors as RFC 9457 problem objects (application/problem+json), the same for every way an API request can fail."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, UnreadablePostError
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from controlplane.common.errors import ApplicationError, FieldError, NotFound, TooOften
from controlplane.common.request_context import current_request_context

CONTENT_TYPE = "application/problem+json"


def problem(
    *,
    status: int,
    code: str,
    title: str,
    detail: str,
    instance: str,
    errors: Sequence[FieldError] = (),
    hint: str = "",
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a problem object: RFC 9457's members, and `code`, `errors`, `hint`, `request_id`."""
    return {
        **(extra or {}),
        "type": f"urn:highwater:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
        "hint": hint,
        "errors": [{"field": error.field, "message": error.message, "code": error.code} for error in errors],
        "request_id": current_request_context().request_id,
    }


def problem_exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """REST framework's EXCEPTION_HANDLER. None for what isn't the client's doing: that is answered by
    `server_error`.
    """
    instance = context["request"].path
    headers: dict[str, str] = {}
    match error:
        case ApplicationError():
            body = application_problem(error, instance)
            if isinstance(error, TooOften):
                headers["Retry-After"] = str(error.retry_after_s)
        case Http404():
            body = application_problem(NotFound("There is nothing here."), instance)
        case UnreadablePostError():
            body = problem(
                status=400,
                code="body_unreadable",
                title=HTTPStatus.BAD_REQUEST.phrase,
                detail="The request's body did not come with it, or the connection ended.",
                instance=instance,
            )
        case RequestDataTooBig():
            limit_mib = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2**20
            body = problem(
                status=413,
                code="body_too_large",
                title=HTTPStatus.REQUEST_ENTITY_TOO_LARGE.phrase,
                detail=f"A request's body has at most {limit_mib} MiB.",
                instance=instance,
            )
        case exceptions.ValidationError():
            fields = field_errors(error.detail)
            body = problem(
                status=400,
                code="invalid_input",
                title="Invalid input",
                detail="; ".join(f"{f.field}: {f.message}" if f.field else f.message for f in fields)[:1000],
                instance=instance,
                errors=fields,
            )
        case exceptions.APIException():
            headers = _headers(error)
            codes = error.get_codes()
            body = problem(
                status=error.status_code,
                code=codes if isinstance(codes, str) else str(error.default_code),
                title=HTTPStatus(error.status_code).phrase,
                detail=str(error.detail),
                instance=instance,
            )
        case DjangoPermissionDenied():
            body = problem(
                status=403, code="not_allowed", title="Not allowed", detail="This is not allowed.", instance=instance
            )
        case _:
            return None
    set_rollback()
    return Response(body, status=body["status"], headers=headers, content_type=CONTENT_TYPE)


def application_problem(error: ApplicationError, instance: str) -> dict[str, Any]:
    """Return the problem object of one of our errors."""
    return problem(
        status=error.status,
        code=error.code,
        title=error.title,
        detail=error.message,
        instance=instance,
        errors=error.errors,
        hint=error.hint,
        extra=error.extra,
    )


def field_errors(detail: Any, path: str = "") -> list[FieldError]:
    """Flatten REST framework's nested validation errors into dotted paths."""
    if isinstance(detail, Mapping):
        errors = []
        for key, value in detail.items():
            inner = path if key == "non_field_errors" else f"{path}.{key}" if path else str(key)
            errors += field_errors(value, inner)
        return errors
    if isinstance(detail, (list, tuple)):
        errors = []
        for index, value in enumerate(detail):
            nested = isinstance(value, (Mapping, list, tuple))
            errors += field_errors(value, f"{path}.{index}" if nested and path else path)
        return errors
    return [FieldError(path, str(detail), getattr(detail, "code", None) or "invalid")]


def problem_response(error: ApplicationError, instance: str) -> HttpResponse:
    """Return a plain Django answer, for what happens outside of REST framework's views."""
    return _plain(application_problem(error, instance))


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404: a problem object below /api/, the console's page elsewhere."""
    if request.path.startswith("/api/"):
        return problem_response(NotFound("There is nothing here."), request.path)
    return defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """handler500: the request id, and nothing about the error, which is in the log under that id."""
    if request.path.startswith("/api/"):
        return _plain(
            problem(
                status=500,
                code="internal_error",
                title="Internal error",
                detail="Something broke on our side. The log has it under this request id.",
                instance=request.path,
            )
        )
    return defaults.server_error(request)


def _plain(body: dict[str, Any]) -> HttpResponse:
    return HttpResponse(json.dumps(body), status=body["status"], content_type=CONTENT_TYPE)


def _headers(error: exceptions.APIException) -> dict[str, str]:
    headers = {}
    challenge = getattr(error, "auth_header", None)
    if challenge:
        headers["WWW-Authenticate"] = challenge
    wait_s = getattr(error, "wait", None)
    if wait_s is not None:
        headers["Retry-After"] = str(int(wait_s) + 1)
    return headers
