"""PushConsumerBase: the synchronous twin of AsyncPushConsumer. Generated; change that one instead.

Made by platform/generate_sync_clients.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Self

from highwater._consumer import AsyncPushConsumer
from highwater._models import ConsumeFrom, Credentials, MessageQueue
from highwater._portal import SyncClient
from highwater._settings import settings_from_env
from mqwire.names import RMQ_SYS_TRACE_TOPIC


class PushConsumerBase(SyncClient[AsyncPushConsumer]):
    """Consumes topics as a member of `group`. Use it in `with`, or call start() and stop().

    A handler that returns acknowledges its message; one that raises gets it again later (RetryLater says when), up to
    `max_reconsume_times`, after which the message goes to the topic `%DLQ%group`. A message may come more than once.

    With `orderly` each queue's messages come one after the other, and a failing one holds its queue back; otherwise up
    to `consume_threads` handlers run at once. `consume_from` (and `consume_timestamp_ms`) says where a group begins
    that has no offsets stored yet. `enable_msg_trace` has it write trace records of each delivery to `trace_topic`. The
    other options carry RocketMQ's names and defaults.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        group: str,
        *,
        credentials: Credentials | None = None,
        timeout_ms: int = 3000,
        consume_from: ConsumeFrom = ConsumeFrom.LAST_OFFSET,
        consume_timestamp_ms: int | None = None,
        orderly: bool = False,
        consume_threads: int = 20,
        pull_batch_size: int = 32,
        pull_threshold_for_queue: int = 1000,
        pull_threshold_size_for_queue_mib: int = 100,
        consume_concurrently_max_span: int = 2000,
        max_reconsume_times: int = -1,
        suspend_current_queue_time_ms: int = 1000,
        consume_timeout_min: float = 15,
        drain_timeout_ms: int = 10000,
        persist_consumer_offset_interval_ms: int = 5000,
        rebalance_interval_ms: int = 20000,
        poll_name_server_interval_ms: int = 30000,
        heartbeat_broker_interval_ms: int = 30000,
        use_tls: bool | ssl.SSLContext = False,
        serialize_type: str = "ROCKETMQ",
        enable_msg_trace: bool = False,
        trace_topic: str = RMQ_SYS_TRACE_TOPIC,
    ) -> None:
        super().__init__(
            AsyncPushConsumer(
                namesrv,
                group,
                credentials=credentials,
                timeout_ms=timeout_ms,
                consume_from=consume_from,
                consume_timestamp_ms=consume_timestamp_ms,
                orderly=orderly,
                consume_threads=consume_threads,
                pull_batch_size=pull_batch_size,
                pull_threshold_for_queue=pull_threshold_for_queue,
                pull_threshold_size_for_queue_mib=pull_threshold_size_for_queue_mib,
                consume_concurrently_max_span=consume_concurrently_max_span,
                max_reconsume_times=max_reconsume_times,
                suspend_current_queue_time_ms=suspend_current_queue_time_ms,
                consume_timeout_min=consume_timeout_min,
                drain_timeout_ms=drain_timeout_ms,
                persist_consumer_offset_interval_ms=persist_consumer_offset_interval_ms,
                rebalance_interval_ms=rebalance_interval_ms,
                poll_name_server_interval_ms=poll_name_server_interval_ms,
                heartbeat_broker_interval_ms=heartbeat_broker_interval_ms,
                use_tls=use_tls,
                serialize_type=serialize_type,
                enable_msg_trace=enable_msg_trace,
                trace_topic=trace_topic,
            )
        )

    @classmethod
    def from_env(cls, group: str) -> Self:
        """A consumer of the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, group, credentials=settings.credentials, use_tls=settings.use_tls)

    def unsubscribe(self, topic: str) -> None:
        """Get no more messages of `topic`; its queues are given back with the next rebalance."""
        self._run_plain(self._twin.unsubscribe, topic)

    def assigned_queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member works on at the moment, sorted."""
        return self._run_plain(self._twin.assigned_queues)

    @property
    def client_id(self) -> str:
        """This member's name in the group."""
        return self._twin.client_id
