"""DataVersion: how often a table of configuration has changed."""

from __future__ import annotations

from mqwire.bodies.base import Body
from mqwire.header import Int64


class DataVersion(Body, frozen=True, kw_only=True):
    """Stands beside every table that is registered or persisted. Source: DataVersion.

    `timestamp` is milliseconds of the wall clock at the last change, `counter` counts changes, `state_version` is the
    controller's and stays 0 here.
    """

    state_version: Int64 = 0
    timestamp: Int64 = 0
    counter: Int64 = 0

    def next_version(self, now_ms: int) -> DataVersion:
        """The version after one more change."""
        return DataVersion(state_version=self.state_version, timestamp=now_ms, counter=self.counter + 1)
