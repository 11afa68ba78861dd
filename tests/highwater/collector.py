"""A handler for tests: keeps what it gets and lets a test wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from highwater import ReceivedMessage

PATIENCE_SECONDS = 40.0


class Collector:
    """Every message that was handed in, in order. `react` may raise, to have a message again."""

    def __init__(self, react: Callable[[ReceivedMessage], None] | None = None) -> None:
        self.messages: list[ReceivedMessage] = []
        self._react = react
        self._changed = threading.Condition()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()
        if self._react is not None:
            self._react(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def wait(self, count: int) -> list[ReceivedMessage]:
        """Waits until `count` messages have come; more than that is a failure of the test that asks for an exact one."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.messages) >= count, PATIENCE_SECONDS):
                raise AssertionError(f"{len(self.messages)} of {count} messages came in {PATIENCE_SECONDS} s")
            return list(self.messages)

    def wait_for_bodies(self, bodies: set[bytes]) -> None:
        """Waits until each of these bodies has come at least once."""
        with self._changed:
            if not self._changed.wait_for(lambda: bodies <= set(self.bodies), PATIENCE_SECONDS):
                raise AssertionError(f"{len(bodies - set(self.bodies))} bodies did not come in {PATIENCE_SECONDS} s")


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Polls until `condition` holds; raises AssertionError that names `what`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_SECONDS} s in vain: {what}")
        time.sleep(0.05)
