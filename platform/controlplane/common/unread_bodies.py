"""What the application did not read of a request's body is read before the answer goes out, or the connection is said to end.
And bodies that come slowly are waited for by some threads only (`slow_bodies`).

Hyper, below granian, closes a connection whose request was answered before its whole body had come, and does not always say
so in the answer. A client that keeps its connections, and sends head and body apart as httpx does, then loses its next request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings

from controlplane.common.request_context import address_of
from controlplane.common.slow_bodies import BodyPlaces, TooManySlowBodies

READ_BYTES_MAX = 64 * 1024

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class _Body:
    """`wsgi.input` that counts what was read of it."""

    def __init__(
        self, stream: Any, places: BodyPlaces, address: str
    ) -> None:  # wsgi.input: anything with read, readline and iteration
        self._stream = stream
        self._places = places
        self._address = address
        self.read_bytes = 0
        self.is_refused = False

    def read(self, *size: int) -> bytes:
        return self._read(lambda: self._stream.read(*size))

    def readline(self, *size: int) -> bytes:
        return self._read(lambda: self._stream.readline(*size))

    def __iter__(self) -> _Body:
        return self

    def __next__(self) -> bytes:
        if not (line := self.readline()):
            raise StopIteration
        return line

    def _read(self, read: Callable[[], bytes]) -> bytes:
        try:
            with self._places.place(self._address):
                data = read()
        except TooManySlowBodies:
            self.is_refused = True
            raise
        self.read_bytes += len(data)
        return data


def reads_what_is_left(application: Application) -> Application:
    """Returns the WSGI application, which leaves connections usable: the rest of a body of at most READ_BYTES_MAX is read
    before the answer; where more is left, or the body says no length, the answer says `Connection: close`. Where a body is
    not waited for, the answer has status 429, whatever the application says.
    """
    places = BodyPlaces(settings.HIGHWATER_WEB_THREADS)

    def wrapped(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        declared = environ.get("CONTENT_LENGTH") or "0"
        length = int(declared) if declared.isdecimal() else 0
        has_no_length = not length and "HTTP_TRANSFER_ENCODING" in environ
        if not length and not has_no_length:
            return application(environ, start_response)
        body = _Body(environ["wsgi.input"], places, address_of(environ) or "")

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            left = length - body.read_bytes
            if left <= READ_BYTES_MAX and not has_no_length:
                with contextlib.suppress(TooManySlowBodies):
                    while left > 0 and (data := body.read(left)):
                        left -= len(data)
            if body.is_refused:
                status, headers = "429 Too Many Requests", [*headers, ("Retry-After", "10")]
            if body.is_refused or left > READ_BYTES_MAX or has_no_length:
                headers = [*headers, ("Connection", "close")]
            return start_response(status, headers, *exc_info)

        return application({**environ, "wsgi.input": body}, start)

    return wrapped
