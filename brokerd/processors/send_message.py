"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: all sends of one wake-up become one append.

Each request is checked and turned into records first; the records of all are appended with one gathered write; then
each request gets its answer. A request that is refused costs the others nothing. A batch is enough for a write of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from brokerd.acl import credential_of, is_platforms
from brokerd.processors.handler import not_written
from brokerd.processors.send_header import SendHeader, SendHeaderReader, SendOrigin
from brokerd.processors.send_properties import KEYS_MAX, TAGS, PropertyReader, check_keys, tags_code_of
from brokerd.processors.send_reply import SendReplyEncoder
from brokerd.processors.special_sends import SpecialSends, SpecialSendsBroker, has_special_properties, no_transactions
from brokerd.replies import Refusal
from brokerd.store import (
    AppendResult,
    BatchToStore,
    DiskFullError,
    MessageIllegalError,
    MessageToStore,
    StoreError,
    keys_of,
)
from brokerd.topic_validator import invalid_topic, is_closed_to_clients
from mqwire.codes import MessageSysFlag, PermName, RequestCode, ResponseCode
from mqwire.command import FLAG_ONEWAY
from mqwire.compression import decompress
from mqwire.errors import RemoteProtocolError
from mqwire.message import CRC32_PROPERTY_BYTES, MAX_PROPERTIES_BYTES, decode_batch_columns
from mqwire.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX, RMQ_SYS_TRACE_TOPIC

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.client_channel import Peer
    from brokerd.config import BrokerConfig
    from brokerd.quotas import Quotas
    from brokerd.store import BatchResult
    from mqwire.bodies import TopicConfig
    from mqwire.command import RemotingCommand

SEND_CODES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})

# A request whose message is to be stored: its queue, the UNIQ_KEY of its answer.
_Taken: TypeAlias = "tuple[RemotingCommand, int, bytes]"
Body: TypeAlias = "bytes | bytearray | memoryview"

# Beside them the record's own CRC property needs its room.
_MAX_STORED_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - CRC32_PROPERTY_BYTES

# Stored as one, they hold up everyone else; a mebibyte of messages of an ordinary size are fewer. The answer has 33 bytes for each.
_BATCH_MAX: Final = 16_384
# In all its messages together: a batch is taken whole, and shall not pass a quota of stored bytes by the index of millions.
_BATCH_KEYS_MAX: Final = 4 * _BATCH_MAX

# Clients collect up to 128,000 characters of records in a message.
_TRACE_BODY_MAX_BYTES: Final = 512 * 1024

_new_tuple: Final = tuple.__new__


class _Clock(Protocol):
    def monotonic(self) -> float: ...


class _Broker(SpecialSendsBroker, Protocol):
    """What sends use of the broker."""

    @property
    def clock(self) -> _Clock: ...

    config: BrokerConfig
    acl: AccessControl | None
    quotas: Quotas
    store_host: bytes

    def append(self, messages: Sequence[MessageToStore], *, counted_for: str | None = None) -> list[AppendResult]: ...

    def append_batch(self, batch: BatchToStore, *, counted_for: str) -> BatchResult: ...

    def answer_when_held(
        self, peer: Peer, end_offset_bytes: int, frames: list[bytes], *, since_s: float | None = None
    ) -> None: ...

    def refuses_sends(self) -> str | None: ...


