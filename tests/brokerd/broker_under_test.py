"""A whole broker without sockets: the real parts on a temporary directory, clocks that tests move, peers that record."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from brokerd.acl import AccessControl
from brokerd.acl_file import Account
from brokerd.broker import Broker, open_store
from brokerd.clock import SystemClock
from brokerd.config import BrokerConfig, load_config
from brokerd.environment import Environment
from brokerd.store import AppendResult, MessageStore, MessageToStore
from mqwire.acl import SessionCredentials, sign_request
from mqwire.bodies import SubscriptionGroupConfig, TopicConfig
from mqwire.codes import LanguageCode, SerializeType
from mqwire.command import RemotingCommand
from mqwire.connection import Connection
from mqwire.header import CustomHeader
from mqwire.message import StoredMessage, decode_records, pack_host, properties_to_string, tags_code

FIRST_MS = 1_700_000_000_000  # what a ManualClock shows first


class ManualClock(SystemClock):
    """Both of the broker's clocks, moved by the test."""

    def __init__(self) -> None:
        self.wall_ms = FIRST_MS
        self.monotonic_s = 1000.0

    def time_ms(self) -> int:
        return self.wall_ms

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.monotonic_s

    def advance(self, seconds: float) -> None:
        self.wall_ms += round(seconds * 1000)
        self.monotonic_s += seconds


