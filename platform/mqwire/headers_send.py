"""Headers of sending, sending back and ending a transaction."""

from __future__ import annotations

import msgspec

from mqwire.header import CustomHeader, Int32, Int64, RpcRequestHeader, TopicRequestHeader


class SendMessageRequestHeader(TopicRequestHeader, frozen=True, kw_only=True):
    """SEND_MESSAGE (10). `properties` are `name\\x01value\\x02...`; `batch` marks a body of several messages."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None

    def to_v2(self) -> SendMessageRequestHeaderV2:
        """The same request in the short form that SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE carry."""
        return SendMessageRequestHeaderV2(
            producer_group=self.producer_group,
            topic=self.topic,
            default_topic=self.default_topic,
            default_topic_queue_nums=self.default_topic_queue_nums,
            queue_id=self.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=self.unit_mode,
            max_reconsume_times=self.max_reconsume_times,
            batch=self.batch,
            broker_name=self.bname,
        )


class SendMessageRequestHeaderV2(TopicRequestHeader, frozen=True, kw_only=True):
    """SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): V1's fields under one-letter names; attributes as in V1."""

    producer_group: str = msgspec.field(name="a")
    topic: str = msgspec.field(name="b")
    default_topic: str = msgspec.field(name="c")
    default_topic_queue_nums: Int32 = msgspec.field(name="d")
    queue_id: Int32 = msgspec.field(name="e")
    sys_flag: Int32 = msgspec.field(name="f")
    born_timestamp: Int64 = msgspec.field(name="g")
    flag: Int32 = msgspec.field(name="h")
    properties: str | None = msgspec.field(name="i", default=None)
    reconsume_times: Int32 | None = msgspec.field(name="j", default=None)
    unit_mode: bool | None = msgspec.field(name="k", default=None)
    max_reconsume_times: Int32 | None = msgspec.field(name="l", default=None)
    batch: bool | None = msgspec.field(name="m", default=None)
    broker_name: str | None = msgspec.field(name="n", default=None)

    def to_v1(self) -> SendMessageRequestHeader:
        """The same request in the long form."""
        return SendMessageRequestHeader(
            producer_group=self.producer_group,
            topic=self.topic,
            default_topic=self.default_topic,
            default_topic_queue_nums=self.default_topic_queue_nums,
            queue_id=self.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=self.born_timestamp,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=self.unit_mode,
            batch=self.batch,
            max_reconsume_times=self.max_reconsume_times,
            bname=self.broker_name,
        )


class SendMessageResponseHeader(CustomHeader, frozen=True, kw_only=True):
    """Where the message landed. `msg_id` is the offset id, comma-joined for a batch; `transaction_id` the UNIQ_KEY.

    `region_id` and `trace_on` (MSG_REGION, TRACE_ON) aren't fields of Java's class; clients read them from the
    extension fields all the same.
    """

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = msgspec.field(name="MSG_REGION", default=None)
    trace_on: str | None = msgspec.field(name="TRACE_ON", default=None)


class ConsumerSendMsgBackRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """CONSUMER_SEND_MSG_BACK (36). `offset` is the CommitLog's, in bytes; `delay_level` < 0: to the DLQ at once."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """END_TRANSACTION (37). `commit_or_rollback` is a MessageSysFlag transaction type, the offsets name the message."""

    topic: str | None = None
    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    from_transaction_check: bool | None = False
    msg_id: str
    transaction_id: str | None = None
