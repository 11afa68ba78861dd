"""Plain HTTP: a browser is led to HTTPS, a program is refused. And a log-out takes the pages that a browser has kept."""

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

from controlplane.common.errors import NotAllowed
from controlplane.common.problems import problem_response
from controlplane.common.sentences import say

_LOG_OUT = "/logout/"


class HttpsMiddleware:
    """Stands before Django's SecurityMiddleware, which redirects.

    A program that is configured with http:// sends its token in plain text with each request: led on, no one would notice.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if settings.SECURE_SSL_REDIRECT and not request.is_secure() and request.path.startswith("/api/"):
            message = say("Use https. What was sent, a token included, could be read on the way: replace the token.")
            return problem_response(NotAllowed(message, code="https_required"), request.path)
        response = self.get_response(request)
        if request.path == _LOG_OUT and request.method == "POST":
            # Its button to go back would show them to the browser's next user.
            response.headers["Clear-Site-Data"] = '"cache"'
        return response
