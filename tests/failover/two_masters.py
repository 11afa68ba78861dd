"""Sends to both replicas of a group at once, past the name servers, to see whether two of them ever take sends."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType

from highwater import Credentials
from mqwire.acl import SessionCredentials, sign_request
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_send import SendMessageRequestHeader

_TAKEN = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
_TIMEOUT_S = 5.0
_PAUSE_S = 0.01


@dataclass(frozen=True)
class Taken:
    """A send that a replica took: when it was asked, and when the answer was there, on one clock."""

    address: str
    body: str
    asked_s: float
    answered_s: float
    acknowledged: bool


class EverySender:
    """One thread for each address sends numbers until the block ends."""

    def __init__(self, addresses: Sequence[str], topic: str, credentials: Credentials) -> None:
        self.taken: list[Taken] = []
        self._topic = topic
        self._credentials = SessionCredentials(credentials.access_key, credentials.secret_key)
        self._name = uuid.uuid4().hex[:8]  # each message is another, in all tests of a topic
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(address,)) for address in addresses]

    def __enter__(self) -> EverySender:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def acknowledged(self) -> list[str]:
        """The bodies that were answered SEND_OK."""
        return [taken.body for taken in self.taken if taken.acknowledged]

    def masters(self) -> list[str]:
        """Who took sends, in order; fails when one still took a send that was asked for after another had answered one."""
        order: list[str] = []
        for taken in sorted(self.taken, key=lambda taken: taken.asked_s):
            if not order or order[-1] != taken.address:
                order.append(taken.address)
        assert max(Counter(order).values(), default=0) <= 1, f"they took sends in turns: {order}"
        return order

    def _run(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        numbers = count()
        while not self._stop.is_set():
            try:
                with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as stream:
                    stream.settimeout(_TIMEOUT_S)
                    incoming = Connection()
                    while not self._stop.wait(_PAUSE_S):
                        self._send(stream, incoming, address, f"{self._name}/{address}/{next(numbers)}")
            except OSError:
                self._stop.wait(0.05)

    def _send(self, stream: socket.socket, incoming: Connection, address: str, body: str) -> None:
        header = SendMessageRequestHeader(
            producer_group="every",
            topic=self._topic,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE, header, body=body.encode())
        sign_request(request, self._credentials)
        asked_s = time.monotonic()
        stream.sendall(request.encode())
        while True:
            data = stream.recv(65536)
            if not data:
                raise ConnectionError("closed")
            incoming.receive_data(data)
            for reply in incoming.commands():
                if reply.opaque == request.opaque:
                    if reply.code in _TAKEN:
                        ok = reply.code == ResponseCode.SUCCESS
                        self.taken.append(Taken(address, body, asked_s, time.monotonic(), ok))
                    return
