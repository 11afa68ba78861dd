"""What a follower sends its leader and asks of it beside the log: consumer offsets that were committed here, delay offsets.

Topics, groups and offsets come with the log (metadata_log.py); RocketMQ's requests for the tables (SlaveSynchronize) are
answered for its tools, and asked by no one here but a leader that was away: for what consumers committed meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from brokerd.services.remoting_client import RemotingClient, RequestFailed
from mqwire.bodies import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_offset import GetAllDelayOffsetResponseHeader, UpdateConsumerOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.services.delay_level import ScheduleMessageService
    from brokerd.store import MessageStore

logger = logging.getLogger(__name__)

_PERIOD_S: Final = 10.0
_LOOK_PERIOD_S: Final = 0.5
_TIMEOUT_S: Final = 5.0
# To a hint, for good: taken, passed by a higher one, or of what the leader has not.
_ANSWERED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.INVALID_PARAMETER,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)


class MetadataFollower:
    """Runs while this replica follows a leader."""

    def __init__(
        self,
        store: MessageStore,
        consumer_offsets: ConsumerOffsetManager,
        is_proven: Callable[[str, str, int, int], bool],
        schedule: ScheduleMessageService,
        client_of: Callable[[str], RemotingClient],
    ) -> None:
        """`is_proven` says whether a group can be there (unproven_offsets.py)."""
        self._store = store
        self._consumer_offsets = consumer_offsets
        self._is_proven = is_proven
        self._schedule = schedule
        self._client_of = client_of
        self._version = ""
        self._changed = trio.Event()
        # The leader's delay offsets, and the end of its log when it reported them. Taking them over before the delivered messages
        # are here would lose these, should this replica lead next.
        self._delays: tuple[DelayOffsetSerializeWrapper, int] | None = None
        # Where the leader's log ended at this connection's first answer. A reset up to there may be newer than what consumers have
        # committed here meanwhile, and is not known before the log is there.
        self._hints_from: int | None = None

    def leader_is_at(self, version: str, end_offset: int) -> None:
        """A pull answer named the version of the leader's delay offsets, and the end of its log."""
        if self._hints_from is None:
            self._hints_from = end_offset
        if version != self._version:
            self._version = version
            self._changed.set()
        self._take_over_delays()

    async def run(self, address: str) -> None:
        """Exchange them with the leader at `address` until cancelled."""
        client = self._client_of(address)
        offsets = self._consumer_offsets
        self._changed.set()
        try:
            while True:
                # What was fetched waits for the log, and is not put off by what is newer: there may be no end of that.
                fetch = self._delays is None and self._changed.is_set()
                if fetch:
                    self._changed = trio.Event()
                try:
                    if fetch:
                        self._delays = await self._delay_offsets(client)
                        fetch = False
                        # No answer to a pull may come for long, where there is nothing to send.
                        self._take_over_delays()
                    if (
                        offsets.has_hints
                        and self._hints_from is not None
                        and self._store.end_offset >= self._hints_from
                    ):
                        await self._send_hints(client)
                except (RequestFailed, RemoteProtocolError) as error:
                    logger.warning("offsets of the master at %s: %s", address, error)
                    if fetch:
                        self._changed.set()
                await trio.sleep(_LOOK_PERIOD_S)
                with trio.move_on_after(_PERIOD_S):
                    while not offsets.has_hints and not self._changed.is_set():
                        with trio.move_on_after(_LOOK_PERIOD_S):
                            await self._changed.wait()
        finally:
            self._hints_from = None
            # Another leader's log need not have what this one had delivered.
            self._delays = None
            client.close()

    async def offsets_at(self, address: str) -> ConsumerOffsetSerializeWrapper:
        """What consumers committed, by another replica's word; raises RequestFailed."""
        client = self._client_of(address)
        try:
            reply = await self._get(client, RequestCode.GET_ALL_CONSUMER_OFFSET)
        finally:
            client.close()
        return ConsumerOffsetSerializeWrapper.from_json(reply.body)

    def merge(self, offsets: ConsumerOffsetSerializeWrapper) -> None:
        """Take over what consumers committed at another replica while this one was away."""
        self._consumer_offsets.merge(offsets, self._is_proven)

    def _take_over_delays(self) -> None:
        if self._delays is None:
            return
        delays, end_offset = self._delays
        if self._store.end_offset >= end_offset:
            self._schedule.raise_offsets(delays.offset_table)
            self._delays = None

    async def _delay_offsets(self, client: RemotingClient) -> tuple[DelayOffsetSerializeWrapper, int]:
        reply = await self._get(client, RequestCode.GET_ALL_DELAY_OFFSET)
        return (
            DelayOffsetSerializeWrapper.from_json(reply.body),
            reply.header(GetAllDelayOffsetResponseHeader).end_offset,
        )

    async def _send_hints(self, client: RemotingClient) -> None:
        """The leader takes each unless its own is higher by now. Raises RequestFailed for those to be sent again."""
        offsets = self._consumer_offsets
        failure = None
        for topic, group, queue_id, offset in offsets.hints():
            if not offsets.has_hint(topic, group, queue_id, offset):
                continue  # a reset came meanwhile
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
            )
            request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            reply = await client.request(request, timeout_s=_TIMEOUT_S)
            if reply.code in _ANSWERED:
                offsets.drop_hint(topic, group, queue_id, offset)
            else:
                failure = f"the offset of group {group} in {topic} was not taken: {reply.remark}"
        if failure is not None:
            raise RequestFailed(failure)

    async def _get(self, client: RemotingClient, code: RequestCode) -> RemotingCommand:
        reply = await client.request(RemotingCommand.request(code), timeout_s=_TIMEOUT_S)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestFailed(f"request {code.name} was answered with code {reply.code}: {reply.remark}")
        return reply
