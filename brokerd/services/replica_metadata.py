"""A follower's copy of its leader's metadata: topics, subscription groups, consumer offsets, delay offsets.

RocketMQ's own requests and bodies (SlaveSynchronize). Fetched when a pull answer tells of a change, and each 10 s in any
case. Offsets only rise: what a consumer committed here while the leader was away is not lost when it is back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from brokerd.services.remoting_client import RemotingClient, RequestFailed
from brokerd.store import StoreError
from mqwire.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    SubscriptionGroupWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.errors import RemoteProtocolError
from mqwire.headers_offset import UpdateConsumerOffsetRequestHeader

if TYPE_CHECKING:
    from brokerd.broker import Broker

logger = logging.getLogger(__name__)

BodyT = TypeVar("BodyT", bound=Body)

_PERIOD_S: Final = 10.0
_QUIET_S: Final = 0.5  # offsets change with every commit: fetch at most this often for them alone
_TAKE_OVER_S: Final = 0.5  # of a promotion's two seconds
_LOOK_PERIOD_S: Final = 1.0
_TIMEOUT_S: Final = 5.0


class MetadataFollower:
    """Keeps the tables level with the leader's while this replica follows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._version = ""
        self._fetched_version: str | None = None
        self._changed = trio.Event()
        self._tables_changed = trio.Event()
        self._leader_address: str | None = None  # the one whose tables these are
        # The leader's delay offsets, and the end of its log, at or behind the one when it told them.
        self._delays: DelayOffsetSerializeWrapper | None = None
        self._delays_end_offset: int | None = None

    def leader_is_at(self, version: str, end_offset: int) -> None:
        """A pull answer told the version of the leader's metadata, and the end of its log."""
        self._version = version
        if version != self._fetched_version:
            self._changed.set()
            if self._fetched_version is None or _tables_of(version) != _tables_of(self._fetched_version):
                self._tables_changed.set()
        if self._delays is not None:
            # Taking them over before the delivered messages are here would lose these, should this replica lead next.
            if self._delays_end_offset is None:
                self._delays_end_offset = end_offset
            if self._broker.store.end_offset >= self._delays_end_offset:
                self._broker.schedule.raise_offsets(self._delays.offset_table)
                self._delays = self._delays_end_offset = None

    async def run(self, address: str) -> None:
        """Fetch from the leader at `address` until cancelled."""
        client = self._broker.client_of(address)
        self._fetched_version = None
        self._leader_address = address
        try:
            while True:
                version = self._version
                self._changed = trio.Event()
                self._tables_changed = trio.Event()
                try:
                    await self._fetch_all(client)
                    self._fetched_version = version
                except (RequestFailed, RemoteProtocolError, StoreError, OSError) as error:
                    logger.warning("metadata of the master at %s: %s", address, error)
                offsets = self._broker.consumer_offsets
                seen = offsets.changes
                with trio.move_on_after(_QUIET_S):  # a topic or group is fetched at once: senders use it already
                    await self._tables_changed.wait()
                with trio.move_on_after(_PERIOD_S - _QUIET_S):
                    # Also when consumers commit here: their offsets belong to the leader too.
                    while not self._changed.is_set() and offsets.changes == seen:
                        with trio.move_on_after(_LOOK_PERIOD_S):
                            await self._changed.wait()
        finally:
            client.close()

    async def merge_offsets_from(self, address: str) -> None:
        """Take what consumers committed at another replica while this one was away; raises RequestFailed."""
        client = self._broker.client_of(address)
        try:
            offsets = await self._get(client, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper)
        finally:
            client.close()
        self._broker.consumer_offsets.merge(offsets)

    async def take_over(self) -> None:
        """This replica leads now: take what its leader's tables had that was not fetched yet, if that one still answers.

        After a planned switchover it does. Nothing is deleted, for topics may have been made here meanwhile.
        """
        broker = self._broker
        address = self._leader_address
        if address is None or address == broker.advertised_address:
            return
        client = broker.client_of(address)
        try:
            with trio.move_on_after(_TAKE_OVER_S):
                topics = await self._get(
                    client, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigAndMappingSerializeWrapper
                )
                groups = await self._get(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper)
                offsets = await self._get(client, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper)
                known = broker.topic_configs.table
                if broker.topic_configs.put_all(
                    one for name, one in topics.topic_config_table.items() if name not in known
                ):
                    broker.register_soon()
                known_groups = broker.subscription_groups.table
                broker.subscription_groups.put_all(
                    one for name, one in groups.subscription_group_table.items() if name not in known_groups
                )
                broker.consumer_offsets.merge(offsets)
                broker.consumer_offsets.bound(broker.store.queue_end_offset)
        except (RequestFailed, RemoteProtocolError) as error:
            logger.info("the former master at %s tells nothing of its tables: %s", address, error)
        finally:
            client.close()

    async def _fetch_all(self, client: RemotingClient) -> None:
        broker = self._broker
        topics = await self._get(client, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigAndMappingSerializeWrapper)
        current = topics.topic_config_table
        broker.topic_configs.put_all(current.values())
        gone = [name for name in broker.topic_configs.table if name not in current]
        if broker.topic_configs.delete(gone):
            for name in gone:  # its messages too: should this replica lead one day, they must not come back
                broker.store.delete_topic(name)
        groups = await self._get(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper)
        broker.subscription_groups.put_all(groups.subscription_group_table.values())
        for name in [name for name in broker.subscription_groups.table if name not in groups.subscription_group_table]:
            broker.subscription_groups.delete(name)
        offsets = await self._get(client, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetSerializeWrapper)
        for topic, group, queue_id, offset in broker.consumer_offsets.merge(offsets):
            await self._tell(client, topic, group, queue_id, offset)
        delays = await self._get(client, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetSerializeWrapper)
        self._delays, self._delays_end_offset = delays, None

    async def _tell(self, client: RemotingClient, topic: str, group: str, queue_id: int, offset: int) -> None:
        """The leader was away while this group read on here; it takes the offset unless its own is higher by now."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await client.request(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header), timeout_s=_TIMEOUT_S)

    async def _get(self, client: RemotingClient, code: RequestCode, body_type: type[BodyT]) -> BodyT:
        reply = await client.request(RemotingCommand.request(code), timeout_s=_TIMEOUT_S)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestFailed(f"request {code.name} was answered with code {reply.code}: {reply.remark}")
        return body_type.from_json(reply.body)


def _tables_of(version: str) -> str:
    """The part of Broker.metadata_version that topics and groups change."""
    return version.rsplit("-", 2)[0]
