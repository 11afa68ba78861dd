"""The stock clients of the interop tests, for groups that elect."""

from __future__ import annotations

from tests.interop.conftest import java_client

__all__ = ["java_client"]
