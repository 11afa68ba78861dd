"""What processors see of the services, and what all of them together use of the broker.

Each module says in a protocol of its own what it uses; `Broker` is the sum, for the table of handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING, Protocol, TypeAlias

from brokerd.client_channel import Peer
from brokerd.replies import AfterDurable, Reply
from mqwire.command import RemotingCommand

if TYPE_CHECKING:
    from brokerd.acl import AccessControl
    from brokerd.client_calls import ClientCalls
    from brokerd.config import BrokerConfig
    from brokerd.consumer_manager import ConsumerManager
    from brokerd.consumer_offset import ConsumerOffsetManager
    from brokerd.long_polling import PullRequestHoldService
    from brokerd.metadata_record import MetadataRecord
    from brokerd.producer_manager import ProducerManager
    from brokerd.quotas import Quotas
    from brokerd.rebalance_lock import RebalanceLockManager
    from brokerd.replica.diverged import DivergedMessages
    from brokerd.replica.elections import Outcome
    from brokerd.replica.quorum_messages import Answer, Request
    from brokerd.replica.read_split import ReadSplit
    from brokerd.replica.replica import Replica
    from brokerd.stats import BrokerStats
    from brokerd.store import AppendResult, BatchResult, BatchToStore, GetResult, MessageStore, MessageToStore
    from brokerd.subscription_group import SubscriptionGroupManager
    from brokerd.topic_config import TopicConfigManager
    from brokerd.unproven_offsets import UnprovenOffsets
    from mqwire.bodies import DelayOffsetSerializeWrapper
    from mqwire.metering import PullReport

__all__ = [
    "Broker",
    "Clock",
    "DelayedMessages",
    "Elector",
    "Follower",
    "Handler",
    "MetadataLog",
    "Metering",
    "Peer",
    "StrandedPulls",
]


class Clock(Protocol):
    """The broker's two clocks (brokerd/clock.py)."""

    def time_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class MetadataLog(Protocol):
    """Topics, groups and offsets as records of the log (services/metadata_log.py)."""

    @property
    def end_offset(self) -> int: ...

    @property
    def is_stale(self) -> bool: ...

    def refusal(self) -> str | None: ...

    def answer(self, reply: RemotingCommand) -> AfterDurable: ...

    def write_base(self) -> None: ...

    def offsets_changed(self) -> None: ...

    def write(self, record: MetadataRecord) -> None: ...

    def write_offsets(self) -> None: ...

    def write_last_offsets(self) -> None: ...

    def forget_messages(self, topic: str) -> None: ...


class DelayedMessages(Protocol):
    """Messages with a delay level (services/delay_level.py)."""

    @property
    def offsets(self) -> dict[int, int]: ...

    def transform_on_send(self, message: MessageToStore) -> MessageToStore: ...

    def to_wrapper(self) -> DelayOffsetSerializeWrapper: ...


class Metering(Protocol):
    """What is counted (metering/service.py)."""

    @property
    def closed(self) -> bool: ...

    @property
    def is_finished(self) -> bool: ...

    def pulled(self, topic: str, group: str, credential: str, result: GetResult) -> None: ...

    def take_report(self, report: PullReport) -> bool: ...

    def close(self) -> bool: ...


class Follower(Protocol):
    """This replica while it follows (services/replica_follower.py)."""

    @property
    def hears_leader(self) -> bool: ...

    @property
    def halted(self) -> str | None: ...


class Elector(Protocol):
    """Elections (services/quorum.py)."""

    def answer(self, message: Request) -> Answer | None: ...

    def take(self, outcome: Outcome) -> None: ...


class StrandedPulls(Protocol):
    """Consumers that wait for a leader that is gone (services/stranded_pulls.py)."""

    def hides_members_from(self, language: int) -> bool: ...


class Broker(Protocol):
    """The broker's parts, and what processors may ask of it (brokerd/broker.py)."""

    config: BrokerConfig
    store: MessageStore
    topic_configs: TopicConfigManager
    subscription_groups: SubscriptionGroupManager
    consumer_offsets: ConsumerOffsetManager
    unproven_offsets: UnprovenOffsets
    consumers: ConsumerManager
    client_calls: ClientCalls
    producers: ProducerManager
    rebalance_locks: RebalanceLockManager
    acl: AccessControl | None
    stats: BrokerStats
    quotas: Quotas
    held_pulls: PullRequestHoldService
    store_host: bytes
    advertised_address: str
    random: Random
    replica: Replica
    read_split: ReadSplit
    diverged: DivergedMessages

    @property
    def clock(self) -> Clock: ...

    @property
    def metadata_log(self) -> MetadataLog: ...

    @property
    def schedule(self) -> DelayedMessages: ...

    @property
    def metering(self) -> Metering: ...

    @property
    def follower(self) -> Follower: ...

    @property
    def quorum(self) -> Elector: ...

    @property
    def stranded_pulls(self) -> StrandedPulls: ...

    @property
    def advertised_id(self) -> int | None: ...

    def append(
        self, messages: Sequence[MessageToStore], *, counted_for: str | None = None, any_size: bool = False
    ) -> list[AppendResult]:
        """Stores messages, all or none, and wakes the tasks that wait for them; raises StoreError. See brokerd/broker.py."""

    def append_batch(self, batch: BatchToStore, *, counted_for: str) -> BatchResult:
        """As `append`, for the messages of a client's batch."""

    def answer_when_held(
        self, peer: Peer, end_offset_bytes: int, frames: list[bytes], *, since_s: float | None = None
    ) -> None:
        """Writes answers once the log is held up to there as the mode promises."""

    def messages_behind(self, offset: int) -> int | None:
        """How many records come after `offset`; None when that is too far to count."""

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None:
        """A peer named an epoch, and perhaps its leader."""

    def role_changed(self) -> None:
        """This replica began or stopped to lead."""

    def leader_changed(self) -> None:
        """This replica follows as before, perhaps another leader."""

    def forget_replica(self, replica_id: int) -> None:
        """Forget a replica that was stopped, and has left the group for good."""

    def log_grew(self) -> None:
        """A record was written beside `append`: wake the tasks that wait for it."""

    def finish_promotion(self, peer: Peer, request: RemotingCommand) -> None:
        """Answer a promotion once its epoch record is held and the name servers know."""

    def cut_network(self, for_s: float) -> bool:
        """Be cut off from everyone for so long, from this answer on; False while that is so already."""

    def refuses_sends(self) -> str | None:
        """Why no message is taken now, as a remark; None when they are."""

    def forget_messages(self, topic: str) -> None:
        """A topic was deleted: its messages go with it. Raises StoreError or OSError."""

    def offsets_reset(self, topic: str, group: str, queue_ids: Iterable[int]) -> None:
        """The group's offsets were reset: answer its pulls that wait for these queues."""

    def leader_port_changed(self) -> None:
        """leaderListenPort has another value: serve there from now on, and register there with the name servers."""

    def register_soon(self) -> None:
        """The table of topics changed: notifies the name servers."""


Handler: TypeAlias = Callable[[Broker, Peer, RemotingCommand], Reply]