class RecordingPeer:
    """A connection whose other end is the test: what was written to it is decoded by the real codec."""

    _next_id = 1_000_000

    def __init__(self, ip: str = "127.0.0.1", port: int = 50000) -> None:
        RecordingPeer._next_id += 1
        self.id = RecordingPeer._next_id
        self.remote_address = (ip, port)
        self.remote_host = pack_host(ip, port)
        self.closed = False
        self.pending_bytes = 0
        self.proven = False
        self.access_key = ""
        self.is_platform = False
        self.checked_for: Account | None = None
        self.has_certificate = False
        self._connection = Connection()
        self._pushed: list[RemotingCommand] = []

    def send(self, command: RemotingCommand) -> None:
        self.write(command.encode())

    def write(self, data: bytes) -> None:
        self._connection.receive_data(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def close_soon(self) -> None:
        self.closed = True

    def take(self) -> list[RemotingCommand]:
        """What was pushed to the client since the last call: notifications, late answers."""
        pushed = self._pushed + self._connection.commands()
        self._pushed = []
        return pushed

    def take_answers(self, opaque: int) -> list[RemotingCommand]:
        """The answers to one request; all else waits for `take`."""
        written = self.take()
        answers = [command for command in written if command.is_response and command.opaque == opaque]
        self._pushed = [command for command in written if command not in answers]
        return answers


class BrokerUnderTest:
    """A broker on `folder`; `keys` are those of broker.conf."""

    def __init__(self, folder: Path, clock: ManualClock, **keys: str) -> None:
        self.folder = folder
        self.clock = clock
        self.keys = keys
        self._stopped = True
        self.start()

    def start(self) -> None:
        # The log's files are small, for each test writes its own.
        lines = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": str(self.folder / "store"),
            "mappedFileSizeCommitLog": str(1024 * 1024),
            "mappedFileSizeConsumeQueue": str(20 * 1000),
            "diskSpaceWarningLevelRatio": "100",
            **self.keys,
        }
        conf = self.folder / "broker.conf"
        if not conf.exists():
            conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self.config: BrokerConfig = load_config(str(conf), environ={}, warn=lambda _text: None)
        self.store: MessageStore
        environment = Environment(clock=self.clock)
        self.store, _report = open_store(self.config, pack_host("127.0.0.1", 10911), environment)
        self.broker = Broker(self.config, self.store, 10911, environment)
        self.broker.load()
        self._stopped = False

    def stop(self) -> None:
        if not self._stopped:
            self.store.flush()
            self.broker.persist()
            self.store.close()
            self._stopped = True

    def restart(self) -> None:
        self.stop()
        self.start()

    def kill(self) -> None:
        """The process is killed: nothing is persisted on the way out."""
        self.store.close(clean=False)
        self._stopped = True

    def crash(self) -> None:
        """The process is killed, and started again."""
        self.kill()
        self.start()

    def dispatch(self, peer: RecordingPeer, commands: list[RemotingCommand]) -> None:
        """All in one wake-up, as a connection delivers them."""
        served = 0
        while served < len(commands):
            left = commands[served:]
            served += self.broker.dispatcher.dispatch(peer, left)

    def request(
        self,
        code: int,
        header: CustomHeader | None = None,
        *,
        body: bytes = b"",
        peer: RecordingPeer | None = None,
        ext_fields: dict[str, str] | None = None,
        oneway: bool = False,
        serialize_type: int = SerializeType.JSON,
        signed_as: SessionCredentials | None = None,
        language: int = LanguageCode.JAVA,
    ) -> list[RemotingCommand]:
        """Sends one request through the real codec and dispatcher; returns its answers."""
        request = RemotingCommand.request(
            code, header, body=body, ext_fields=ext_fields, oneway=oneway, serialize_type=serialize_type
        )
        request.language = language
        if signed_as is not None:
            sign_request(request, signed_as)
        return self._answers(request, peer)

    def answer(self, request: RemotingCommand, peer: RecordingPeer | None = None) -> RemotingCommand:
        """The one answer to a request as it is: already signed, or not at all."""
        (reply,) = self._answers(request, peer)
        return reply

    def _answers(self, request: RemotingCommand, peer: RecordingPeer | None) -> list[RemotingCommand]:
        connection = Connection()
        connection.receive_data(request.encode())
        (received,) = connection.commands()
        peer = peer or RecordingPeer()
        self.dispatch(peer, [received])
        return peer.take_answers(request.opaque)

    @property
    def access_control(self) -> AccessControl:
        assert self.broker.acl is not None, "this broker was made without access control"
        return self.broker.acl

    def topic_config(self, topic: str) -> TopicConfig:
        """A topic's configuration; it must be there."""
        config = self.broker.topic_configs.select(topic)
        assert config is not None, f"{topic} is not known"
        return config

    def create_topic(self, topic: str, queues: int = 4, perm: int = 6) -> None:
        self.broker.topic_configs.put(
            TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        )

    def create_group(self, group: str, **members: Any) -> None:
        self.broker.subscription_groups.put(SubscriptionGroupConfig(group_name=group, **members))

    def store_message(
        self,
        topic: str,
        body: bytes = b"body",
        *,
        queue_id: int = 0,
        properties: dict[str, str] | None = None,
        **fields: Any,
    ) -> AppendResult:
        """Appends one message as a send would have."""
        values = properties or {}
        message = MessageToStore(
            topic=topic,
            queue_id=queue_id,
            flag=fields.get("flag", 0),
            sys_flag=fields.get("sys_flag", 0),
            born_timestamp_ms=self.clock.time_ms(),
            born_host=fields.get("born_host", pack_host("10.9.8.7", 1234)),
            reconsume_times=fields.get("reconsume_times", 0),
            prepared_transaction_offset=0,
            body=body,
            properties=properties_to_string(values).encode(),
            tags_code=tags_code(values["TAGS"]) if "TAGS" in values else 0,
        )
        return self.broker.append([self.broker.schedule.transform_on_send(message)])[0]

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """All messages of a queue that consumers can see."""
        found: list[StoredMessage] = []
        offset = self.store.min_offset(topic, queue_id)
        while True:
            result = self.store.get_messages(topic, queue_id, offset, 1000, 10**7)
            if result.count == 0:
                return found
            for chunk in result.chunks:
                found += decode_records(chunk)
            offset = result.next_begin_offset

    def ask(self, code: int, header: CustomHeader | None = None, **keywords: Any) -> RemotingCommand:
        """The same, for exactly one answer."""
        (reply,) = self.request(code, header, **keywords)
        return reply


class MakeBroker(Protocol):
    """The fixture make_broker: a broker with the given keys of broker.conf."""

    def __call__(self, **keys: str) -> BrokerUnderTest: ...
