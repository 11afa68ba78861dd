"""Asking a connected member of a group: how it is doing, and to handle one message now."""

from __future__ import annotations

from highwater._admin_groups import GroupAdmin
from highwater._admin_models import (
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    MemberSubscription,
    ProcessQueueInfo,
)
from highwater._edge import read_body
from highwater._models import MessageQueue
from highwater.errors import (
    BrokerError,
    ConfigurationError,
    ConnectError,
    ConsumerOfflineError,
    ConsumerTooOldError,
    HighwaterError,
)
from mqwire import bodies
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.header import CustomHeader
from mqwire.headers_client import ConsumeMessageDirectlyResultRequestHeader, GetConsumerRunningInfoRequestHeader
from mqwire.message import parse_offset_message_id

# A broker waits 10 s for the member; its word that there was no answer is worth more than our own timeout.
ANSWER_TIMEOUT_MS = 12_000
# CMResult; Go's client writes the number.
_RESULTS = ("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL")


class MemberAdmin(GroupAdmin):
    """Members of consumer groups."""

    async def consumer_running_info(
        self, group: str, client_id: str, *, stack: bool = False, timeout_ms: int | None = None
    ) -> ConsumerRunningInfo:
        """How a connected member is doing, by its own word; `stack` asks what its threads do.

        Any broker that the member is connected to can ask it, and waits 10 s for it; so do we, unless `timeout_ms` says
        otherwise. Raises ConsumerOfflineError for a member that is not connected, BrokerError for one that does not answer.
        """
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=client_id, jstack_enable=stack)
        failure: HighwaterError = ConsumerOfflineError(
            ResponseCode.CONSUMER_NOT_ONLINE, f"no broker is known that group {group} reads from", "the cluster"
        )
        for address in await self._group_addresses(group):
            try:
                response = await self._ask_member(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_ms)
            except (ConsumerOfflineError, ConnectError) as error:
                failure = error
                continue
            return _running_info(group, client_id, read_body(response, bodies.ConsumerRunningInfo))
        raise failure

    async def consume_message_directly(
        self, group: str, client_id: str, message_id: str, *, topic: str | None = None, address: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a connected member handle one stored message now, and return what became of it. No progress changes.

        `message_id` is the broker's (offsetMsgId), and that broker is asked, or the one at `address`: after a failover the
        broker that the id names may be gone, and each of its replicas has the message. Raises ConsumerOfflineError when the member
        is not connected to it, ConfigurationError for text that isn't an offsetMsgId, and BrokerError when there is no
        such message, or the member has not handled it within 10 s: then it may be at it still.
        """
        try:
            (host, port), _offset = parse_offset_message_id(message_id)
        except RemoteProtocolError as error:
            raise ConfigurationError(str(error)) from error
        address = address or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group, client_id=client_id, msg_id=message_id, topic=topic
        )
        response = await self._ask_member(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        found = read_body(response, bodies.ConsumeMessageDirectlyResult)
        return ConsumeMessageDirectlyResult(
            consume_result=_result(found.consume_result),
            remark=found.remark,
            order=found.order,
            auto_commit=found.auto_commit,
            spent_ms=found.spent_time_mills,
        )

    async def _ask_member(
        self, address: str, code: int, header: CustomHeader, timeout_ms: int | None = None
    ) -> RemotingCommand:
        request = self._client.request(code, header)
        timeout_ms = timeout_ms or max(self._client.options.timeout_ms, ANSWER_TIMEOUT_MS)
        try:
            return await self._client.invoke(address, request, timeout_ms)
        except BrokerError as error:
            raise member_error(error) from None  # it keeps code, remark and address


# What AdminBrokerProcessor.callConsumer writes, and so do our brokers: the code is SYSTEM_ERROR for both, the remark alone differs.
_REFUSALS: dict[str, type[BrokerError]] = {"not online": ConsumerOfflineError, "too low to finish": ConsumerTooOldError}


def member_error(error: BrokerError) -> BrokerError:
    """Return the leaf of the error tree for a broker's answer about one member."""
    for words, kind in _REFUSALS.items():
        if error.response_code == ResponseCode.SYSTEM_ERROR and words in (error.remark or ""):
            return kind(error.response_code, error.remark, error.address)
    return error


def _result(answer: str | int | None) -> str:
    if isinstance(answer, int) and 0 <= answer < len(_RESULTS):
        return _RESULTS[answer]
    return str(answer)


def _running_info(group: str, client_id: str, info: bodies.ConsumerRunningInfo) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        group=group,
        client_id=client_id,
        properties=dict(sorted(info.properties.items())),
        subscriptions=tuple(
            sorted(MemberSubscription(one.topic, one.sub_string, one.expression_type) for one in info.subscription_set)
        ),
        queues=tuple(
            ProcessQueueInfo(
                queue=MessageQueue(key.topic, key.broker_name, key.queue_id),
                commit_offset=one.commit_offset,
                cached_messages=one.cached_msg_count,
                cached_mebibytes=one.cached_msg_size_in_mib,
                cached_min_offset=one.cached_msg_min_offset if one.cached_msg_count else None,
                cached_max_offset=one.cached_msg_max_offset if one.cached_msg_count else None,
                locked=one.locked,
                dropped=one.droped,
                last_pull_timestamp_ms=one.last_pull_timestamp if one.last_pull_timestamp > 0 else None,
                last_consume_timestamp_ms=one.last_consume_timestamp if one.last_consume_timestamp > 0 else None,
            )
            for key, one in sorted(
                info.mq_table.items(), key=lambda item: (item[0].topic, item[0].broker_name, item[0].queue_id)
            )
        ),
        stack=info.jstack or None,
    )
