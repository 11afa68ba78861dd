"""What a processor sees of the broker: a view of brokerd/broker.py that tests can stand in for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Protocol

from brokerd.client_channel import Peer

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.environment import Threads
    from brokerd.long_polling import PullRequestHoldService
    from brokerd.producer_manager import ProducerManager
    from brokerd.quotas import Quotas
    from brokerd.rebalance_lock import RebalanceLockManager
    from brokerd.replica.diverged import DivergedMessages
    from brokerd.replica.replica import Replica
    from brokerd.services.delay_level import ScheduleMessageService
    from brokerd.services.metadata_log import MetadataLog
    from brokerd.services.metering import MeteringService
    from brokerd.services.quorum import QuorumService
    from brokerd.services.replica_follower import FollowerService
    from brokerd.services.stranded_pulls import StrandedPulls
    from brokerd.stats import BrokerStats
    from brokerd.store import AppendResult, Disk, MessageStore, MessageToStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager
    from mqwire.command import RemotingCommand

__all__ = ["Broker", "Clock", "Peer"]


class Clock(Protocol):
    """The broker's two clocks (brokerd/clock.py)."""

    def time_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class Broker(Protocol):
    """The broker's parts, and what processors may ask of it."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    metadata_log: MetadataLog
    consumers: ConsumerManager
    producers: ProducerManager
    stranded_pulls: StrandedPulls
    rebalance_locks: RebalanceLockManager
    schedule: ScheduleMessageService
    metering: MeteringService
    acl: AccessControl | None
    stats: BrokerStats
    quotas: Quotas
    held_pulls: PullRequestHoldService
    store_host: bytes
    advertised_address: str
    random: Random
    disk: Disk
    threads: Threads

    @property
    def clock(self) -> Clock: ...

    def append(self, messages: Sequence[MessageToStore], *, counted_for: str | None = None) -> list[AppendResult]:
        """Stores messages, all or none, and wakes who waits for them; raises StoreError. See brokerd/broker.py."""

    replica: Replica
    follower: FollowerService
    quorum: QuorumService
    diverged: DivergedMessages

    @property
    def advertised_id(self) -> int | None: ...

    @property
    def delivers_messages(self) -> bool:
        """Whether this replica delivers delayed messages."""

    def messages_behind(self, offset: int) -> int | None:
        """How many records come after `offset`; None when that is too far to count."""

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None:
        """Somebody named an epoch, and perhaps who leads in it."""

    def role_changed(self) -> None:
        """This replica began or stopped to lead."""

    def leader_changed(self) -> None:
        """This replica follows as before, perhaps another leader."""

    def log_grew(self) -> None:
        """A record was written beside `append`: wake who waits for it."""

    def finish_promotion(self, peer: Peer, request: RemotingCommand) -> None:
        """Answer a promotion once its epoch record is held and the name servers know."""

    def refuses_sends(self) -> str | None:
        """Why no message is taken now, as a remark; None when they are."""

    def forget_messages(self, topic: str) -> None:
        """A topic was deleted: its messages go with it. Raises StoreError or OSError."""

    def leader_port_changed(self) -> None:
        """leaderListenPort has another value: serve there from now on, and tell the name servers."""

    def register_soon(self) -> None:
        """The table of topics changed: tells the name servers."""
