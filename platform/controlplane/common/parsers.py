"""How request bodies are read."""

import io
import json
import re
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

# The largest request that means something names 500 messages. Each value is an object in memory, a turn of validation, and at worst
# an error in the answer: of a body of 8 MiB they could be millions.
VALUES_MAX = 10_000
# Possessive: none of its own state is kept, however many escapes there are. A text that does not end is one, too: looked for again
# from each of its escaped quotes, 8 MiB of it would take days.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


class JsonParser(JSONParser):
    """JSON that has too many values or is nested too deeply to be read, or is no Unicode text, is the client's mistake, as any
    other that can't be.
    """

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        raw = stream.read()
        if _values(raw) > VALUES_MAX:
            raise ParseError(f"The body has more than {VALUES_MAX} values.")
        try:
            # UTF-8, as JSON is: in what else it may be called, commas and brackets are other bytes than those that were counted.
            body = super().parse(io.BytesIO(raw), media_type, {**(parser_context or {}), "encoding": "utf-8"})
            # Half of a surrogate pair, which JSON can escape: no answer could quote a field of that name, nor a row hold it.
            json.dumps(body, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise ParseError(f"The body has half of a surrogate pair: U+{half:X}.") from None
        return body


def _values(raw: bytes) -> int:
    """Return how many values JSON has at most, before any of them is made: a list or an object counts as one more."""
    structure = _TEXT.sub(b"", raw)
    return 1 + sum(structure.count(mark) for mark in (b",", b"[", b"{"))
