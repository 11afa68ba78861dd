"""Errors of the replica room: what is answered to a request that this replica refuses."""

from __future__ import annotations


class RoleRefused(Exception):
    """A promotion, demotion, reclaim or transfer that this replica does not take; the text says why.

    `for_good`: asking again later changes nothing.
    """

    def __init__(self, why: str, *, for_good: bool = False) -> None:
        super().__init__(why)
        self.for_good = for_good
