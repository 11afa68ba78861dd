"""A broker's real sockets, turns and dispatcher in virtual time: each command takes exactly as long as a test says, and all that is
served to others between two requests of a good client is counted. Nothing here depends on how fast the machine is.

The clients are tasks of the same loop: attackers who write for as long as the broker takes it, and one good client who has sent its
next request as soon as the last one is served.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import trio
import trio.testing
from trio._core import _run

from brokerd import server as server_module
from brokerd.environment import OsNetwork
from brokerd.server import Server
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from tests.brokerd.broker_under_test import BrokerUnderTest
from tests.security.accounts import OTHER_PROGRAM
from tests.security.live_broker import send_request

# How long a command takes that an attack says nothing else of.
COMMAND_S: Final = 0.0001
# Turns of the loop before the good client comes, unless each attacker was served something earlier: by then all are connected, and
# have shown their key if they have one.
_TURNS_BEFORE: Final = 150
_TOO_MANY: Final = 5_000
_WRITE_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class Attack:
    """What each of `connections` writes again and again; `first` is written once, before. `takes_s`: how long which code takes."""

    frames: Sequence[bytes]
    connections: int = 1
    first: bytes = b""
    reads_answers: bool = True
    takes_s: Mapping[int, float] = field(default_factory=dict)


@dataclass
class Gap:
    """What was served to others, and read of them, between two requests of the good client."""

    commands: int = 0
    read_bytes: int = 0


class VirtualBroker:
    """Runs one attack at a time."""

    def __init__(self, broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.gaps: list[Gap] = []
        self._monkeypatch = monkeypatch
        self._clock = trio.testing.MockClock(autojump_threshold=0)
        self._takes_s: Mapping[int, float] = {}
        self._gap = Gap()
        self._good: socket.socket | None = None
        self._good_address: tuple[str, int] = ("", 0)
        self._good_request = send_request(bytes(1024), OTHER_PROGRAM).encode()
        self._enough = trio.Event()
        self._wanted = 0
        self._served_ever: set[int] = set()
        # What trio's tasks do in a turn of the loop they do in an order that chance decides: the same in each run.
        monkeypatch.setattr(_run, "_ALLOW_DETERMINISTIC_SCHEDULING", True)
        monkeypatch.setattr(_run, "_r", random.Random(13))
        monkeypatch.setattr(broker.clock, "monotonic", self._clock.current_time)
        self._spend_in_dispatcher()
        self._count_what_is_read()

    def under(self, attack: Attack, *, requests: int = 100) -> list[Gap]:
        """What lay between each two of the good client's requests. What came before the first, which shows its key, is left out."""
        self._takes_s, self._wanted = attack.takes_s, requests + 1
        trio.run(self._run, attack, clock=self._clock)
        return self.gaps[1:] or self.gaps

    async def _run(self, attack: Attack) -> None:
        server = Server(self.broker.config, OsNetwork())
        address = server.listen()
        # Virtual time moves by itself only when no one has anything to do: then this is at an end, and at once.
        with trio.fail_after(3600), contextlib.ExitStack() as sockets:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run, self.broker.broker)
                for number in range(attack.connections):
                    hostile = sockets.enter_context(_connected(address, "127.0.0.2"))
                    nursery.start_soon(_pour, hostile, attack, number)
                    if attack.reads_answers:
                        nursery.start_soon(_read_away, hostile)
                for _ in range(_TURNS_BEFORE):
                    if len(self._served_ever) == attack.connections:
                        break
                    await trio.lowlevel.checkpoint()
                self._gap = Gap()
                self._good = sockets.enter_context(_connected(address, "127.0.0.1"))
                self._good_address = self._good.getsockname()
                self._good.send(self._good_request)
                nursery.start_soon(_read_away, self._good)
                await self._enough.wait()
                nursery.cancel_scope.cancel()

    def _served(self, peer: Any, request: RemotingCommand) -> None:
        """Take the time that a command takes, and count it."""
        if peer.remote_address == self._good_address:
            self.gaps.append(self._gap)
            self._gap = Gap()
            self._clock.jump(COMMAND_S)
            if len(self.gaps) < self._wanted:
                assert self._good is not None
                self._good.send(self._good_request)
            else:
                self._enough.set()
            return
        self._clock.jump(self._takes_s.get(request.code, COMMAND_S))
        self._served_ever.add(peer.id)
        self._gap.commands += 1
        if self._gap.commands == _TOO_MANY and self._good is not None:  # it may never be served again
            self.gaps.append(self._gap)
            self._enough.set()

    def _spend_in_dispatcher(self) -> None:
        dispatcher = self.broker.broker.dispatcher
        admit, serve, send = dispatcher._admit, dispatcher._serve, dispatcher._sends.process

        def admitted(peer: Any, request: RemotingCommand, *checked_for: Any) -> bool:
            is_admitted = admit(peer, request, *checked_for)
            if not is_admitted:
                self._served(peer, request)
            return is_admitted

        def served(peer: Any, request: RemotingCommand) -> None:
            serve(peer, request)
            self._served(peer, request)

        def sent(peer: Any, requests: Sequence[RemotingCommand], until_s: float) -> int:
            count = send(peer, requests, until_s)
            for request in requests[:count]:
                self._served(peer, request)
            return count

        self._monkeypatch.setattr(dispatcher, "_admit", admitted)
        self._monkeypatch.setattr(dispatcher, "_serve", served)
        self._monkeypatch.setattr(dispatcher._sends, "process", sent)

    def _count_what_is_read(self) -> None:
        virtual = self

        class Counted(Connection):
            __slots__ = ()

            def receive_data(self, data: bytes | bytearray | memoryview) -> None:
                super().receive_data(data)
                virtual._gap.read_bytes += len(data)

        self._monkeypatch.setattr(server_module, "Connection", Counted)


def _connected(address: tuple[str, int], source: str) -> socket.socket:
    stream = socket.create_connection(address, source_address=(source, 0))
    stream.setblocking(False)
    return stream


async def _pour(stream: socket.socket, attack: Attack, number: int) -> None:
    """Write for as long as the broker takes it; each connection begins at another frame."""
    start = number % len(attack.frames)
    frames = itertools.cycle([*attack.frames[start:], *attack.frames[:start]])
    pending = bytearray(attack.first)
    with contextlib.suppress(OSError, trio.ClosedResourceError):
        while True:
            while len(pending) < _WRITE_BYTES:
                pending += next(frames)
            await trio.lowlevel.wait_writable(stream)
            with contextlib.suppress(BlockingIOError):
                del pending[: stream.send(memoryview(pending)[:_WRITE_BYTES].tobytes())]


async def _read_away(stream: socket.socket) -> None:
    with contextlib.suppress(OSError, trio.ClosedResourceError):
        while True:
            await trio.lowlevel.wait_readable(stream)
            with contextlib.suppress(BlockingIOError):
                if not stream.recv(_READ_BYTES):
                    return
