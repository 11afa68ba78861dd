"""ConsumerManager: who consumes in which group, and what each group subscribes to.

In memory only: clients report it again with every heartbeat. Whenever a group's membership changes, its members are notified
(NOTIFY_CONSUMER_IDS_CHANGED), so that they share the queues again at once rather than with their next poll: a few at once, many in
turns with all else (services/member_notices.py), for a thousand members that leave together would be a million notices.
Sources: ConsumerManager, ConsumerGroupInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from brokerd.client_channel import ClientChannel, Peer, Reported, text_bytes
from mqwire.bodies import ReportedSubscription, SubscriptionData, SubscriptionVariant
from mqwire.codes import RequestCode
from mqwire.command import RemotingCommand
from mqwire.headers_client import NotifyConsumerIdsChangedRequestHeader

if TYPE_CHECKING:
    from brokerd.config import BrokerConfig

logger = logging.getLogger("brokerd.consumer_manager")

BROADCASTING = "BROADCASTING"

# What clients report is kept for minutes: bounds on memory, far above what one broker's consumers have.
MEMBERS_BYTES_MAX: Final = 32 * 1024 * 1024  # of those that have ids of 60 characters 50,000
SUBSCRIPTIONS_BYTES_MAX: Final = 32 * 1024 * 1024
# What each member reported is only for people who look for the odd one: beyond these bounds it is not kept.
REPORTED_VARIANTS_MAX: Final = 16  # of one group
REPORTED_BYTES_MAX: Final = 8 * 1024 * 1024  # of all groups
# So many members are notified in one turn, about a millisecond.
NOTICES_AT_ONCE: Final = 64


class ConsumerGroupInfo:
    """One group that is online. Values of the last heartbeat stand for all members, as in RocketMQ."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type: str | None = None
        self.message_model: str | None = None
        self.consume_from_where: str | None = None
        self._channels: dict[int, ClientChannel] = {}
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._kept_bytes = 0
        self._variants: dict[Reported, int] = {}  # with how many members report it
        self._reported_bytes = 0

    @property
    def channels(self) -> list[ClientChannel]:
        return list(self._channels.values())

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionData]:
        """By topic; a view."""
        return MappingProxyType(self._subscriptions)

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.get(topic)

    def find_channel(self, client_id: str) -> ClientChannel | None:
        """The member's newest open connection."""
        found = None
        for channel in self._channels.values():
            if channel.client_id == client_id and not channel.peer.closed:
                found = channel
        return found

    def client_ids(self) -> list[str]:
        """The members' ids, each once: a client that reconnects has two connections for a moment."""
        return list(dict.fromkeys(channel.client_id for channel in self._channels.values()))

    def variants(self) -> list[SubscriptionVariant]:
        """Members that subscribe alike, and to what; members whose words were not kept are in none."""
        members: dict[Reported, list[str]] = {}
        for channel in self._channels.values():
            if channel.reported is not None:
                members.setdefault(channel.reported, []).append(channel.client_id)
        return [
            SubscriptionVariant(
                client_ids=list(dict.fromkeys(client_ids)),
                subscriptions=[
                    ReportedSubscription(topic=topic, sub_string=expression, expression_type=kind)
                    for topic, expression, kind in reported
                ],
            )
            for reported, client_ids in members.items()
        ]

    def _keep_reported(self, channel: ClientChannel, reported: Reported | None, room_bytes: int) -> None:
        """Keep what the member reported, in place of what it reported before, if there is room."""
        if reported == channel.reported:
            return
        if channel.reported is not None:
            self._variants[channel.reported] -= 1
            if not self._variants[channel.reported]:
                del self._variants[channel.reported]
                self._reported_bytes -= _size_of_reported(channel.reported)
                room_bytes += _size_of_reported(channel.reported)
        channel.reported = None
        if reported is None:
            return
        if reported in self._variants:
            # The very tuple that others have, so that a thousand equal members keep one.
            reported = next(variant for variant in self._variants if variant == reported)
        elif len(self._variants) >= REPORTED_VARIANTS_MAX or _size_of_reported(reported) > room_bytes:
            return
        else:
            self._reported_bytes += _size_of_reported(reported)
        self._variants[reported] = self._variants.get(reported, 0) + 1
        channel.reported = reported

    def _update_channel(self, channel: ClientChannel) -> bool:
        known = self._channels.get(channel.peer.id)
        if known is None or known.client_id != channel.client_id:
            self._channels[channel.peer.id] = channel
            return True
        known.seen_s = channel.seen_s
        known.version = channel.version
        return False

    def _update_subscriptions(self, subscriptions: Sequence[SubscriptionData]) -> bool:
        updated = self._updated(subscriptions)
        changed = updated.keys() != self._subscriptions.keys()
        self._subscriptions = updated
        return changed

    def _updated(self, subscriptions: Sequence[SubscriptionData] | None) -> dict[str, SubscriptionData]:
        """By topic, what a heartbeat with these leaves: of each topic the newest version; None: all as before."""
        if subscriptions is None:
            return self._subscriptions
        updated: dict[str, SubscriptionData] = {}
        for subscription in subscriptions:
            topic = subscription.topic
            known = updated.get(topic) or self._subscriptions.get(topic)
            updated[topic] = subscription if known is None or subscription.sub_version > known.sub_version else known
        return updated

    def _measure(self) -> None:
        """Count what is kept of the group's last heartbeat."""
        words = (self.consume_type, self.message_model, self.consume_from_where)
        self._kept_bytes = _size_of(words, self._subscriptions.values())


