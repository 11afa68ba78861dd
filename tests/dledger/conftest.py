"""The stock clients of the interop tests, for groups that elect."""

from __future__ import annotations

from tests.interop.conftest import go_client, java_client

__all__ = ["go_client", "java_client"]
