"""What a follower sends its leader beside the log: consumer offsets that were committed here.

Topics, groups and offsets come with the log (metadata_log.py); RocketMQ's requests for the tables (SlaveSynchronize) are
answered for its tools, and asked by no one here but a leader that was away: for what consumers committed meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from brokerd.services.remoting_client import RemotingClient, RequestFailed
from mqwire.bodies import ConsumerOffsetSerializeWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_offset import UpdateConsumerOffsetRequestHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.store import MessageStore

logger = logging.getLogger(__name__)

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
        client_of: Callable[[str], RemotingClient],
    ) -> None:
        """`is_proven` says whether a group can be there (unproven_offsets.py)."""
        self._store = store
        self._consumer_offsets = consumer_offsets
        self._is_proven = is_proven
        self._client_of = client_of
        # Where the leader's log ended at this connection's first answer. A reset up to there may be newer than what consumers have
        # committed here meanwhile, and is not known before the log is there.
        self._hints_from: int | None = None

    def leader_ends_at(self, end_offset: int) -> None:
        """A pull answer named the end of the leader's log."""
        if self._hints_from is None:
            self._hints_from = end_offset

    async def run(self, address: str) -> None:
        """Send the leader at `address` what was committed here, until cancelled."""
        client = self._client_of(address)
        offsets = self._consumer_offsets
        try:
            while True:
                if offsets.has_hints and self._hints_from is not None and self._store.end_offset >= self._hints_from:
                    try:
                        await self._send_hints(client)
                    except (RequestFailed, RemoteProtocolError) as error:
                        logger.warning("offsets for the master at %s: %s", address, error)
                await trio.sleep(_LOOK_PERIOD_S)
        finally:
            self._hints_from = None
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
