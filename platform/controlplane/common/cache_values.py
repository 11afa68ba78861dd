"""How values are written into the cache: as JSON. Django's pickles would run as code whatever someone else wrote there."""

import json
from typing import Any


class JsonSerializer:
    """What Django's RedisCache asks of `serializer`: numbers, truths, texts, and lists of them."""

    def dumps(self, value: Any) -> Any:
        """Return a whole number as it is, so that Redis can count on; all else as text."""
        return value if type(value) is int else json.dumps(value)

    def loads(self, data: bytes) -> Any:
        """Return the value; raises ValueError for what is no JSON."""
        return json.loads(data)
