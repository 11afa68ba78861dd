"""Consumers whose client waits out a pull that a killed leader held: the new leader has them take their queues again.

rocketmq-client-go (v2.1.2, internal/remote) forgets a connection that broke, but not the requests that wait on it: a pull
that the killed leader held waits for its own 30 s, and 3 s more. Java's fails such requests at once. A Go consumer begins
to pull again at once where its queues are taken from it and given back, so that is what a new leader does that serves the
leader port, where such a client asks it for its group's members: for a moment it names none to Go clients, has them
look, and has them look again. Every other client gets the true answer, and no one takes the queues meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from mqwire.codes import LanguageCode

if TYPE_CHECKING:
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.replica.replica import Replica

_MOMENT_S: Final = 1.0  # at least so long, and until as many have asked as there are, and never longer than
_LONGEST_MOMENT_S: Final = 5.0
_FOLLOWS_WITHIN_S: Final = 0.5  # a former leader that lives: it has answered the pulls that it held
_LOOK_S: Final = 0.02
_HEARTBEAT_S: Final = 40.0  # longer than between two of a client
_HEARTBEAT_LOOK_S: Final = 0.2


class StrandedPulls:
    """Of one broker."""

    def __init__(self, replica: Replica, consumers: ConsumerManager) -> None:
        self._replica = replica
        self._consumers = consumers
        self._hides = False
        self._asked = 0

    def hides_members_from(self, language: int) -> bool:
        """Whether a client of this language is answered just now that its group has no members."""
        hides = self._hides and language == LanguageCode.GO
        self._asked += hides
        return hides

    async def free(self) -> None:
        """Have Go's consumers give their queues back and take them again; when this replica begins to serve the leader port.

        Not after a transfer or an orderly stop, when no one waits: what a listener has in hand is handed out once more.
        """
        elections = self._replica.elections
        if elections is not None and elections.left_in_order:
            return
        with trio.move_on_after(_FOLLOWS_WITHIN_S) as looking:
            while not self._all_follow():  # noqa: ASYNC110 - for a moment of each leadership: not worth an event
                await trio.sleep(_LOOK_S)
        if not looking.cancelled_caught:
            return
        consumers = self._consumers
        with trio.move_on_after(_HEARTBEAT_S):
            # They send heartbeats to the slaves too; one that began a moment before the failover has not yet.
            while not (notified := consumers.notify_clients(LanguageCode.GO)):  # noqa: ASYNC110 - as above
                await trio.sleep(_HEARTBEAT_LOOK_S)
            await self._hide_until_asked(notified)
            consumers.notify_clients(LanguageCode.GO)

    async def _hide_until_asked(self, times: int) -> None:
        self._hides, self._asked = True, 0
        try:
            with trio.move_on_after(_LONGEST_MOMENT_S):
                await trio.sleep(_MOMENT_S)
                while self._asked < times:  # noqa: ASYNC110 - as above
                    await trio.sleep(_LOOK_S)
        finally:
            self._hides = False

    def _all_follow(self) -> bool:
        """Whether every other replica pulls, or this one does not lead any more."""
        replica = self._replica
        in_sync = replica.in_sync
        return in_sync is None or in_sync.followers.keys() >= replica.known_replicas.keys()
