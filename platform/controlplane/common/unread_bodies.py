"""What the application did not read of a request's body is read before the answer goes out, or the connection is said to end.

Hyper, below granian, closes a connection whose request was answered before its whole body had come, and does not always say
so in the answer. A client that keeps its connections, and sends head and body apart as httpx does, then loses its next request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

READ_BYTES_MAX = 64 * 1024

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


class _Body:
    """`wsgi.input` that counts what was read of it."""

    def __init__(self, stream: Any) -> None:  # wsgi.input: anything with read, readline, readlines and iteration
        self._stream = stream
        self.read_bytes = 0

    def read(self, *size: int) -> bytes:
        return self._counted(self._stream.read(*size))

    def readline(self, *size: int) -> bytes:
        return self._counted(self._stream.readline(*size))

    def __iter__(self) -> _Body:
        return self

    def __next__(self) -> bytes:
        if not (line := self.readline()):
            raise StopIteration
        return line

    def _counted(self, data: bytes) -> bytes:
        self.read_bytes += len(data)
        return data


def reads_what_is_left(application: Application) -> Application:
    """Returns the WSGI application, which leaves connections usable: the rest of a body of at most READ_BYTES_MAX is read
    before the answer; where more is left, or the body says no length, the answer says `Connection: close`.
    """

    def wrapped(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        body = _Body(environ["wsgi.input"])
        declared = environ.get("CONTENT_LENGTH") or "0"
        length = int(declared) if declared.isdecimal() else 0

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            left = length - body.read_bytes
            if left > READ_BYTES_MAX or (not length and "HTTP_TRANSFER_ENCODING" in environ):
                headers = [*headers, ("Connection", "close")]
            else:
                while left > 0 and (data := body.read(left)):
                    left -= len(data)
            return start_response(status, headers, *exc_info)

        return application({**environ, "wsgi.input": body}, start)

    return wrapped
