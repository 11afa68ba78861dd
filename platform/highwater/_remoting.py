"""Requests and answers over one multiplexed connection per address.

A channel has two tasks: the reader takes whatever arrived, decodes every complete command and wakes the waiters by
opaque; the writer sends everything that has been queued since its last turn in one piece. A caller that gives up
(timeout, cancellation) leaves only its waiter behind, never half a frame. Requests that the other end pushes are served
in tasks of their own.

When a channel breaks, its waiters get ConnectionLostError and the next request dials again. A channel over which nothing
comes while a request waits in vain is left, too: something between the two ends may swallow every byte. After a failed
dial the address is left alone for a moment that grows with each failure; requests in that time fail at once, so
that a producer turns to the next broker instead of waiting.
"""

from __future__ import annotations

import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import inf

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from highwater._models import Credentials
from highwater._network import AnyioBackend, NetworkBackend, NetworkStream, parse_address
from highwater._patience import Patience
from highwater._wait_budget import WaitBudget
from highwater.errors import (
    ClientStateError,
    ConnectError,
    ConnectionLostError,
    HighwaterError,
    ProtocolError,
    RequestTimeoutError,
)
from highwater.sentences import say
from mqwire import acl
from mqwire.codes import ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.errors import LocalProtocolError, RemoteProtocolError

logger = logging.getLogger("highwater")

RequestHandler = Callable[[str, RemotingCommand], Awaitable[RemotingCommand | None]]

RECEIVE_BYTES = 256 * 1024
# A pull answer may be larger than any single message: 32 messages of the largest size that brokers commonly allow.
MAX_FRAME_BYTES = 256 * 1024 * 1024
# Above this many unsent bytes a sender waits, so that one-way senders can't fill the memory of a slow connection.
MAX_UNSENT_BYTES = 4 * 1024 * 1024
BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 3.0
# A channel is left when a request ran out of its time, was sent this long ago, and nothing has come since.
SILENT_AFTER_SECONDS = 1.0
# Requests that were sent over it may yet be answered; then it is closed, for a broker counts each connection of a consumer.
LAST_ANSWERS_SECONDS = 3.0
# A request whose caller has a time of its own is cancelled with it, a moment before it runs out by itself.
TIMER_SLACK_SECONDS = 0.05
# Sent in pieces of this size: one that had to wait, and was taken then, says that the other end takes bytes.
PIECE_BYTES = 256 * 1024
WAITED_SECONDS = 0.01


class _Waiter:
    """One request that awaits its answer."""

    __slots__ = ("error", "event", "response")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.response: RemotingCommand | None = None
        self.error: HighwaterError | None = None


