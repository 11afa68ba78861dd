"""Notifying the members of groups in turns with all else, where they are many (consumer_manager.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from brokerd.consumer_manager import ConsumerManager

# Between two turns of a millisecond or so. What changes meanwhile is one notice for each member.
_REST_S: Final = 0.005


class MemberNotices:
    """Of one broker."""

    def __init__(self, consumers: ConsumerManager) -> None:
        self._consumers = consumers
        self._wanted = trio.Event()
        consumers.on_notice = self._want

    def _want(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await trio.sleep(_REST_S)
            while self._consumers.send_notices():  # noqa: ASYNC110 - each turn does a part of the work
                await trio.sleep(_REST_S)
