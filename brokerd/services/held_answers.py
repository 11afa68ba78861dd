"""Answering held pulls in turns with all else, where a message or a moment wakes many (long_polling.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import trio

if TYPE_CHECKING:
    from brokerd.clock import SystemClock
    from brokerd.services.store_gate import StoreGate


class _Broker(Protocol):
    """What this service uses of the broker."""

    clock: SystemClock
    store_gate: StoreGate

    def answer_held_pulls(self) -> bool: ...


class HeldAnswers:
    """Of one broker."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._wanted = trio.Event()

    def go_on(self) -> None:
        """Some were answered and more are left."""
        self._wanted.set()

    async def run(self) -> None:
        """Answer what is left, until cancelled; half of the time is everyone else's."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            is_any_left = True
            while is_any_left:
                async with self._broker.store_gate.shared():
                    began_s = self._broker.clock.monotonic()
                    is_any_left = self._broker.answer_held_pulls()
                    took_s = self._broker.clock.monotonic() - began_s
                await trio.sleep(took_s)
