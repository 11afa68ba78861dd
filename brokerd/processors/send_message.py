"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: all sends of one wake-up become one append.

Each request is checked and turned into records first; the records of all are appended with one gathered write; then
each request gets its answer. A request that is refused costs the others nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from brokerd.acl import credential_of
from brokerd.processors.refusal import Refusal
from brokerd.processors.send_header import SendHeader, SendHeaderReader, SendOrigin
from brokerd.processors.send_properties import TAGS, PropertyReader, tags_code_of
from brokerd.processors.send_reply import SendReplyEncoder
from brokerd.processors.special_sends import SpecialSends, has_special_properties
from brokerd.store import AppendResult, DiskFullError, MessageIllegalError, MessageToStore, StoreError
from brokerd.topic_validator import invalid_topic, is_closed_to_clients
from mqwire.codes import PermName, RequestCode, ResponseCode
from mqwire.errors import RemoteProtocolError
from mqwire.message import CRC32_PROPERTY_BYTES, MAX_PROPERTIES_BYTES, BatchItem, decode_batch_body
from mqwire.names import RETRY_GROUP_TOPIC_PREFIX

if TYPE_CHECKING:
    from brokerd.broker import Broker
    from brokerd.peer import Peer
    from mqwire.bodies import TopicConfig
    from mqwire.command import RemotingCommand

SEND_CODES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})

# A request whose messages are to be stored: its queue, the place behind its last message, the UNIQ_KEY of its answer.
_Taken: TypeAlias = "tuple[RemotingCommand, int, int, bytes]"

# Beside them the record's own CRC property needs its room.
_MAX_STORED_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - CRC32_PROPERTY_BYTES

_new_tuple: Final = tuple.__new__


