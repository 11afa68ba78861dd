"""The network between simulated machines: requests and answers that are late, lost, doubled, reordered, or cut off one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tests.sim.event_loop import EventLoop

Answer = Callable[[Any], None]


class Endpoint(Protocol):
    """Somebody with a name on the network."""

    name: str

    def arrive(self, action: Callable[[], None]) -> None:
        """Something came in: do it when it can be done, or never (a dead machine)."""

    def handle(self, request: Any, answer: Answer) -> None:
        """Serve a request; `answer` may be called later, or never."""


class Network:
    """Delivers by name. `blocked` holds (source, target) pairs whose packets vanish."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._endpoints: dict[str, Endpoint] = {}
        self.blocked: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.doubling = 0.0
        self.slow = 0.0  # the share of packets that take long, and so come out of order

    def join(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.name] = endpoint

    def heal(self) -> None:
        """All packets arrive, once, soon."""
        self.blocked.clear()
        self.loss = self.doubling = self.slow = 0.0

    def call(
        self,
        source: Endpoint,
        target_name: str,
        request: Any,
        on_answer: Callable[[Any], None],
        *,
        timeout_s: float,
        may_double: bool = True,
    ) -> None:
        """Ask; `on_answer` gets the answer, or None after the timeout; exactly one of the two, once.

        A request may arrive after its sender has given up. `may_double` False: as on one TCP connection, it arrives at most once.
        """
        open_call = [True]

        def settle(answer: Any) -> None:
            if open_call[0]:
                open_call[0] = False
                on_answer(answer)

        def answered(answer: Any) -> None:
            self._carry(target_name, source.name, lambda: source.arrive(lambda: settle(answer)), may_double=True)

        def deliver() -> None:
            target = self._endpoints[target_name]
            target.arrive(lambda: target.handle(request, answered))

        self._carry(source.name, target_name, deliver, may_double=may_double)
        self._loop.after(timeout_s, lambda: source.arrive(lambda: settle(None)))

    def _carry(self, source: str, target: str, deliver: Callable[[], None], *, may_double: bool) -> None:
        random = self._loop.random
        copies = 2 if may_double and random.random() < self.doubling else 1
        for _ in range(copies):
            if random.random() < self.loss:
                continue
            delay_s = 0.0002 + random.random() * 0.002
            if random.random() < self.slow:
                delay_s += random.expovariate(2.0)
            self._loop.after(delay_s, lambda: self._arrive(source, target, deliver))

    def _arrive(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        if (source, target) not in self.blocked:
            deliver()