class _Channel:
    """One open connection."""

    def __init__(self, address: str, stream: NetworkStream) -> None:
        self.address = address
        self.waiters: dict[int, _Waiter] = {}
        self.broken: HighwaterError | None = None
        self.unanswered = anyio.Event()  # set when no one waits any more on a channel that was left
        self._heard_s = -inf  # when bytes came last, or were taken
        self._silent_since_s = inf  # when the first request was sent of those that ran out of their time since then
        self._stream = stream
        self._connection = Connection(max_frame_bytes=MAX_FRAME_BYTES, max_header_bytes=MAX_FRAME_BYTES)
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._work = anyio.Event()
        self._drained = anyio.Event()

    async def queue_frame(self, frame: bytes) -> None:
        """Hand a frame to the writer; waits only while too much is unsent."""
        while self._unsent_bytes > MAX_UNSENT_BYTES and self.broken is None:
            await self._drained.wait()
        if self.broken is not None:
            raise self.broken
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)
        self._work.set()

    async def write_loop(self) -> None:
        """Send what is queued until the channel breaks."""
        while True:
            await self._work.wait()
            if self.broken is not None:
                return
            self._work = anyio.Event()
            data = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
            self._unsent.clear()
            for start in range(0, len(data), PIECE_BYTES):
                offered_s = anyio.current_time()
                await self._stream.send(data[start : start + PIECE_BYTES] if len(data) > PIECE_BYTES else data)
                if anyio.current_time() - offered_s > WAITED_SECONDS:
                    self._heard_s, self._silent_since_s = anyio.current_time(), inf
            self._unsent_bytes -= len(data)
            self._drained.set()
            self._drained = anyio.Event()

    async def read_loop(self, serve: Callable[[RemotingCommand], None]) -> None:
        """Receive and hand out until the channel breaks."""
        connection = self._connection
        waiters = self.waiters
        while True:
            data = await self._stream.receive(RECEIVE_BYTES)
            self._heard_s, self._silent_since_s = anyio.current_time(), inf
            connection.receive_data(data)
            # Twice at most: an error after good commands comes with the second call.
            while commands := connection.commands():
                for command in commands:
                    if command.is_response:
                        waiter = waiters.pop(command.opaque, None)
                        if waiter is not None:
                            waiter.response = command
                            waiter.event.set()
                    else:
                        serve(command)

    async def fail(self, error: HighwaterError) -> None:
        """Break: every waiter gets `error`, both loops end."""
        if self.broken is None:
            self.broken = error
            self._work.set()
            self._drained.set()
            for waiter in self.waiters.values():
                waiter.error = error
                waiter.event.set()
            self.waiters.clear()
            await self._stream.aclose()

    def ran_out(self, sent_s: float) -> None:
        """A request that was sent then has had no answer in its time."""
        if self._heard_s < sent_s:
            self._silent_since_s = min(self._silent_since_s, sent_s)

    @property
    def is_silent(self) -> bool:
        """Whether requests are better sent over another one."""
        return anyio.current_time() - self._silent_since_s >= SILENT_AFTER_SECONDS

    def leave(self, opaque: int) -> None:
        """A request waits no more."""
        self.waiters.pop(opaque, None)
        if not self.waiters:
            self.unanswered.set()


