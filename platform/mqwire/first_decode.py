"""A type's first decode happens in one thread: msgspec 0.22.0 crashes otherwise.

msgspec publishes what it knows of a Struct's fields before it has filled it in. A second thread that decodes the same
type, or one that holds it, for the first time at that moment follows a null pointer, and the process dies of SIGSEGV.
Web servers and programs that use the SDK have threads, so whatever decodes a Struct asks here first.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

_lock = threading.Lock()
_known: dict[Any, msgspec.json.Decoder[Any]] = {}


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The lenient JSON decoder of a type, made once; safe in any thread."""
    decoder = _known.get(kind)
    if decoder is None:
        # One lock for all types: two of them may hold the same third one.
        with _lock:
            decoder = _known.get(kind)
            if decoder is None:
                decoder = _known[kind] = msgspec.json.Decoder(kind, strict=False)
    return decoder


def convert(value: Any, kind: Any) -> Any:
    """`msgspec.convert`, lenient; safe in any thread. Raises msgspec.ValidationError."""
    if kind not in _known:
        json_decoder(kind)  # what msgspec learns of the type serves both
    return msgspec.convert(value, kind, strict=False)
