"""How request bodies are read."""

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class JsonParser(JSONParser):
    """JSON that is nested too deeply to be read, or is no Unicode text, is the client's mistake, as any other that can't be."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            body = super().parse(stream, media_type, parser_context)
            # Half of a surrogate pair, which JSON can escape: no answer could quote a field of that name, nor a row hold it.
            json.dumps(body, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise ParseError(f"The body has half of a surrogate pair: U+{half:X}.") from None
        return body