@dataclass(slots=True)
class _Address:
    """What is known of one address: its channel, if any, and how its last dials went."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    channel: _Channel | None = None
    failures: int = 0
    not_before: float = 0.0
    last_error: str = ""


class RemotingClient:
    """All connections of one client. Lives inside the task group that it is given."""

    def __init__(
        self,
        tasks: TaskGroup,
        *,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        backend: NetworkBackend | None = None,
        on_connected: Callable[[str], None] | None = None,
        only_addresses: Collection[str] | None = None,
        patience_ms: float | None = None,
        wait_budget: WaitBudget | None = None,
    ) -> None:
        self._tasks = tasks
        self._wait_budget = wait_budget
        self._patience = None if patience_ms is None else Patience(patience_ms)
        self._only = None if only_addresses is None else frozenset(only_addresses)
        self._sign = None if credentials is None else _signature_of(credentials)
        self._tls = tls
        self._backend: NetworkBackend = AnyioBackend() if backend is None else backend
        self._on_connected = on_connected
        self._addresses: dict[str, _Address] = {}
        self._handlers: dict[int, RequestHandler] = {}
        self._closed = False

    def handle(self, code: int, handler: RequestHandler) -> None:
        """Serve requests of `code` that the other end pushes; the handler's answer goes back unless it is None."""
        self._handlers[code] = handler

    async def invoke(self, address: str, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        """Send and await the answer, whatever its code.

        Raises ConnectError, ConnectionLostError, RequestTimeoutError, TimeSpentError or ProtocolError.
        """
        if self._patience is not None:
            timeout_ms = self._patience.timeout_ms(address, timeout_ms)
        with self._counted(address, timeout_ms) as allowed_ms:
            return await self._invoke(address, request, allowed_ms)

    async def _invoke(self, address: str, request: RemotingCommand, timeout_ms: float) -> RemotingCommand:
        began_s = anyio.current_time()
        sent_s = inf
        frame = self._encode(request)
        waiter = _Waiter()
        channel: _Channel | None = None
        with anyio.move_on_after(timeout_ms / 1000) as scope:
            try:
                channel = await self._channel(address)
                channel.waiters[request.opaque] = waiter
                sent_s = anyio.current_time()
                await channel.queue_frame(frame)
                await waiter.event.wait()
            finally:
                if channel is not None:
                    if not waiter.event.is_set():
                        await self._ran_out(address, channel, sent_s, began_s + timeout_ms / 1000)
                    channel.leave(request.opaque)
        if waiter.response is not None:
            return waiter.response
        if waiter.error is not None:
            raise _fresh(waiter.error)
        assert scope.cancelled_caught
        if self._patience is not None:
            self._patience.ran_out(address, began_s, anyio.current_time())
        if channel is None:
            raise ConnectError(
                say(
                    "no connection to %(address)s within %(timeout_ms)s ms",
                    address=address,
                    timeout_ms=round(timeout_ms),
                )
            )
        raise RequestTimeoutError(
            say(
                "no answer from %(address)s to request %(code)s within %(timeout_ms)s ms",
                address=address,
                code=int(request.code),
                timeout_ms=round(timeout_ms),
            )
        )

    async def invoke_oneway(self, address: str, request: RemotingCommand, timeout_ms: float) -> None:
        """Send and await nothing; the frame has been handed to the connection when this returns."""
        frame = self._encode(request)
        channel: _Channel | None = None
        sent_s = inf
        with (
            self._counted(address, timeout_ms) as allowed_ms,
            anyio.move_on_after(allowed_ms / 1000) as scope,
        ):
            channel = await self._channel(address)
            sent_s = anyio.current_time()
            await channel.queue_frame(frame)
        if scope.cancelled_caught and channel is not None:
            await self._ran_out(address, channel, sent_s, -inf)
        if scope.cancelled_caught:
            raise RequestTimeoutError(
                say("%(address)s took no bytes within %(timeout_ms)s ms", address=address, timeout_ms=round(timeout_ms))
            )

    async def _ran_out(self, address: str, channel: _Channel, sent_s: float, until_s: float) -> None:
        """A request has no answer: if it had its time, that counts against the channel."""
        if anyio.current_time() < until_s - TIMER_SLACK_SECONDS:
            return
        # A client that stood still has had no turn to read what has come.
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        channel.ran_out(sent_s)
        entry = self._addresses.get(address)
        if entry is not None and entry.channel is channel and not self._closed:
            self._usable_channel(entry)  # who waits for an answer there hears of it soon

    async def aclose(self) -> None:
        """Close every connection and open none any more. What one-way senders queued is sent first, for a moment."""
        self._closed = True
        for entry in self._addresses.values():
            channel = entry.channel
            if channel is not None:
                with anyio.move_on_after(1):
                    while channel._unsent_bytes and channel.broken is None:
                        await channel._drained.wait()
                await channel.fail(ConnectionLostError("the client was stopped"))

    def _counted(self, address: str, timeout_ms: float) -> AbstractContextManager[float]:
        """Counts the time until its end, where that is limited; its value is how long this request may take."""
        budget = self._wait_budget
        return nullcontext(timeout_ms) if budget is None else budget.waiting(address, timeout_ms)

    def _encode(self, request: RemotingCommand) -> bytes:
        if self._sign is not None:  # a request that is sent again is signed again
            self._sign(request)
        try:
            return request.encode()
        except LocalProtocolError as error:
            raise ProtocolError(f"the request cannot be written: {error}") from error

    async def _channel(self, address: str) -> _Channel:
        if self._closed:
            raise ClientStateError("the client was stopped")
        if self._only is not None and address not in self._only:
            raise ConnectError(say("%(address)s is no address that this client may connect to", address=address))
        entry = self._addresses.get(address)
        if entry is None:
            entry = self._addresses[address] = _Address()
        channel = self._usable_channel(entry)
        if channel is not None:
            return channel
        async with entry.lock:  # one dial for all who wait
            channel = self._usable_channel(entry)
            return await self._dial(address, entry) if channel is None else channel

    def _usable_channel(self, entry: _Address) -> _Channel | None:
        channel = entry.channel
        if channel is None or channel.broken is not None:
            return None
        if not channel.is_silent:
            return channel
        logger.debug("nothing comes from %s: its connection is left", channel.address)
        entry.channel = None
        self._tasks.start_soon(self._close_silent, channel)
        return None

    @staticmethod
    async def _close_silent(channel: _Channel) -> None:
        if channel.waiters:
            channel.unanswered = anyio.Event()
            with anyio.move_on_after(LAST_ANSWERS_SECONDS):
                await channel.unanswered.wait()
        await channel.fail(ConnectionLostError(say("nothing comes from %(address)s any more", address=channel.address)))

    async def _dial(self, address: str, entry: _Address) -> _Channel:
        wait = entry.not_before - anyio.current_time()
        if wait > 0:
            raise ConnectError(
                say("%(error)s (next try in %(wait_ms)s ms)", error=entry.last_error, wait_ms=round(wait * 1000))
            )
        host, port = parse_address(address)
        answered = False
        try:
            stream = await self._backend.connect(host, port, self._tls)
            answered = True
        except ConnectError as error:
            entry.last_error = error.args[0]
            raise
        finally:
            # Also on cancellation: a dial that was given up after its timeout is a failed dial.
            if not answered:
                self._back_off(entry, address)
        entry.failures = 0
        channel = entry.channel = _Channel(address, stream)
        self._tasks.start_soon(self._run_channel, channel)
        if self._on_connected is not None:
            self._on_connected(address)
        return channel

    @staticmethod
    def _back_off(entry: _Address, address: str) -> None:
        pause = min(BACKOFF_MAX_SECONDS, BACKOFF_FIRST_SECONDS * 2 ** min(entry.failures, 10))
        entry.failures += 1
        entry.not_before = anyio.current_time() + pause * random.uniform(0.8, 1.2)
        entry.last_error = entry.last_error or say("no connection to %(address)s in time", address=address)

    async def _run_channel(self, channel: _Channel) -> None:
        def serve(command: RemotingCommand) -> None:
            self._tasks.start_soon(self._serve, channel, command)

        error: HighwaterError = ConnectionLostError(f"the connection to {channel.address} was closed")
        try:
            async with anyio.create_task_group() as loops:
                loops.start_soon(self._loop, channel, channel.write_loop, loops)
                loops.start_soon(self._loop, channel, lambda: channel.read_loop(serve), loops)
        finally:
            with anyio.CancelScope(shield=True):
                await channel.fail(error)

    @staticmethod
    async def _loop(channel: _Channel, loop: Callable[[], Awaitable[None]], loops: TaskGroup) -> None:
        """Run one of the channel's loops; whatever ends it breaks the channel and ends the other."""
        try:
            await loop()
        except HighwaterError as error:
            logger.debug("%s", error)
            await channel.fail(error)
        except RemoteProtocolError as error:
            logger.warning("%s does not speak the protocol: %s", channel.address, error)
            await channel.fail(ProtocolError(f"{channel.address} does not speak the remoting protocol: {error}"))
        loops.cancel_scope.cancel()

    async def _serve(self, channel: _Channel, request: RemotingCommand) -> None:
        handler = self._handlers.get(request.code)
        try:
            if handler is None:
                reply: RemotingCommand | None = request.reply(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"this client does not serve request {request.code}"
                )
            else:
                reply = await handler(channel.address, request)
        except Exception as error:  # a handler's bug must not end the client
            logger.exception("request %d from %s failed", request.code, channel.address)
            reply = request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if reply is not None and not request.is_oneway:
            try:
                await channel.queue_frame(reply.encode())
            except HighwaterError as error:
                logger.debug("the answer to request %d was not sent: %s", request.code, error)


def _fresh(error: HighwaterError) -> HighwaterError:
    """A copy for one waiter: an exception that several tasks raise would collect all their tracebacks."""
    copy = type(error)(str(error), request_id=error.request_id)
    copy.__cause__ = error.__cause__
    return copy


def _signature_of(credentials: Credentials) -> Callable[[RemotingCommand], None]:
    session = acl.SessionCredentials(credentials.access_key, credentials.secret_key, credentials.security_token)
    if credentials.signature_version == 1:
        return partial(acl.sign_request, credentials=session)
    return acl.Signer(session).sign