def _size_of(words: Iterable[str | None], subscriptions: Iterable[SubscriptionData]) -> int:
    """About how much memory they take, whatever a client has put where RocketMQ's have one of a few words."""
    return sum(text_bytes(word) for word in words if word is not None) + sum(
        500
        + text_bytes(data.topic)
        + text_bytes(data.sub_string)
        + text_bytes(data.expression_type)
        + sum(60 + text_bytes(tag) for tag in data.tags_set)
        + 32 * len(data.code_set)
        for data in subscriptions
    )


def _size_of_reported(reported: Reported) -> int:
    """About how much memory it takes."""
    return sum(300 + sum(map(text_bytes, texts)) for texts in reported)


class ConsumerManager:
    """All groups that are online. `monotonic` is a clock of seconds that never jumps."""

    def __init__(self, config: BrokerConfig, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._monotonic = monotonic
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._groups_of: dict[int, set[str]] = {}  # by connection
        self._fingerprints: dict[str, int] = {}
        self._members_bytes = 0
        self._kept_bytes = 0
        self._reported_bytes = 0
        # Called when a notice was sent or is due: then `send_notices` is to be called soon.
        self.on_notice: Callable[[], None] = lambda: None
        self._notices_left = NOTICES_AT_ONCE  # until it is
        self._due: dict[str, None] = {}  # groups whose members are to be notified
        self._being_notified: tuple[str, list[ClientChannel]] = ("", [])  # a group, and who of it is left

    @property
    def groups(self) -> Mapping[str, ConsumerGroupInfo]:
        """By name; a view."""
        return MappingProxyType(self._groups)

    def find(self, group: str) -> ConsumerGroupInfo | None:
        return self._groups.get(group)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        info = self._groups.get(group)
        return None if info is None else info.find_subscription(topic)

    def groups_of_topic(self, topic: str) -> list[str]:
        """The groups that are online and subscribe to the topic."""
        return sorted(name for name, info in self._groups.items() if topic in info.subscriptions)

    def too_much(
        self,
        group: str,
        channel: ClientChannel,
        words: Sequence[str | None],
        subscriptions: Sequence[SubscriptionData] | None,
    ) -> str | None:
        """Why a heartbeat's word on this group is not taken, None when it is: all that clients report has a bound.

        `words` are its consume type, message model and where to begin; `subscriptions` None: as before. A member stays one.
        """
        info = self._groups.get(group) or ConsumerGroupInfo(group)
        known = info._channels.get(channel.peer.id)
        added_bytes = channel.size_bytes - (0 if known is None else known.size_bytes)
        if added_bytes > 0 and self._members_bytes + added_bytes > MEMBERS_BYTES_MAX:
            return (
                f"the members of all consumer groups would take {self._members_bytes + added_bytes} bytes, this broker keeps"
                f" {MEMBERS_BYTES_MAX}: run fewer consumers, or give them shorter ids"
            )
        after = self._kept_bytes - info._kept_bytes + _size_of(words, info._updated(subscriptions).values())
        if after > SUBSCRIPTIONS_BYTES_MAX:
            return (
                f"the subscriptions of all groups would take {after} bytes, this broker keeps {SUBSCRIPTIONS_BYTES_MAX}:"
                f" subscribe group {group} to fewer topics or tags"
            )
        return None

    def register(
        self,
        group: str,
        channel: ClientChannel,
        *,
        consume_type: str | None,
        message_model: str | None,
        consume_from_where: str | None,
        subscriptions: Sequence[SubscriptionData] | None,
        notify: bool = True,
    ) -> bool:
        """A heartbeat's word on one group; `subscriptions` None: as before.

        Returns whether members or subscriptions changed; then the members are notified, if `notify`.
        """
        info = self._groups.get(group)
        if info is None:
            info = self._groups[group] = ConsumerGroupInfo(group)
        info.consume_type = consume_type
        info.message_model = message_model
        info.consume_from_where = consume_from_where
        channel.seen_s = self._monotonic()
        size_bytes = info._kept_bytes
        replaced = info._channels.get(channel.peer.id)
        if replaced is not None and replaced.client_id != channel.client_id:
            self._keep_reported(info, replaced, None)
        joined = info._update_channel(channel)
        if joined:
            self._members_bytes += channel.size_bytes - (0 if replaced is None else replaced.size_bytes)
            self._groups_of.setdefault(channel.peer.id, set()).add(group)
            logger.info("consumer %s joins group %s", channel.client_id, group)
        if subscriptions is not None:
            reported = tuple(sorted((data.topic, data.sub_string, data.expression_type) for data in subscriptions))
            self._keep_reported(info, info._channels[channel.peer.id], reported)
        resubscribed = subscriptions is not None and info._update_subscriptions(subscriptions)
        info._measure()
        self._kept_bytes += info._kept_bytes - size_bytes
        changed = joined or resubscribed
        if changed and notify:
            self._notify(info)
        return changed

    def _keep_reported(self, info: ConsumerGroupInfo, channel: ClientChannel, reported: Reported | None) -> None:
        before = info._reported_bytes
        info._keep_reported(channel, reported, REPORTED_BYTES_MAX - self._reported_bytes)
        self._reported_bytes += info._reported_bytes - before

    def unregister(self, group: str, peer: Peer, *, notify: bool = True) -> bool:
        """A client leaves a group; returns whether it was in it."""
        info = self._groups.get(group)
        if info is None:
            return False
        channel = info._channels.pop(peer.id, None)
        if channel is None:
            return False
        logger.info("consumer %s leaves group %s", channel.client_id, group)
        own = self._groups_of[peer.id]
        own.discard(group)
        if not own:
            del self._groups_of[peer.id]
        self._members_bytes -= channel.size_bytes
        self._keep_reported(info, channel, None)
        if not info._channels:
            self._kept_bytes -= info._kept_bytes
            del self._groups[group]
            self._fingerprints.pop(group, None)
        elif notify:
            self._notify(info)
        return True

    def close_peer(self, peer: Peer) -> None:
        """A connection is gone, and the clients that came over it."""
        for name in list(self._groups_of.get(peer.id, ())):
            self.unregister(name, peer)

    def scan(self) -> None:
        """Drops members without a heartbeat for longer than channelExpiredTimeout; call it each 10 s.

        RocketMQ closes their connections too. Here another group's member may live on over the same connection, and one
        that is silent as a whole is closed for that.
        """
        oldest_s = self._monotonic() - self._config.channel_expired_timeout_ms / 1000
        for info in list(self._groups.values()):
            for channel in info.channels:
                if channel.seen_s < oldest_s:
                    logger.warning("consumer %s of group %s has sent no heartbeat", channel.client_id, info.name)
                    self.unregister(info.name, channel.peer)

    def fingerprint_changed(self, group: str, fingerprint: int) -> bool:
        """Whether a client's subscriptions are other than the group's last: version 2 of the heartbeat asks."""
        known = self._fingerprints.get(group)
        self._fingerprints[group] = fingerprint
        return known is not None and known != fingerprint

    def notify_clients(self, language: int) -> int:
        """Have all clients of one language rebalance now; returns how many members of groups they are."""
        return sum(
            self._send_notice(info.name, channel)
            for info in self._groups.values()
            if self._is_notified(info)
            for channel in info.channels
            if channel.language == language
        )

    def send_notices(self) -> bool:
        """Notify the next members of those that are to be, as many as in one turn; returns whether any are left."""
        left = NOTICES_AT_ONCE
        while left:
            group, members = self._being_notified
            if members:
                self._send_notice(group, members.pop())
                left -= 1
            elif self._due:
                group = next(iter(self._due))
                del self._due[group]
                info = self._groups.get(group)
                self._being_notified = (group, [] if info is None else info.channels)
            else:
                break
        self._notices_left = left
        return bool(self._being_notified[1] or self._due)

    def _notify(self, info: ConsumerGroupInfo) -> None:
        if not self._is_notified(info):
            return
        if not self._due and len(info._channels) <= self._notices_left:
            self._notices_left -= len(info._channels)
            for channel in info.channels:
                self._send_notice(info.name, channel)
        else:
            self._due[info.name] = None
        self.on_notice()

    def _is_notified(self, info: ConsumerGroupInfo) -> bool:
        """Broadcasting groups share no queues, so their members need not know of each other."""
        return self._config.notify_consumer_ids_changed_enable and not info.is_broadcasting

    @staticmethod
    def _send_notice(group: str, channel: ClientChannel) -> bool:
        if channel.peer.closed:
            return False
        channel.peer.send(
            RemotingCommand.request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
                NotifyConsumerIdsChangedRequestHeader(consumer_group=group),
                oneway=True,
            )
        )
        return True
