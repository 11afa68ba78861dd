"""The broker as a client: one connection to a name server or another broker, one request at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import trio

from brokerd.peer import DISCONNECT_BYTES
from mqwire.command import RemotingCommand
from mqwire.connection import DEFAULT_MAX_FRAME_BYTES, Connection
from mqwire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from mqwire.tls_connection import Connected

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 3.0
_RECEIVE_BYTES: Final = 64 * 1024


class RequestFailed(Exception):
    """No answer came: the text says why."""


class ConnectionLost(RequestFailed):
    """The connection was refused, or ended before the answer: the program at the other end is gone, or its host is."""


# A replica sends a record whole, however long, and may take longer ones than this broker: what a connection may leave unread.
_RECORD_FRAME_BYTES: Final = DISCONNECT_BYTES


class RemotingClient:
    """Requests to `address` ("ip:port"), one after the other, over a connection that is opened when needed.

    `sign` adds the credentials to a request, or does nothing; `connect` opens a connection to a host's port.
    `takes_records`: answers may be as long as a record is.
    """

    def __init__(
        self,
        address: str,
        *,
        sign: Callable[[RemotingCommand], None],
        connect: Callable[[str, int], Awaitable[Connected]],
        takes_records: bool = False,
    ) -> None:
        self.address = address
        self._sign = sign
        self._connect = connect
        self._stream: Connected | None = None
        self._max_frame_bytes = _RECORD_FRAME_BYTES if takes_records else DEFAULT_MAX_FRAME_BYTES
        self._connection = Connection(max_frame_bytes=self._max_frame_bytes)
        self._lock = trio.Lock()

    async def request(self, command: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        """The reply to `command`; raises RequestFailed when none comes in time."""
        try:
            with trio.fail_after(timeout_s):
                async with self._lock:
                    return await self._exchange(command)
        except trio.TooSlowError:
            self.close()
            raise RequestFailed(f"no answer within {timeout_s:g} s") from None
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.close()
            raise ConnectionLost(str(error) or type(error).__name__) from error
        except RemoteProtocolError as error:
            self.close()
            raise RequestFailed(f"it does not speak the remoting protocol: {error}") from error
        except (ValueError, OverflowError) as error:  # of some replica's list: no reason to end this one
            raise RequestFailed(f"{self.address[:80]!a} is no address where anything answers: {error}") from error

    async def _exchange(self, command: RemotingCommand) -> RemotingCommand:
        if self._stream is None:
            host, _, port = self.address.rpartition(":")
            with trio.fail_after(_CONNECT_TIMEOUT_S):
                self._stream = await self._connect(host.strip("[]"), int(port))
            self._connection = Connection(max_frame_bytes=self._max_frame_bytes)
        self._sign(command)
        await self._stream.send_all(command.encode())
        while True:
            for reply in self._connection.commands():
                if reply.is_response and reply.opaque == command.opaque:
                    return reply
            data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not data:
                raise trio.BrokenResourceError("the other end closed the connection")
            self._connection.receive_data(data)

    async def closed_or(self, event: trio.Event) -> None:
        """Return when the other end closes the connection, or `event` is set."""
        async with trio.open_nursery() as nursery:

            async def until_event() -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_event)
            stream = self._stream
            if stream is not None:
                try:
                    # Nothing but an end can come between requests: a name server pushes nothing that we need.
                    while await stream.receive_some(_RECEIVE_BYTES):
                        pass
                except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                    logger.debug("name server %s: %s", self.address, error)
                self.close()
            nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Drop the connection; the next request opens another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
