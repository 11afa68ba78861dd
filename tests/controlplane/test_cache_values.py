"""What is in the cache is JSON: it runs as code in no process that reads it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from django.core.cache import CacheHandler

from controlplane.settings.base import CACHES


@pytest.fixture
def cache(redis_url: str) -> Any:
    """The platform's own, in a real Redis."""
    return CacheHandler({"default": {**CACHES["default"], "LOCATION": redis_url}})["default"]


def test_what_is_kept_comes_back_and_is_counted_on(cache: Any) -> None:
    for value in (True, "words", [1.5, 2.5], 7):
        cache.set("kept", value)
        assert cache.get("kept") == value
    assert cache.incr("kept") == 8
    assert cache.get("other", []) == []


def test_a_pickle_that_someone_else_wrote_is_not_loaded(cache: Any) -> None:
    client = cache._cache.get_client(None, write=True)
    client.set(cache.make_and_validate_key("planted"), pickle.dumps(["a pickle"]))
    with pytest.raises(ValueError, match=r"decode|Expecting"):
        cache.get("planted")
