"""Rate limits of the API: per token or user, per tenant for all its tokens together, and per address for strangers, as for
pages that need no log-in; and the headers that describe them.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.translation import gettext as _
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle, SimpleRateThrottle

from controlplane.common.logging import get_logger
from controlplane.common.principals import principal_of, shared_principal_of
from controlplane.common.request_context import current_request_context

if TYPE_CHECKING:  # REST framework's settings import this module while that one is being imported
    from rest_framework.views import APIView

_log = get_logger("controlplane.throttling")

STRANGER_PAGES_A_MINUTE = 120


class ApiThrottle(SimpleRateThrottle):
    """A sliding window in the cache. Leaves what it counted on the request, for `rate_headers`."""

    scope = "api"

    def allow_request(self, request: Request, view: "APIView") -> bool:
        """Count the request; False answers 429."""
        if not request.user.is_authenticated:
            self.rate = self.THROTTLE_RATES["anonymous"]
            self.num_requests, self.duration = self.parse_rate(self.rate)
        try:
            allowed = super().allow_request(request, view)
        except RedisError as error:
            # Counting is not worth an outage: without the cache everyone is let in.
            _log.warning("rate limits are off: the cache does not answer", error=str(error))
            return True
        request._request.rate_window = self  # type: ignore[attr-defined]  # read back by rate_headers
        return bool(allowed)

    def get_cache_key(self, request: Request, view: "APIView") -> str:
        """Return the key of this caller's window."""
        if request.user.is_authenticated:
            return f"throttle:{principal_of(request)}"
        return f"throttle:address:{self.get_ident(request)}"

    @property
    def remaining(self) -> int:
        """Requests left in the window."""
        used: int = len(self.history)
        return max(0, (self.num_requests or 0) - used)

    @property
    def resets_in_s(self) -> int:
        """Seconds until the oldest counted request leaves the window."""
        if not self.history:
            return 0
        oldest: float = self.history[-1]
        return max(0, round(oldest + (self.duration or 0) - time.time()))


class TenantThrottle(BaseThrottle):
    """All tokens of a tenant together, in whole minutes. Each has a window of its own, and a tenant may have many."""

    requests_per_minute = 6000

    def allow_request(self, request: Request, view: "APIView") -> bool:
        """Count the request; False answers 429."""
        shared = shared_principal_of(request)
        if shared is None:
            return True
        return _counted(f"throttle:{shared}:{int(time.time() // 60)}") <= self.requests_per_minute

    def wait(self) -> float:
        """Seconds until the next minute."""
        return 60 - time.time() % 60


def pages_of_strangers(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let one address have 120 answers a minute of pages that need no log-in; more are answered 429."""

    @wraps(view)
    def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        minute, second = divmod(time.time(), 60)
        key = f"throttle:pages:{current_request_context().address}:{int(minute)}"
        if _counted(key) > STRANGER_PAGES_A_MINUTE:
            wait_s = str(60 - int(second))
            text = _("Too many requests came from your address. Try again in a minute.")
            return HttpResponse(
                text, status=429, content_type="text/plain; charset=utf-8", headers={"Retry-After": wait_s}
            )
        return view(request, *args, **kwargs)

    return limited


def _counted(key: str) -> int:
    """Return how many requests were counted under the key, this one too; 0 while the cache does not answer."""
    try:
        cache.add(key, 0, timeout=120)
        return int(cache.incr(key))
    except (RedisError, ValueError) as error:  # ValueError: the key has gone in between
        _log.warning("requests are not counted", error=str(error))
        return 0


def rate_headers(request: Request, response: HttpResponseBase) -> None:
    """Set RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-10). A draft: it is written here only."""
    window: Any = getattr(request._request, "rate_window", None)
    if window is None or not window.num_requests:
        return
    response.headers["RateLimit-Policy"] = f'"api";q={window.num_requests};w={window.duration}'
    response.headers["RateLimit"] = f'"api";r={window.remaining};t={window.resets_in_s}'
