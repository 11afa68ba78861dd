"""How the command line writes times and bodies, and reads times."""

from __future__ import annotations

import time
from datetime import datetime

from highwater.errors import ConfigurationError

BODY_SHOWN_BYTES = 512


def time_text(timestamp_ms: int | None) -> str | None:
    """A time with its offset, to the millisecond; None stays unknown, and a number that is no time stays a number."""
    if timestamp_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds")


def parse_time(text: str) -> int:
    """Milliseconds since 1970 from `now`, a number, an ISO time, or mqadmin's `yyyy-MM-dd#HH:mm:ss:SSS`.

    Times without an offset are local. -1, the end of a queue, passes as it is. Raises ConfigurationError.
    """
    text = text.strip()
    if text == "now":
        return time.time_ns() // 1_000_000
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(_mqadmin_to_iso(text))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not a time: give now, milliseconds since 1970, 2026-01-31T23:59:59 or 2026-01-31#23:59:59:000"
        ) from None
    return int(moment.timestamp() * 1000)


def _mqadmin_to_iso(text: str) -> str:
    day, separator, clock = text.partition("#")
    return f"{day}T{'.'.join(clock.rsplit(':', 1))}" if separator else text


def body_text(body: bytes, limit_bytes: int = BODY_SHOWN_BYTES) -> str:
    """A body for the eye: as text if it is UTF-8, else in hexadecimal, and always saying so when it was cut."""
    head = body[:limit_bytes]
    cut = f" … ({len(body)} bytes in all)" if len(body) > limit_bytes else ""
    try:
        return body.decode()[:limit_bytes] + cut
    except UnicodeDecodeError:
        return f"hex:{head.hex()}{cut}"