class _Spending:
    """What the sends of one wake-up take of their quotas: looked up once for each credential and topic, settled at its end."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._shares: dict[tuple[str, str], list[int] | str] = {}

    def count(self, credential: str, topic: str, size_bytes: int) -> None:
        """One request; raises Refusal when its quota is used up."""
        share = self._shares.get((credential, topic))
        if share is None:
            share = self._shares[credential, topic] = self._quotas.send_refusal(credential, topic) or [0, 0]
        if isinstance(share, str):
            raise Refusal(ResponseCode.SYSTEM_BUSY, share)
        share[0] += 1
        share[1] += size_bytes

    def add(self, credential: str, topic: str, messages: int, size_bytes: int = 0) -> None:
        """A request that was counted held more: the others of a batch, or what its body unfolds to."""
        share = self._shares[credential, topic]
        assert not isinstance(share, str), "a refused request is not taken apart"
        share[0] += messages
        share[1] += size_bytes

    def settle(self) -> None:
        """Count what was taken against the quotas."""
        for (credential, topic), share in self._shares.items():
            if not isinstance(share, str):
                self._quotas.sent(credential, topic, *share)


class SendMessageProcessor:
    """Takes the sends of one connection's wake-up."""

    def __init__(self, broker: _Broker) -> None:
        self._broker = broker
        self._headers = SendHeaderReader()
        self._replies = SendReplyEncoder(broker.store_host, broker.config.region_id, trace_on=broker.config.trace_on)
        self._special = SpecialSends(broker)
        config = broker.config
        self._properties = PropertyReader(
            config.broker_cluster_name,
            config.broker_ip1,
            config.region_id if config.trace_topic_enable else None,  # 25 bytes a message, for trace records alone
            trace_on=config.trace_on,
        )
        self._max_body_bytes = broker.config.max_message_size_bytes
        self._since_s = 0.0  # when the sends of this wake-up were taken up
        self._is_unusual = False  # one of them takes longer than a message that is only stored

    def process(self, peer: Peer, requests: Sequence[RemotingCommand], until_s: float = math.inf) -> int:
        """Append what is in `requests` and answer each, at once or when it is held as the flush type asks. Returns how many:
        batches, trace records and the like end at `until_s`, after one at least.
        """
        broker = self._broker
        self._since_s = broker.clock.monotonic()
        self._is_unusual = False
        refusal = broker.refuses_sends()
        messages: list[MessageToStore] = []
        taken: list[_Taken] = []
        credential = ""
        spent = _Spending(broker.quotas) if broker.quotas.are_set else None
        left = 0
        rest = iter(requests)
        for request in rest:
            # Without a look at the clock for each message that is only stored.
            if self._is_unusual and broker.clock.monotonic() > until_s:
                left = 1 + length_hint(rest)
                break
            try:
                if refusal is not None:
                    raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)
                header, queue_id = self._check(peer, request)
                if spent is not None:
                    spent.count(credential_of(broker.acl, request), header[0].topic, len(request.body))
                if header[0].topic == RMQ_SYS_TRACE_TOPIC and broker.acl is not None:
                    self._check_traces(broker.acl, request, header[0].sys_flag, spent)
                if header[0].batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
                    self._is_unusual = True
                    batch = self._batch(peer, header, queue_id, request.body)
                    if spent is not None:
                        spent.add(credential_of(broker.acl, request), batch.topic, len(batch.bodies) - 1)
                    self._append(peer, taken, messages, credential)  # first what was sent first
                    messages, taken = [], []
                    self._append_batch(peer, request, batch)
                    continue
                message, unique_key = self._message(peer, request, header, queue_id)
            except Refusal as refused:
                self._refuse(peer, request, refused.code, refused.remark)
            except RemoteProtocolError as error:
                self._refuse(peer, request, ResponseCode.MESSAGE_ILLEGAL, str(error))
            else:
                if broker.acl is not None and (access_key := credential_of(broker.acl, request)) != credential:
                    # Rare: clients of several accounts over one connection, in one wake-up.
                    self._append(peer, taken, messages, credential)
                    messages, taken = [], []
                    credential = access_key
                messages.append(message)
                taken.append((request, queue_id, unique_key))
        self._append(peer, taken, messages, credential)
        if spent is not None:
            spent.settle()
        return len(requests) - left

    def _append(self, peer: Peer, taken: list[_Taken], messages: list[MessageToStore], credential: str) -> None:
        """Store and answer; `taken` are the requests of `messages`, one for each."""
        while messages:
            try:
                results = self._broker.append(messages, counted_for=credential)
            except MessageIllegalError as error:
                # One message breaks a limit that only the store knows: refuse it, store the others.
                self._refuse(peer, taken[error.index][0], ResponseCode.MESSAGE_ILLEGAL, error.reason)
                del messages[error.index], taken[error.index]
            except StoreError as error:
                for request, _queue_id, _unique_key in taken:
                    self._refuse(peer, request, ResponseCode.SERVICE_NOT_AVAILABLE, _remark_of(error))
                return
            else:
                self._answer(peer, taken, results)
                return

    def _append_batch(self, peer: Peer, request: RemotingCommand, batch: BatchToStore) -> None:
        broker = self._broker
        try:
            result = broker.append_batch(batch, counted_for=credential_of(broker.acl, request))
        except MessageIllegalError as error:
            self._refuse(peer, request, ResponseCode.MESSAGE_ILLEGAL, error.reason)
        except StoreError as error:
            self._refuse(peer, request, ResponseCode.SERVICE_NOT_AVAILABLE, _remark_of(error))
        else:
            if not request.is_oneway:
                frame = self._replies.encode_batch(request, batch.queue_id, result)
                broker.answer_when_held(peer, result.end_offset, [frame], since_s=self._since_s)

    def _answer(self, peer: Peer, taken: list[_Taken], results: list[AppendResult]) -> None:
        encode = self._replies.encode
        frames: list[bytes] = []
        for (request, queue_id, unique_key), result in zip(taken, results, strict=True):
            if not request.flag & FLAG_ONEWAY:
                frames.append(encode(request, queue_id, result, unique_key))
        if frames:
            last = results[-1]
            end_offset = last.physical_offset + last.size_bytes
            self._broker.answer_when_held(peer, end_offset, frames, since_s=self._since_s)

    @staticmethod
    def _refuse(peer: Peer, request: RemotingCommand, code: int, remark: str) -> None:
        if not request.is_oneway:
            peer.write(request.reply(code, remark).encode())

    def _check(self, peer: Peer, request: RemotingCommand) -> tuple[SendHeader, int]:
        """The header of a request that may be served, and the queue that it goes to; raises Refusal."""
        broker = self._broker
        if broker.acl is not None:
            remark = broker.acl.check(request, peer.remote_address, has_certificate=peer.has_certificate)
            if remark is not None:
                raise Refusal(ResponseCode.NO_PERMISSION, remark)
        if not peer.proven:
            access_key = credential_of(broker.acl, request)
            peer.is_platform = is_platforms(broker.acl, request, has_certificate=peer.has_certificate)
            remark = broker.quotas.connect(access_key, peer)
            if remark is not None:
                raise Refusal(ResponseCode.SYSTEM_BUSY, remark)
            peer.proven, peer.access_key = True, access_key
        header = self._headers.read(request)
        origin = header[0]
        queue_id = header[1]
        topic = origin.topic
        config = broker.topic_configs.select(topic)
        if config is None or not config.perm & PermName.WRITE or is_closed_to_clients(topic):
            config = self._resolve_topic(origin)
        write_queues = config.write_queue_nums
        if queue_id < 0:
            queue_id = broker.random.randrange(write_queues) if write_queues > 0 else 0
        elif queue_id >= write_queues and queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} of topic {topic} does not exist: it has {write_queues} write queues;"
                " refresh the route and send again",
            )
        if origin.sys_flag & MessageSysFlag.TRANSACTION_MASK:
            # Without the property, RocketMQ stores it as it is: acknowledged, and in no queue for ever.
            raise no_transactions()
        return header, queue_id

    def _check_traces(
        self, acl: AccessControl, request: RemotingCommand, sys_flag: int, spent: _Spending | None
    ) -> None:
        """Raise Refusal for trace records of messages that are not the sender's, and RemoteProtocolError for a damaged body."""
        self._is_unusual = True
        size_bytes = len(request.body)
        if size_bytes > _TRACE_BODY_MAX_BYTES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"trace records take at most {_TRACE_BODY_MAX_BYTES} bytes a message"
            )
        unfolded_bytes = _TRACE_BODY_MAX_BYTES  # a damaged body may take as much
        try:
            body = decompress(bytes(request.body), sys_flag, max_body_bytes=_TRACE_BODY_MAX_BYTES)
            unfolded_bytes = len(body)
        finally:
            if spent is not None:
                # Records are read as they unfold, and are only then refused.
                spent.add(credential_of(acl, request), RMQ_SYS_TRACE_TOPIC, 0, unfolded_bytes - size_bytes)
        remark = acl.refuses_traces(request, body)
        if remark is not None:
            raise Refusal(ResponseCode.NO_PERMISSION, remark)

    def _message(
        self, peer: Peer, request: RemotingCommand, header: SendHeader, queue_id: int
    ) -> tuple[MessageToStore, bytes]:
        """What is to be stored of one request, and the UNIQ_KEY of its answer; raises Refusal or RemoteProtocolError."""
        body = request.body
        origin, _queue_id, born_timestamp_ms, properties = header
        topic = origin.topic
        if len(body) > self._max_body_bytes:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body has {len(body)} bytes, this broker takes at most {self._max_body_bytes}"
                " (maxMessageSize): send a smaller one or a reference to the data",
            )
        stored, unique_key, tags_code, special = self._properties.read(properties)
        if len(stored) > _MAX_STORED_PROPERTIES_BYTES:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the properties take {len(stored)} bytes, at most {_MAX_STORED_PROPERTIES_BYTES} are stored",
            )
        message = _new_tuple(
            MessageToStore,
            (
                topic,
                queue_id,
                origin.flag,
                origin.sys_flag,
                born_timestamp_ms,
                peer.remote_host,
                origin.reconsume_times,
                0,
                body,
                stored,
                tags_code,
            ),
        )
        if special or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            self._is_unusual = True
            message = self._special.prepare(origin, message, credential_of(self._broker.acl, request))
        return message, unique_key

    def _batch(self, peer: Peer, header: SendHeader, queue_id: int, body: Body) -> BatchToStore:
        """The messages of a batch; raises Refusal or RemoteProtocolError."""
        if len(body) > self._max_body_bytes:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(body)} bytes, this broker takes at most {self._max_body_bytes}"
                " (maxMessageSize): split it",
            )
        origin = header.origin
        topic = origin.topic
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot be sent to the retry topic {topic}")
        flags, bodies, properties = decode_batch_columns(body, _BATCH_MAX)
        if not flags:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        # What one search over all of them does not find none of them has.
        joined = b"".join(properties)
        if has_special_properties(header.properties) or has_special_properties(joined):
            _refuse_special_batch(header, properties)
        if b" " in joined and (blanks := joined.count(b" ")) >= KEYS_MAX:
            for each in properties:
                check_keys(each)
            if blanks > _BATCH_KEYS_MAX:
                _refuse_too_many_keys(properties)
        if not joined.isascii():
            _refuse_other_than_utf_8(properties)
        properties = [each if each[-1:] == b"\x02" or not each else each + b"\x02" for each in properties]
        return BatchToStore(
            topic,
            queue_id,
            origin.sys_flag,
            header.born_timestamp_ms,
            peer.remote_host,
            origin.reconsume_times,
            self._properties.shared_by_batch(),
            flags,
            bodies,
            properties,
            [tags_code_of(each) for each in properties] if TAGS in joined else (0,) * len(flags),
        )

    def _resolve_topic(self, origin: SendOrigin) -> TopicConfig:
        """The topic's configuration, created if that is allowed; raises Refusal."""
        self._is_unusual = True
        broker = self._broker
        topic = origin.topic
        remark = invalid_topic(topic)
        if remark is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if is_closed_to_clients(topic):
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden: it is the system's"
            )
        config = broker.topic_configs.select(topic)
        if config is None:
            try:
                config = self._create_topic(origin)
            except StoreError as error:
                raise not_written(error) from error
            broker.register_soon()
        if not config.perm & PermName.WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden: perm {config.perm}"
            )
        return config

    def _create_topic(self, origin: SendOrigin) -> TopicConfig:
        """The topic, made as it is allowed; raises Refusal, and StoreError.

        A group's topics are its own heartbeat's and send-backs' to make, which a consumer's own send may come before; without the
        group they would be anyone's to make, and no quota counts them.
        """
        broker = self._broker
        topic = origin.topic
        for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
            if topic.startswith(prefix):
                group = broker.subscription_groups.select(topic[len(prefix) :])
                if group is None:
                    raise Refusal(
                        ResponseCode.TOPIC_NOT_EXIST,
                        f"topic[{topic}] not exist, and neither does its consumer group, with which it comes: create the group, or"
                        " start a consumer of it",
                    )
                queues = group.retry_queue_nums if prefix == RETRY_GROUP_TOPIC_PREFIX else 1
                return broker.topic_configs.create_for_send_back(topic, max(1, queues))
        config = broker.topic_configs.create_on_send(topic, origin.default_topic, origin.default_topic_queue_nums)
        if config is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! Create it, or set autoCreateTopicEnable=true",
            )
        return config


def _refuse_special_batch(header: SendHeader, properties: Sequence[bytes]) -> None:
    if has_special_properties(header.properties) or any(map(has_special_properties, properties)):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "delayed and transactional messages cannot be sent in a batch")


def _refuse_too_many_keys(properties: Sequence[bytes]) -> None:
    count = sum(len(keys_of(each)[1]) for each in properties)
    if count > _BATCH_KEYS_MAX:
        raise Refusal(
            ResponseCode.MESSAGE_ILLEGAL, f"the batch has {count} keys, at most {_BATCH_KEYS_MAX} are taken: split it"
        )


def _refuse_other_than_utf_8(properties: Sequence[bytes]) -> None:
    for number, each in enumerate(properties):
        try:
            each.decode()
        except UnicodeDecodeError as error:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the properties of message {number} of the batch are not UTF-8"
            ) from error


def _remark_of(error: StoreError) -> str:
    return str(error) if isinstance(error, DiskFullError) else f"the store takes no messages: {error}"
