"""One caller's flood of requests leaves a thread of each web process to everyone else.

Requests wait for a thread in the order in which they came. So a caller, that is one token, session or address, who sends many at
once and has all threads but one is refused its further requests by that one, which takes no time, until one of its own has ended.
Who sends few at a time may have all threads: a page and what it loads are not refused.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from controlplane.common.errors import TooOften
from controlplane.common.problems import problem_response
from controlplane.common.request_context import current_request_context
from controlplane.common.sentences import say
from mqwire.addresses import network_of

WINDOW_S = 2.0
# As many in that time are few: of a token or session, and of an address, which may be a whole company's.
FEW = 60
FEW_OF_ADDRESS = 240
_UNCOUNTED = ("/static/", "/healthz", "/readyz")


@dataclass(slots=True)
class _Caller:
    running: int = 0
    came_s: deque[float] = field(default_factory=deque)


@dataclass(slots=True)
class InFlight:
    """Who has requests in this process. `threads` is how many it has for them."""

    threads: int
    monotonic: Callable[[], float] = time.monotonic
    _callers: dict[str, _Caller] = field(default_factory=dict)
    _swept_s: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    @contextmanager
    def place(self, keys: Sequence[tuple[str, int]]) -> Iterator[bool]:
        """Yield whether a caller may be served now, who is known by each of these keys and may send so many by each.

        What is refused by one does not count by those after it: one token's flood refuses no other's requests from its address.
        """
        callers: list[_Caller] = []
        with self._lock:
            now_s = self.monotonic()
            for key, most in keys:
                caller = self._came(key, most, now_s)
                if caller.running >= max(1, self.threads - 1) and len(caller.came_s) > most:
                    break
                callers.append(caller)
            is_served = len(callers) == len(keys)
            for caller in callers if is_served else ():
                caller.running += 1
        if not is_served:
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                for caller in callers:
                    caller.running -= 1

    def _came(self, key: str, most: int, now_s: float) -> _Caller:
        self._forget(now_s)
        caller = self._callers.setdefault(key, _Caller())
        caller.came_s.append(now_s)
        while caller.came_s[0] < now_s - WINDOW_S or len(caller.came_s) > most + 1:
            caller.came_s.popleft()
        return caller

    def _forget(self, now_s: float) -> None:
        """Those who have not come for a while."""
        if now_s - self._swept_s < WINDOW_S:
            return
        self._swept_s = now_s
        for key, caller in list(self._callers.items()):
            if not caller.running and caller.came_s[-1] < now_s - WINDOW_S:
                del self._callers[key]


_in_flight = InFlight(settings.HIGHWATER_WEB_THREADS)


class InFlightMiddleware:
    """Answers 429, with Retry-After, what comes from a caller who keeps this process' threads busy."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(_UNCOUNTED):
            return self.get_response(request)
        with _in_flight.place(_keys_of(request)) as is_had:
            if is_had:
                return self.get_response(request)
        if request.path.startswith("/api/"):
            message = say("Too many of your requests are being answered. This one was not looked at.")
            response: HttpResponseBase = problem_response(TooOften(message, retry_after_s=1), request.path)
        else:
            response = render(request, "429.html", status=429)
        response.headers["Retry-After"] = "1"
        return response


def _keys_of(request: HttpRequest) -> list[tuple[str, int]]:
    """A caller's token or session, which may be made up, and its address."""
    keys = []
    shown = request.headers.get("Authorization") or request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if shown:
        keys.append((blake2b(shown.encode(), digest_size=16).hexdigest(), FEW))
    return [*keys, (f"address:{network_of(current_request_context().address or '')}", FEW_OF_ADDRESS)]
