"""Log lines that no one outside can forge: what peers say of themselves stands in them with its control characters escaped."""

from __future__ import annotations

import logging
import re
from typing import Final

# Line breaks of every kind, terminal escapes, and what reverses the direction of writing.
_CONTROL: Final = re.compile("[\\x00-\\x08\\x0a-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]")


def escaped(text: str) -> str:
    """The text with control characters as \\xNN or \\uNNNN."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


class EscapingFormatter(logging.Formatter):
    """Escapes each message; only a traceback, which is ours, has several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        return super().formatMessage(record)


def escape_logs() -> None:
    """Have every handler of the root logger escape its messages, in the format that it has."""
    for handler in logging.getLogger().handlers:
        known = handler.formatter
        # The base class keeps the format's text here and offers no other way to read it.
        handler.setFormatter(EscapingFormatter(known._fmt if known is not None else None))