class SendMessageProcessor:
    """Takes the sends of one connection's wake-up."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._headers = SendHeaderReader()
        self._replies = SendReplyEncoder(broker.store_host, broker.config.region_id)
        self._special = SpecialSends(broker)
        self._properties = PropertyReader(broker.config.broker_cluster_name, broker.config.broker_ip1)
        self._max_body_bytes = broker.config.max_message_size_bytes

    def process(self, peer: Peer, requests: Sequence[RemotingCommand]) -> None:
        """Append what is in `requests` and answer each, at once or when it is held as the flush type asks."""
        broker = self._broker
        refusal = broker.refuses_sends()
        messages: list[MessageToStore] = []
        taken: list[_Taken] = []
        credential = ""
        for request in requests:
            first = len(messages)
            try:
                if refusal is not None:
                    raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)
                queue_id, unique_key = self._prepare(peer, request, messages)
            except Refusal as refused:
                del messages[first:]
                self._refuse(peer, request, refused.code, refused.remark)
            except RemoteProtocolError as error:
                del messages[first:]
                self._refuse(peer, request, ResponseCode.MESSAGE_ILLEGAL, str(error))
            else:
                if broker.acl is not None and (access_key := credential_of(broker.acl, request)) != credential:
                    if first:  # rare: clients of several accounts over one connection, in one wake-up
                        others, messages = messages[:first], messages[first:]
                        self._append(peer, taken, others, credential)
                        taken = []
                    credential = access_key
                taken.append((request, queue_id, len(messages), unique_key))
        if messages:
            self._append(peer, taken, messages, credential)

    def _append(self, peer: Peer, taken: list[_Taken], messages: list[MessageToStore], credential: str) -> None:
        while messages:
            try:
                results = self._broker.append(messages, counted_for=credential)
            except MessageIllegalError as error:
                # One message breaks a limit that only the store knows: refuse its request, store the others.
                self._leave_out(peer, taken, messages, error)
            except StoreError as error:
                remark = str(error) if isinstance(error, DiskFullError) else f"the store takes no messages: {error}"
                for request, _queue_id, _after_last, _unique_key in taken:
                    self._refuse(peer, request, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
                return
            else:
                self._answer(peer, taken, results)
                return

    def _leave_out(
        self, peer: Peer, taken: list[_Taken], messages: list[MessageToStore], error: MessageIllegalError
    ) -> None:
        first = 0
        for place, (request, _queue_id, after_last, _unique_key) in enumerate(taken):
            if error.index < after_last:
                self._refuse(peer, request, ResponseCode.MESSAGE_ILLEGAL, error.reason)
                del messages[first:after_last]
                removed = after_last - first
                taken[place:] = [(r, q, after - removed, key) for r, q, after, key in taken[place + 1 :]]
                return
            first = after_last

    def _answer(self, peer: Peer, taken: list[_Taken], results: list[AppendResult]) -> None:
        frames: list[bytes] = []
        encode = self._replies.encode
        first = 0
        for request, queue_id, after_last, unique_key in taken:
            if not request.is_oneway:
                frames.append(encode(request, queue_id, results[first:after_last], unique_key))
            first = after_last
        if frames:
            last = results[-1]
            self._broker.answer_when_held(peer, last.physical_offset + last.size_bytes, frames)

    @staticmethod
    def _refuse(peer: Peer, request: RemotingCommand, code: int, remark: str) -> None:
        if not request.is_oneway:
            peer.write(request.reply(code, remark).encode())

    def _prepare(self, peer: Peer, request: RemotingCommand, messages: list[MessageToStore]) -> tuple[int, bytes]:
        """Add the records of one request to `messages`; returns the queue and the UNIQ_KEY of its answer."""
        broker = self._broker
        if broker.acl is not None:
            remark = broker.acl.check(request, peer.remote_address)
            if remark is not None:
                raise Refusal(ResponseCode.NO_PERMISSION, remark)
        origin, queue_id, born_timestamp_ms, properties = header = self._headers.read(request)
        topic = origin.topic
        config = broker.topic_configs.select(topic)
        if config is None or not config.perm & PermName.WRITE or is_closed_to_clients(topic):
            config = self._resolve_topic(origin)
        write_queues = config.write_queue_nums
        if queue_id < 0:
            queue_id = random.randrange(write_queues) if write_queues > 0 else 0
        elif queue_id >= write_queues and queue_id >= config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} of topic {topic} does not exist: it has {write_queues} write queues;"
                " refresh the route and send again",
            )
        body = request.body
        if origin.batch or request.code == RequestCode.SEND_BATCH_MESSAGE:
            self._prepare_batch(peer, header, queue_id, body, messages)
            return queue_id, b""
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
            message = self._special.prepare(origin, message)
        messages.append(message)
        return queue_id, unique_key

    def _prepare_batch(
        self,
        peer: Peer,
        header: SendHeader,
        queue_id: int,
        body: bytes | bytearray | memoryview,
        messages: list[MessageToStore],
    ) -> None:
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
        items = decode_batch_body(body)
        if not items:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch holds no message")
        if has_special_properties(header.properties) or has_special_properties(bytes(body)):
            self._refuse_special_batch(header, items)
        shared = self._properties.shared_by_batch()
        sys_flag, reconsume, born_ms, host = (
            origin.sys_flag,
            origin.reconsume_times,
            header.born_timestamp_ms,
            peer.remote_host,
        )
        append = messages.append
        for flag, item_body, item_properties in items:
            code = tags_code_of(item_properties) if TAGS in item_properties else 0
            if item_properties and item_properties[-1] != 2:
                item_properties += b"\x02"
            stored = item_properties + shared
            if len(stored) > _MAX_STORED_PROPERTIES_BYTES:
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "the properties of a message in the batch are over 32 KiB")
            message = (topic, queue_id, flag, sys_flag, born_ms, host, reconsume, 0, item_body, stored, code)
            append(_new_tuple(MessageToStore, message))

    @staticmethod
    def _refuse_special_batch(header: SendHeader, items: Sequence[BatchItem]) -> None:
        if has_special_properties(header.properties) or any(has_special_properties(item.properties) for item in items):
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "delayed and transactional messages cannot be sent in a batch")

    def _resolve_topic(self, origin: SendOrigin) -> TopicConfig:
        """The topic's configuration, created if that is allowed; raises Refusal."""
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
            config = broker.topic_configs.create_on_send(topic, origin.default_topic, origin.default_topic_queue_nums)
            if config is None:
                raise Refusal(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"topic[{topic}] not exist, apply first please! Create it, or set autoCreateTopicEnable=true",
                )
            broker.register_soon()
        if not config.perm & PermName.WRITE:
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the topic[{topic}] sending message is forbidden: perm {config.perm}"
            )
        return config
