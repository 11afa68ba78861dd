"""Request ids, one log line per request, the language of the answer, and what browsers may do with it."""

import re
import time
import uuid
from collections.abc import Callable
from http import HTTPStatus

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed
from django.middleware.security import SecurityMiddleware
from django.shortcuts import render
from django.utils import translation
from django.utils.cache import patch_vary_headers

from controlplane.common.errors import InvalidInput
from controlplane.common.logging import get_logger, loggable_path
from controlplane.common.problems import problem_response
from controlplane.common.request_context import RequestContext, address_of, set_request_context

_log = get_logger("controlplane.request")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_QUIET_PATHS = frozenset({"/healthz", "/readyz"})

GetResponse = Callable[[HttpRequest], HttpResponseBase]


def _who_was_refused(request: HttpRequest, status: int) -> dict[str, str]:
    """Return whom the log names: an account or token that asked for what it may not. Others are in the audit trail, if anywhere."""
    user = getattr(request, "user", None) if status == HTTPStatus.FORBIDDEN else None
    if user is None or not user.is_authenticated:
        return {}
    return {"refused": str(getattr(user, "principal", user.pk))}


class WrongMethodPageMiddleware:
    """Says in a page what Django says in an empty answer: that an address of the console takes forms alone. Who reloads a form's
    answer by its address, or logs in again on the way to it, would see nothing.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if (
            isinstance(response, HttpResponseNotAllowed)
            and not request.path.startswith("/api/")
            and not response.content
        ):
            page = render(request, "405.html", status=response.status_code)
            page["Allow"] = response["Allow"]
            return page
        return response


class RequestContextMiddleware:
    """Gives each request an id (the client's own X-Request-ID when it is well-formed), and returns it in the answer
    and in every log line.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get("X-Request-ID", "")
        request_id = given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        set_request_context(RequestContext(request_id, address_of(request.META), request.headers.get("User-Agent", "")))
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.monotonic()
        try:
            if "\x00" in request.path or "%00" in request.META.get("QUERY_STRING", ""):
                # PostgreSQL can't hold NUL in text: such a name exists nowhere.
                response: HttpResponseBase = problem_response(
                    InvalidInput("An address can't hold NUL.", code="nul_in_address"), request.path.replace("\x00", "")
                )
            else:
                response = self.get_response(request)
            response["X-Request-ID"] = request_id
            if request.path not in _QUIET_PATHS:
                _log.info(
                    "request",
                    method=request.method,
                    path=loggable_path(request.path),
                    status=response.status_code,
                    milliseconds=round((time.monotonic() - started) * 1000, 1),
                    **_who_was_refused(request, response.status_code),
                )
            return response
        finally:
            set_request_context(RequestContext())


class LanguageMiddleware:
    """Answers in the language that was chosen in the foot of a page, else in English; the REST API always in English.

    Accept-Language is not asked: browsers are often in another language than their readers want here;
    the switch is on every page.
    """

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        chosen = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
        is_page = not request.path.startswith("/api/")
        language = chosen if is_page and chosen in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE
        with translation.override(language):
            request.LANGUAGE_CODE = language
            response = self.get_response(request)
            response.headers.setdefault("Content-Language", language)
            if is_page:
                patch_vary_headers(response, ["Cookie"])
            return response


class BrowserPolicyMiddleware(SecurityMiddleware):
    """Tells browsers what they may do with an answer: settings.CONTENT_SECURITY_POLICY, by which nothing inline and nothing from
    other origins is run, and that no other origin may embed it, beside what Django's SecurityMiddleware says.

    It stands before all others, so that files of /static/ and refusals say it, too. To HTTPS leads Django's own, further down.
    """

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        self.policy = "; ".join(f"{name} {value}" for name, value in settings.CONTENT_SECURITY_POLICY.items())

    def process_request(self, request: HttpRequest) -> None:
        """Lead nowhere."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response = super().process_response(request, response)
        response.headers.setdefault("Content-Security-Policy", self.policy)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response
