"""ClientCalls: what this broker asks of a client because another client asked it to, and which request waits for the answer.

A client answers with the opaque of our request, so an answer counts only over the connection that the request went out
on. In memory only; the clock is passed in. Source: Broker2Client.callClient, which blocks a thread for as long.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mqwire.codes import ResponseCode
from mqwire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from brokerd.client_channel import Peer
    from mqwire.command import RemotingCommand

CALL_TIMEOUT_S: Final = 10.0
# An administrator's few looks; more at once are a mistake, or an attempt to keep a consumer from its work.
CALLS_PER_CLIENT_MAX: Final = 8
CALLS_MAX: Final = 1024
# Of the answers that one request gathers, and of all that are gathered: they are kept until the last has come.
GATHERED_BYTES_MAX: Final = 512 * 1024
GATHERED_BYTES_OF_ALL_MAX: Final = 8 * 1024 * 1024
# A request may carry a message, and a connection with much more unread than this is ended.
UNREAD_MAX_BYTES: Final = 4 * 1024 * 1024
# Two bytes in the binary header, which the requester's answer may have.
_CODE_MAX: Final = 0x7FFF
_SHOWN_CHARACTERS: Final = 128  # of a client's id in the log

logger = logging.getLogger("brokerd.client_calls")


@dataclass(frozen=True, slots=True)
class _Call:
    called: str  # the client, as remarks name it
    requester: Peer
    request: RemotingCommand
    deadline_s: float
    gathering: _Gathering | None = None


@dataclass(slots=True)
class _Gathering:
    """One request that several clients answer. Who fails to, or says too much, is left out."""

    waits_for: int
    read: Callable[[RemotingCommand], bytes]
    combine: Callable[[Mapping[str, bytes]], bytes]
    answers: dict[str, bytes] = field(default_factory=dict)  # what was read of them
    size_bytes: int = 0


class ClientCalls:
    """Calls that have no answer yet.

    Invariant: they are in the order of their deadlines, since all have the same time.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], _Call] = {}  # by connection and opaque
        self._opaques: dict[int, set[int]] = {}  # of each connection

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def room(self) -> int:
        """How many more clients can be asked now."""
        return CALLS_MAX - len(self._calls)

    def refusal(self, client: Peer) -> str | None:
        """Why the client is asked nothing more now, as a remark; None when it can be."""
        if len(self._opaques.get(client.id, ())) >= CALLS_PER_CLIENT_MAX:
            return f"it has yet to answer {CALLS_PER_CLIENT_MAX} requests"
        if client.pending_bytes > UNREAD_MAX_BYTES:
            return f"it has yet to read {client.pending_bytes} bytes"
        if self.room <= 0:
            return f"this broker waits for {CALLS_MAX} answers of clients already"
        return None

    def call(
        self,
        client: Peer,
        command: RemotingCommand,
        *,
        called: str,
        requester: Peer,
        request: RemotingCommand,
        now_s: float,
    ) -> None:
        """Send `command` to the client; its answer becomes that to the requester's `request`. Ask `refusal` first."""
        self._calls[client.id, command.opaque] = _Call(called, requester, request, now_s + CALL_TIMEOUT_S)
        self._opaques.setdefault(client.id, set()).add(command.opaque)
        client.send(command)

    def call_each(
        self,
        clients: Mapping[str, tuple[Peer, RemotingCommand]],
        *,
        requester: Peer,
        request: RemotingCommand,
        read: Callable[[RemotingCommand], bytes],
        combine: Callable[[Mapping[str, bytes]], bytes],
        now_s: float,
    ) -> None:
        """Send each client, by its id, its command; once all have answered or can't any more, `combine` makes the body of the
        requester's answer of what `read` made of each answer that came. It does so as they come: read together, many would hold
        up everyone. Raised RemoteProtocolErrors leave an answer out. Ask `refusal` of each first, and whether there is `room` for
        all.
        """
        gathering = _Gathering(len(clients), read, combine)
        for client_id, (client, command) in clients.items():
            call = _Call(client_id, requester, request, now_s + CALL_TIMEOUT_S, gathering)
            self._calls[client.id, command.opaque] = call
            self._opaques.setdefault(client.id, set()).add(command.opaque)
            client.send(command)

    def answered(self, client: Peer, answer: RemotingCommand) -> None:
        """A client answered something: relay it if someone waits for it."""
        call = self._take(client.id, answer.opaque)
        if call is None:
            logger.debug("%r answers %d, which no one waits for", client, answer.opaque)
            return
        if call.gathering is not None:
            _gather(call, call.gathering, self._read(call, call.gathering, answer))
            return
        if not -_CODE_MAX <= answer.code <= _CODE_MAX:
            _reply(
                call, ResponseCode.SYSTEM_ERROR, f"{call.called} answered with the code {answer.code}, which is none"
            )
            return
        # Not the extension fields: these answers have none, and what a client writes there is its own word alone.
        reply = call.request.reply(answer.code, answer.remark, body=answer.body)
        reply.language = answer.language
        _send(call, reply)

    def expire(self, now_s: float) -> None:
        """Answer the requests that have waited too long."""
        while self._calls:
            key, call = next(iter(self._calls.items()))
            if call.deadline_s > now_s:
                return
            self._take(*key)
            _reply(
                call,
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"{call.called} Timeout: no answer within {CALL_TIMEOUT_S:g} s; it may be busy, or its listener still at work",
            )

    def close_peer(self, peer: Peer) -> None:
        """A connection ended: what it was asked stays unanswered, what it asked has no reader."""
        for opaque in list(self._opaques.get(peer.id, ())):
            call = self._take(peer.id, opaque)
            if call is not None:
                _reply(call, ResponseCode.SYSTEM_ERROR, f"{call.called} disconnected before it answered; ask again")
        for key in [key for key, call in self._calls.items() if call.requester is peer]:
            self._take(*key)

    def _read(self, call: _Call, gathering: _Gathering, answer: RemotingCommand) -> bytes | None:
        if answer.code != ResponseCode.SUCCESS:
            return None
        size_bytes = len(answer.body)
        if self._has_room(gathering, size_bytes):
            try:
                found = gathering.read(answer)
            except RemoteProtocolError as error:
                logger.warning("%s answered what cannot be read: %s", call.called[:_SHOWN_CHARACTERS], error)
                return None
            more_bytes = max(size_bytes, len(found))
            if more_bytes == size_bytes or self._has_room(gathering, more_bytes):
                gathering.size_bytes += more_bytes
                return found
        logger.warning(
            "%s answered with %d bytes, which are too many: left out", call.called[:_SHOWN_CHARACTERS], size_bytes
        )
        return None

    def _has_room(self, gathering: _Gathering, more_bytes: int) -> bool:
        if gathering.size_bytes + more_bytes > GATHERED_BYTES_MAX:
            return False
        all_of_them = {id(gathering): gathering}
        all_of_them.update((id(call.gathering), call.gathering) for call in self._calls.values() if call.gathering)
        held_bytes = sum(one.size_bytes for one in all_of_them.values())
        return held_bytes + more_bytes <= GATHERED_BYTES_OF_ALL_MAX

    def _take(self, client_id: int, opaque: int) -> _Call | None:
        call = self._calls.pop((client_id, opaque), None)
        if call is not None:
            opaques = self._opaques[client_id]
            opaques.discard(opaque)
            if not opaques:
                del self._opaques[client_id]
        return call


def _reply(call: _Call, code: int, remark: str) -> None:
    if call.gathering is not None:
        _gather(call, call.gathering, None)
        return
    _send(call, call.request.reply(code, remark))


def _gather(call: _Call, gathering: _Gathering, found: bytes | None) -> None:
    if found is not None:
        gathering.answers[call.called] = found
    gathering.waits_for -= 1
    if gathering.waits_for == 0:
        _send(call, call.request.reply(body=gathering.combine(gathering.answers)))


def _send(call: _Call, reply: RemotingCommand) -> None:
    if not call.requester.closed:
        call.requester.send(reply)
