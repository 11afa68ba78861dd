"""Which processor takes which request code; all sends of one wake-up go to theirs together.

Nothing that a request does may end its connection but a breach of the protocol: a handler's failure is logged here and
answered with SYSTEM_ERROR.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from brokerd.acl import credential_of, is_platforms
from brokerd.acl_needs import NEEDS, Level
from brokerd.client_channel import Peer
from brokerd.peer import PAUSE_READING_BYTES, PAUSE_STRANGER_BYTES
from brokerd.processors.context import Broker, Handler, MetadataLog
from brokerd.processors.pull_message import PullMessageProcessor
from brokerd.processors.send_message import SEND_CODES, SendMessageProcessor
from brokerd.replies import AfterDurable, AfterOffsets
from mqwire.codes import HighwaterRequestCode, RequestCode, ResponseCode
from mqwire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from brokerd.acl_file import Account
    from mqwire.command import RemotingCommand

logger = logging.getLogger(__name__)

# These read nothing of the store.
_SERVED_WHILE_REOPENING = frozenset(
    {RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.GET_CONSUMER_LIST_BY_GROUP}
)
# Others must not wait for more than this many. Sends go to the store together, and with a signature
# 256 of them held others up for 14 ms (`python -m tests.security.attacks`).
_REQUESTS_PER_TURN: Final = 128
_SENDS_PER_TURN: Final = 128
_TURN_S: Final = 0.002
_REST_MAX_S: Final = 1.0  # a look that met a disk that hung has cost no one's processor time
# What programs and replicas do all the time. All else is someone's look or change: it may read a thousand queues.
_EVERYDAY = frozenset(
    {
        *SEND_CODES,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        *(code for code, needs in NEEDS.items() if needs is Level.INFRASTRUCTURE),
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        HighwaterRequestCode.REPLICA_STATUS,
    }
)
LOOKS = frozenset(NEEDS) - _EVERYDAY
_PULL_CODES = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})


class WaitingPeer(Peer, Protocol):
    """A connection whose next request may have to wait for its turn."""

    checked_for: Account | None  # whose that request was, which was checked before it waited


class _Gate(Protocol):
    @property
    def closed(self) -> bool: ...


class _ReplicaServer(Protocol):
    def pull(self, peer: Peer, request: RemotingCommand) -> None: ...


class _MetadataLog(MetadataLog, Protocol):
    def answer_with_offsets(self, peer: Peer, frame: bytes) -> None: ...


class _Broker(Broker, Protocol):
    """What the dispatcher uses of the broker: what processors do, and what takes the requests that none of them does."""

    @property
    def store_gate(self) -> _Gate: ...

    @property
    def replica_server(self) -> _ReplicaServer: ...

    @property
    def metadata_log(self) -> _MetadataLog: ...


class Dispatcher:
    """Gives commands to processors and writes their answers to the peer; flushing is the caller's."""

    def __init__(self, broker: _Broker, handlers: Mapping[int, Handler]) -> None:
        self._broker = broker
        self._handlers = dict(handlers)
        unlisted = sorted(code for code in handlers if code not in NEEDS)
        if unlisted:
            raise RuntimeError(f"acl_needs.py does not say who may use the request codes {unlisted}")
        self._looks_took_s = 0.0  # since they rested
        self._looks_from_s = float("-inf")  # they rest until then
        self._sends = SendMessageProcessor(broker)
        self.pulls = PullMessageProcessor(broker)

    def pause_s(self, peer: Peer, code: int) -> float:
        """How long a request of this code has to wait for its turn: looks rest as long as they took, a second at most, whichever
        client's they are. So all of them, over however many connections, leave half of the time to what programs do. The
        platform's wait for no one's, nor does a stranger's, which is refused or shows an account first.
        """
        if code not in LOOKS or peer.is_platform or not peer.proven:
            return 0.0
        return max(0.0, self._looks_from_s - self._broker.clock.monotonic())

    def dispatch(self, peer: WaitingPeer, commands: Sequence[RemotingCommand]) -> int:
        """Serve `commands` in their order; returns how many. The others wait for this peer's next turn: it has much unread,
        or has had as many answers as one turn has, or looks rest.
        """
        sends: list[RemotingCommand] = []
        left = _REQUESTS_PER_TURN
        monotonic = self._broker.clock.monotonic
        until_s = monotonic() + _TURN_S
        for number, command in enumerate(commands):
            if command.code in SEND_CODES and not command.flag & 1:
                sends.append(command)
                if len(sends) < _SENDS_PER_TURN:
                    continue
                return number + 1 - self._left_by(peer, sends, until_s)
            if sends:
                if unsent := self._left_by(peer, sends, until_s):
                    return number - unsent
                sends = []
            if command.flag & 1:
                self._take_answer(peer, command)
                continue
            if not left or peer.pending_bytes > (PAUSE_READING_BYTES if peer.proven else PAUSE_STRANGER_BYTES):
                return number
            left -= 1
            if command.code in LOOKS:
                if not self._look(peer, command):
                    return number
            elif self._admit(peer, command):
                self._serve(peer, command)
            if monotonic() > until_s:
                left = 0
        return len(commands) - (self._left_by(peer, sends, until_s) if sends else 0)

    def _look(self, peer: WaitingPeer, request: RemotingCommand) -> bool:
        """Refuse a look at once, or serve it; False: it may be served, and has to wait for its turn.

        What is refused is no look: strangers would have everyone's rest. So it is checked before it waits, and as a signature
        of version 2 passes no second time, the peer keeps the account that it was checked for.
        """
        checked_for, peer.checked_for = peer.checked_for, None
        if not self._admit(peer, request, checked_for):
            return True
        monotonic = self._broker.clock.monotonic
        began_s = monotonic()
        if began_s < self._looks_from_s and not peer.is_platform:
            acl = self._broker.acl
            peer.checked_for = None if acl is None else acl.accounts.get(credential_of(acl, request))
            return False
        self._serve(peer, request)
        self._rest(monotonic() - began_s)
        return True

    def _rest(self, took_s: float) -> None:
        self._looks_took_s += took_s
        if self._looks_took_s > _TURN_S:
            until_s = self._broker.clock.monotonic() + min(self._looks_took_s, _REST_MAX_S)
            # They may rest already, while the platform looks.
            self._looks_from_s = max(self._looks_from_s, until_s)
            self._looks_took_s = 0.0

    def _take_answer(self, peer: Peer, answer: RemotingCommand) -> None:
        try:
            self._broker.client_calls.answered(peer, answer)
        except Exception:
            logger.exception("%r: its answer %d could not be handed on", peer, answer.opaque)

    def _left_by(self, peer: Peer, requests: list[RemotingCommand], until_s: float) -> int:
        """Serve these sends; returns how many of them are left for the next turn."""
        try:
            return len(requests) - self._sends.process(peer, requests, until_s)
        except Exception:
            logger.exception("%r: %d sends failed", peer, len(requests))
            for request in requests:
                self._answer_failure(peer, request)
            return 0

    def _admit(self, peer: Peer, request: RemotingCommand, checked_for: Account | None = None) -> bool:
        """Whether a request may be served; if not, it is answered. `checked_for`: whose it was when it passed before it waited."""
        broker = self._broker
        try:
            if broker.acl is not None:
                if checked_for is None:
                    remark = broker.acl.check(request, peer.remote_address, has_certificate=peer.has_certificate)
                else:
                    remark = broker.acl.check_again(
                        request, peer.remote_address, checked_for, has_certificate=peer.has_certificate
                    )
                if remark is not None:
                    self._write(peer, request, request.reply(ResponseCode.NO_PERMISSION, remark))
                    return False
            if not peer.proven:
                access_key = credential_of(broker.acl, request)
                peer.is_platform = is_platforms(broker.acl, request, has_certificate=peer.has_certificate)
                remark = broker.quotas.connect(access_key, peer)
                if remark is not None:
                    self._write(peer, request, request.reply(ResponseCode.SYSTEM_BUSY, remark))
                    return False
                peer.proven, peer.access_key = True, access_key
        except RemoteProtocolError as error:
            self._write(peer, request, request.reply(ResponseCode.SYSTEM_ERROR, str(error)))
            return False
        except Exception:
            logger.exception("%r: request %d failed", peer, request.code)
            self._answer_failure(peer, request)
            return False
        return True

    def _serve(self, peer: Peer, request: RemotingCommand) -> None:
        broker = self._broker
        code = request.code
        try:
            if broker.store_gate.closed and code not in _SERVED_WHILE_REOPENING:
                remark = "the broker opens its log again, after it was put right or truncated; try again in a moment"
                self._write(peer, request, request.reply(ResponseCode.SYSTEM_BUSY, remark))
                return
            if code in _PULL_CODES:
                self.pulls.process(peer, request)
                return
            if code == HighwaterRequestCode.REPLICA_PULL:
                broker.replica_server.pull(peer, request)
                return
            handler = self._handlers.get(code)
            if handler is None:
                reply: object = request.reply(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {code} is not supported by this broker"
                )
            else:
                reply = handler(broker, peer, request)
        except RemoteProtocolError as error:
            reply = request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        except Exception:
            logger.exception("%r: request %d failed", peer, code)
            self._answer_failure(peer, request)
            return
        if isinstance(reply, AfterDurable):
            if not request.is_oneway:
                broker.answer_when_held(peer, reply.end_offset_bytes, [reply.reply.encode()])
        elif isinstance(reply, AfterOffsets):
            if request.is_oneway:
                broker.metadata_log.offsets_changed()
            else:
                broker.metadata_log.answer_with_offsets(peer, reply.reply.encode())
        elif reply is not None:
            self._write(peer, request, reply)  # type: ignore[arg-type] # a Reply is one of these three

    @staticmethod
    def _write(peer: Peer, request: RemotingCommand, reply: RemotingCommand) -> None:
        if not request.is_oneway:
            peer.write(reply.encode())

    def _answer_failure(self, peer: Peer, request: RemotingCommand) -> None:
        self._write(
            peer,
            request,
            request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"the broker failed on request {request.code}; its log on {self._broker.config.broker_name} says why",
            ),
        )
