"""The root of all API views."""

from collections.abc import Mapping
from typing import Any, ClassVar

from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from controlplane.common.deprecation import Deprecation, deprecation_headers
from controlplane.common.pagination import CursorPagination
from controlplane.common.strictness import refuse_unknown_body, refuse_unknown_parameters
from controlplane.common.throttling import rate_headers


class Api(APIView):
    """JSON in, JSON out; problem objects for errors; rate headers on every answer. By method: `deprecations` says what will end,
    `problems` which statuses a method's own work can answer beside those of `answers`; `tagged` names methods that send an ETag.
    """

    deprecations: ClassVar[Mapping[str, Deprecation]] = {}
    problems: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    tagged: ClassVar[tuple[str, ...]] = ()
    # Whether what POST makes has no address of its own, and the answer no Location.
    makes_unaddressed: ClassVar[bool] = False
    # Whether those who may not see it are told that it does not exist.
    is_hidden: ClassVar[bool] = False

    # The schema generator and `paginated` read it.
    pagination_class: type[CursorPagination] = CursorPagination

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        refuse_unknown_parameters(self, request)
        refuse_unknown_body(self, request)

    def perform_authentication(self, request: Request) -> None:
        """Count a wrong token as a stranger's request, so that guessing is throttled by address; a right one is not."""
        try:
            super().perform_authentication(request)
        except AuthenticationFailed:
            self.check_throttles(request)
            raise

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(request, Request):
            rate_headers(request, final)
        deprecation = self.deprecations.get("GET" if request.method == "HEAD" else str(request.method))
        if deprecation is not None:
            deprecation_headers(deprecation, final)
        # Answers depend on who asks, and some hold secrets.
        final.headers.setdefault("Cache-Control", "no-store" if request.method == "POST" else "private, no-cache")
        return final


def accepted(data: dict[str, Any]) -> Response:
    """Return 202 with an operation object, whose `path` is the Location to poll."""
    return Response(data, status=202, headers={"Location": data["path"]})
