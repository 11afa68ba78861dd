"""A broker as a real process whose accounts are a platform's, and hands to attack it with."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from mqwire.acl import SessionCredentials, Signer, sign_request
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.headers_topic import CreateTopicRequestHeader
from tests.brokerd.acl_accounts import SEND_FIELDS
from tests.daemons import BrokerDaemon
from tests.processes import resident_bytes
from tests.remoting import connect, exchange
from tests.security.accounts import ACCOUNTS, PROGRAM, TENANT_ADMIN

MEBIBYTE = 1024 * 1024
# What the issue allows a daemon in all, under any attack; its caches are small here.
RESIDENT_MAX_BYTES = 256 * MEBIBYTE


class LiveBroker:
    """A broker with access control. `prefix` is put in front of its command line."""

    def __init__(self, folder: Path, prefix: Sequence[str] = (), **conf: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        accounts = folder / "plain_acl.yml"
        accounts.write_text(ACCOUNTS)
        keys = {
            "aclEnable": "true",
            "aclConfigFile": str(accounts),
            "mappedFileSizeCommitLog": str(64 * MEBIBYTE),
            "mappedFileSizeConsumeQueue": str(20 * 1000),
            **conf,
        }
        self.daemon = BrokerDaemon(folder, "", keys, command_prefix=prefix).start()
        self.signer = Signer(TENANT_ADMIN)
        self.create_topic("orders")
        self.create_topic("wide", queues=1000)

    @property
    def address(self) -> str:
        return self.daemon.address

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self.daemon.pid)

    @property
    def log(self) -> str:
        assert self.daemon.process is not None
        return self.daemon.process.log_path.read_text("utf-8", "replace")

    def create_topic(self, topic: str, *, queues: int = 1) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        self.signer.sign(request)
        with connect(self.address) as stream:
            assert exchange(stream, request).code == ResponseCode.SUCCESS

    def connection(self) -> socket.socket:
        return connect(self.address)

    def send(
        self, stream: socket.socket, body: bytes = b"good", credentials: SessionCredentials = PROGRAM
    ) -> RemotingCommand:
        """A good client's send."""
        return exchange(stream, send_request(body, credentials))


def send_request(body: bytes, credentials: SessionCredentials = PROGRAM) -> RemotingCommand:
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext_fields={**SEND_FIELDS, "b": "orders"}, body=body)
    sign_request(request, credentials)
    return request


def answers(stream: socket.socket, count: int) -> list[RemotingCommand]:
    """The next `count` commands that arrive."""
    incoming, found = Connection(), list[RemotingCommand]()
    while len(found) < count:
        data = stream.recv(MEBIBYTE)
        if not data:
            break
        incoming.receive_data(data)
        found += incoming.commands()
    return found
