"""The network between simulated machines: TCP connections whose packets are late, retransmitted, or cut off one way.

A connection carries bytes in order. What a lost packet costs is time, what a cut costs is time until it is healed: then what was
sent meanwhile arrives, as TCP retransmits it. A process that ends closes its connections; a program that speaks to a
connection that the other end no longer has gets a reset. Duplicates are what the layers above make: a sender that tries again.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import trio

from mqwire.command import RemotingCommand
from mqwire.connection import Connection as Decoder
from tests.sim import wire
from tests.sim.event_loop import EventLoop
from tests.sim.trio_process import Killed, TrioProcess, Waitable

_FIRST_RETRANSMIT_S: Final = 0.2
_LONGEST_RETRANSMIT_S: Final = 1.0
_SEND_BUFFER_BYTES: Final = 1 << 20
_CLIENT_PORTS_FROM: Final = 40_000


class Endpoint(Waitable):
    """One end of a connection, with the methods of a non-blocking socket that the broker uses."""

    def __init__(self, network: Network, host: str, address: tuple[str, int]) -> None:
        super().__init__()
        self._network = network
        self.host = host
        self._address = address
        self.other: Endpoint = self
        self.process: TrioProcess | None = None
        self.on_sent: Callable[[bytes], None] | None = None  # an observer of what leaves here
        self.on_data: Callable[[bytes], None] | None = None  # of an end without a process: gets what arrives
        self.on_closed: Callable[[], None] | None = None
        self._arrived: deque[bytes] = deque()
        self._ended = False  # the other end has said that nothing more comes
        self._reset = False
        self._on_the_way: deque[bytes | None] = deque()  # from here to the other end; None: the end
        self._bytes_on_the_way = 0
        self._delivering = False
        self._retransmit_s = _FIRST_RETRANSMIT_S

    # --- a socket's methods

    def fileno(self) -> int:
        return -1 if self.closed else 1_000_000

    def getpeername(self) -> tuple[str, int]:
        return self.other._address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setblocking(self, flag: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *option: object) -> None:
        """There are none."""

    def is_readable(self) -> bool:
        return bool(self._arrived) or self._ended or self._reset

    def is_writable(self) -> bool:
        return self._bytes_on_the_way < _SEND_BUFFER_BYTES or self._reset

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def recv(self, max_bytes: int) -> bytes:
        self._check()
        if self._arrived:
            data = self._arrived.popleft()
            if len(data) > max_bytes:
                self._arrived.appendleft(data[max_bytes:])
                data = data[:max_bytes]
            return data
        if self._ended:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, data: bytes | memoryview) -> int:
        self._check()
        if self._ended and not self._arrived and self.other.closed:
            self._reset = True  # what is sent now is answered by a reset, a moment later
        if self._bytes_on_the_way >= _SEND_BUFFER_BYTES:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = bytes(data)
        if self.process is not None:
            self.process.look()  # the receiver may act by what this very step has made true
        if self.on_sent is not None:
            self.on_sent(data)
        self._put(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.changed()
            if self.process is None or not self.process.dead:
                self._put(None)

    def _check(self) -> None:
        if self.process is not None and self.process.dead:
            raise Killed
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    # --- on the way

    def end(self) -> None:
        """The machine closes it, for its process is gone."""
        if not self.closed:
            self.closed = True
            self._put(None)

    def vanish(self) -> None:
        """The machine lost its power: the other end notices when it speaks to it again."""
        self.closed = True
        self._on_the_way.clear()

    def reset(self) -> None:
        """Something on the way says that the connection is no more."""
        if not self.closed:
            self._reset = True
            if self.on_data is not None:
                self._lost()
            self.changed()

    def _put(self, data: bytes | None) -> None:
        self._on_the_way.append(data)
        self._bytes_on_the_way += len(data or b"")
        if not self._delivering:
            self._delivering = True
            self._network.loop.after(self._network.delay_s(), self._deliver)

    def _deliver(self) -> None:
        network = self._network
        if (self.host, self.other.host) in network.blocked:
            network.loop.after(self._retransmit_s, self._deliver)
            self._retransmit_s = min(2 * self._retransmit_s, _LONGEST_RETRANSMIT_S)
            return
        self._retransmit_s = _FIRST_RETRANSMIT_S
        if not self._on_the_way:
            self._delivering = False
            return
        data = self._on_the_way.popleft()
        self._bytes_on_the_way -= len(data or b"")
        if self._on_the_way:
            network.loop.after(network.delay_s() * 0.1, self._deliver)
        else:
            self._delivering = False
        self.other._arrive(data)
        self.changed()

    def _arrive(self, data: bytes | None) -> None:
        if self.closed:
            if data is not None:
                self._network.loop.after(self._network.delay_s(), self._send_reset)
            return
        if data is None:
            self._ended = True
        elif self.on_data is not None:
            self.on_data(data)
            return
        else:
            self._arrived.append(data)
        if self.on_data is not None and self._ended:
            self._lost()
        self.changed()

    def _send_reset(self) -> None:
        network = self._network
        if (self.host, self.other.host) in network.blocked:
            network.loop.after(_LONGEST_RETRANSMIT_S, self._send_reset)
        else:
            self.other.reset()

    def _lost(self) -> None:
        self.closed = True
        if self.on_closed is not None:
            self.on_closed()


class Listener(Waitable):
    """A listening socket."""

    def __init__(self, network: Network, address: tuple[str, int], process: TrioProcess) -> None:
        super().__init__()
        self._network = network
        self._address = address
        self.process = process
        self.waiting: deque[Endpoint] = deque()

    def fileno(self) -> int:
        return -1 if self.closed else 1_000_000

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def is_readable(self) -> bool:
        return bool(self.waiting)

    def is_writable(self) -> bool:
        return False

    def accept(self) -> tuple[Endpoint, tuple[str, int]]:
        if self.process.dead:
            raise Killed
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if not self.waiting:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        endpoint = self.waiting.popleft()
        return endpoint, endpoint.getpeername()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.forget(self._address)
            for endpoint in self.waiting:
                endpoint.end()
            self.changed()


class Named(Protocol):
    name: str


class Accepts(Protocol):
    """A program without a process of its own: a name server."""

    def accept(self, endpoint: Endpoint) -> None:
        """A client connected."""


class Network:
    """Delivers by name. `blocked` holds (source, target) pairs whose packets do not arrive. A host has one ip address."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.blocked: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.doubling = 0.0  # the share of answered requests that an impatient client sends again
        self.slow = 0.0  # the share of packets that take long
        self._hosts: dict[str, str] = {}  # by ip
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._programs: dict[tuple[str, int], Accepts] = {}
        self._endpoints: dict[str, list[Endpoint]] = {}
        self._ports = _CLIENT_PORTS_FROM
        self._clients: dict[str, RemotingProgram] = {}
        self.replicas: dict[str, tuple[int, str]] = {}  # by name: id and address
        self.addresses: dict[str, str] = {}  # of every machine that can be asked, by name
        # Observers: of (name, request) that is asked, and of (name, request, answer) at the moment when the answer leaves.
        self.on_ask: Callable[[str, Any], None] = lambda name, request: None
        self.on_answer_leaves: Callable[[str, Any, RemotingCommand], None] = lambda name, request, reply: None

    # --- the simulation's own programs

    def join(self, program: Named) -> None:
        """A program that asks only: clients, the control plane, operators."""
        number = len(self._clients) + 1
        self._clients[program.name] = RemotingProgram(self, program.name, f"192.0.2.{number}")

    def call(
        self,
        source: Named,
        target: str,
        request: Any,
        on_answer: Callable[[Any], None],
        *,
        timeout_s: float,
        may_double: bool = True,
    ) -> None:
        """Ask a replica or a name server; `on_answer` gets what wire.answer_of makes of the answer, or None without one."""
        client = self._clients[source.name]
        replica_id = self.replicas[target][0] if target in self.replicas else -1
        names = {address: name for name, (_, address) in self.replicas.items()}

        def answered(reply: RemotingCommand | None) -> None:
            on_answer(None if reply is None else wire.answer_of(request, reply, names))

        def leaves(reply: RemotingCommand) -> None:
            self.on_answer_leaves(target, request, reply)

        address = self.addresses[target]
        self.on_ask(target, request)
        client.ask(address, wire.command_of(request, replica_id), answered, timeout_s=timeout_s, on_written=leaves)
        if may_double and self.loop.random.random() < self.doubling:
            again = wire.command_of(request, replica_id)
            delay_s = self.loop.random.random()
            self.loop.after(delay_s, lambda: client.ask(address, again, lambda reply: None, timeout_s=timeout_s))

    # --- hosts

    def add_host(self, name: str, ip: str) -> None:
        self._hosts[ip] = name
        self._endpoints.setdefault(name, [])

    def add_program(self, address: str, program: Accepts) -> None:
        ip, port = address.split(":")
        self._programs[ip, int(port)] = program

    def heal(self) -> None:
        """All packets arrive, soon."""
        self.blocked.clear()
        self.loss = self.doubling = self.slow = 0.0

    def process_ended(self, host: str, *, power_cut: bool = False) -> None:
        """The machine's connections end with its process; after a power cut the other ends do not notice."""
        for address, listener in list(self._listeners.items()):
            if self._hosts[address[0]] == host:
                del self._listeners[address]
                listener.closed = True
                for endpoint in listener.waiting:
                    endpoint.end()
        endpoints, self._endpoints[host] = self._endpoints[host], []
        for endpoint in endpoints:
            if power_cut:
                endpoint.vanish()
            else:
                endpoint.end()

    def reset(self, hosts: Sequence[str], other: str) -> None:
        """What is between them drops their connections: these hosts notice at once, the other one later."""
        for endpoint in [one for host in hosts for one in self._endpoints.get(host, []) if one.other.host == other]:
            endpoint.reset()

    # --- sockets

    def listen(self, process: TrioProcess, ip: str, port: int) -> Listener:
        if process.dead:
            raise Killed
        if (ip, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[ip, port] = Listener(self, (ip, port), process)
        return listener

    def forget(self, address: tuple[str, int]) -> None:
        self._listeners.pop(address, None)

    def connect(self, host: str, own_ip: str, address: str, done: Callable[[Endpoint | None], None]) -> None:
        """Open a connection; `done` gets its near end, or None when it is refused. A packet that a cut holds up is sent again."""
        ip, _, port = address.rpartition(":")
        target = (ip, int(port))
        self._ports += 1
        near = Endpoint(self, host, (own_ip, self._ports))

        def arrive() -> None:
            other_host = self._hosts.get(ip)
            if other_host is None:
                return
            if (host, other_host) in self.blocked or (other_host, host) in self.blocked:
                self.loop.after(_LONGEST_RETRANSMIT_S, arrive)
                return
            listener, program = self._listeners.get(target), self._programs.get(target)
            if listener is None and program is None:
                self.loop.after(self.delay_s(), lambda: done(None))
                return
            far = Endpoint(self, other_host, target)
            near.other, far.other = far, near
            self._keep(other_host, far)
            self._keep(host, near)
            if listener is not None:
                far.process = listener.process
                listener.waiting.append(far)
                listener.changed()
            else:
                assert program is not None, "one of the two"
                program.accept(far)
            self.loop.after(self.delay_s(), lambda: done(near))

        self.loop.after(self.delay_s(), arrive)

    def _keep(self, host: str, endpoint: Endpoint) -> None:
        kept = self._endpoints.setdefault(host, [])
        if len(kept) > 64:
            kept[:] = [one for one in kept if not one.closed]
        kept.append(endpoint)

    def delay_s(self) -> float:
        """How long the next packet takes."""
        random = self.loop.random
        delay_s = 0.0002 + random.random() * 0.002
        while random.random() < self.loss:
            delay_s += _FIRST_RETRANSMIT_S
        if self.slow and random.random() < self.slow:
            delay_s += random.expovariate(2.0)
        return delay_s


class ProcessNetwork:
    """Implements brokerd.environment.Network for one process."""

    def __init__(self, network: Network, process: TrioProcess, host: str, ip: str) -> None:
        self._network = network
        self._process = process
        self._host = host
        self._ip = ip

    def listen(self, host: str, port: int, backlog: int) -> Any:
        return self._network.listen(self._process, self._ip, port)

    async def connect(self, host: str, port: int) -> SimStream:
        if self._process.dead:
            raise Killed
        task = trio.lowlevel.current_task()
        found: list[Endpoint | None] = []
        waits = [True]

        def done(endpoint: Endpoint | None) -> None:
            if waits[0] and not self._process.dead:
                waits[0] = False
                found.append(endpoint)
                if endpoint is not None:
                    endpoint.process = self._process
                self._process.wake(task)
            elif endpoint is not None:
                endpoint.end()

        def abort(_raise: object) -> trio.lowlevel.Abort:
            if not waits[0]:
                return trio.lowlevel.Abort.FAILED
            waits[0] = False
            return trio.lowlevel.Abort.SUCCEEDED

        self._network.connect(self._host, self._ip, f"{host}:{port}", done)
        await trio.lowlevel.wait_task_rescheduled(abort)
        if found[0] is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return SimStream(found[0])


class SimStream:
    """A connection that the process opened."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def send_all(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._endpoint.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._endpoint)

    async def receive_some(self, max_bytes: int) -> bytes:
        waited = False
        while True:
            try:
                data = self._endpoint.recv(max_bytes)
            except BlockingIOError:
                waited = True
                await trio.lowlevel.wait_readable(self._endpoint)
                continue
            if not waited:
                await trio.lowlevel.checkpoint()
            return data

    def close(self) -> None:
        self._endpoint.close()


class RemotingProgram:
    """A client without a process: one connection to each address, requests by number, answers to callbacks."""

    def __init__(self, network: Network, name: str, ip: str) -> None:
        self.network = network
        self.loop = network.loop
        self.name = name
        self.ip = ip
        self._connections: dict[str, _ClientConnection] = {}
        network.add_host(name, ip)

    def ask(
        self,
        address: str,
        command: RemotingCommand,
        on_answer: Callable[[RemotingCommand | None], None],
        *,
        timeout_s: float,
        on_written: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        """`on_answer` gets the answer, or None when there is none in time; `on_written` sees it as it leaves the other end."""
        connection = self._connections.get(address)
        if connection is None or connection.gone:
            connection = self._connections[address] = _ClientConnection(self, address)
        connection.ask(command, on_answer, timeout_s, on_written)

    def drop(self, address: str) -> None:
        """Close the connection to there."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


class _ClientConnection:
    def __init__(self, program: RemotingProgram, address: str) -> None:
        self.gone = False
        self._loop = program.loop
        self._endpoint: Endpoint | None = None
        self._decoder = Decoder()
        self._written_decoder = Decoder()
        self._unsent: list[bytes] = []
        self._waiting: dict[int, Callable[[RemotingCommand | None], None]] = {}
        self._watching: dict[int, Callable[[RemotingCommand], None]] = {}
        program.network.connect(program.name, program.ip, address, self._connected)

    def ask(
        self,
        command: RemotingCommand,
        on_answer: Callable[[RemotingCommand | None], None],
        timeout_s: float,
        on_written: Callable[[RemotingCommand], None] | None,
    ) -> None:
        opaque = command.opaque
        self._waiting[opaque] = on_answer
        if on_written is not None:
            self._watching[opaque] = on_written
        self._loop.after(timeout_s, lambda: self._settle(opaque, None))
        data = command.encode()
        if self._endpoint is None:
            self._unsent.append(data)
        else:
            self._send(data)

    def _send(self, data: bytes) -> None:
        assert self._endpoint is not None, "it is connected"
        try:
            self._endpoint.send(data)
        except OSError:
            self._lost()

    def _connected(self, endpoint: Endpoint | None) -> None:
        if endpoint is None or self.gone:
            if endpoint is not None:
                endpoint.end()
            self._lost()
            return
        self._endpoint = endpoint
        endpoint.on_data = self._received
        endpoint.on_closed = self._lost
        endpoint.other.on_sent = self._leaves
        for data in self._unsent:
            self._send(data)

    def _received(self, data: bytes) -> None:
        self._decoder.receive_data(data)
        for reply in self._decoder.commands():
            if reply.is_response:
                self._settle(reply.opaque, reply)

    def _leaves(self, data: bytes) -> None:
        if self._watching:
            self._written_decoder.receive_data(data)
            for reply in self._written_decoder.commands():
                watch = self._watching.pop(reply.opaque, None)
                if watch is not None and reply.is_response:
                    watch(reply)

    def _settle(self, opaque: int, reply: RemotingCommand | None) -> None:
        on_answer = self._waiting.pop(opaque, None)
        if on_answer is not None:
            on_answer(reply)

    def _lost(self) -> None:
        self.gone = True
        waiting, self._waiting = self._waiting, {}
        for on_answer in waiting.values():
            on_answer(None)

    def close(self) -> None:
        self.gone = True
        if self._endpoint is not None:
            self._endpoint.close()
