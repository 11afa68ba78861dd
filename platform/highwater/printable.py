"""What others wrote, printed without letting it act on a terminal or a shell. Pure."""

from __future__ import annotations

import json
import unicodedata


def has_controls(text: str) -> bool:
    """Whether a terminal or a shell would act on a character of a text instead of showing it."""
    return any(unicodedata.category(each) == "Cc" for each in text)


def visible(text: str) -> str:
    """Return a text with its control characters spelled out, all but tabs and line ends."""
    return "".join(
        f"\\x{ord(each):02x}" if each not in "\n\t" and unicodedata.category(each) == "Cc" else each for each in text
    )


def printable_json(value: object, indent: int | None = None) -> str:
    """Return JSON whose texts hold no control characters: json escapes those below U+0020, this the others, too."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return "".join(
        f"\\u{ord(each):04x}" if each != "\n" and unicodedata.category(each) == "Cc" else each for each in text
    )
