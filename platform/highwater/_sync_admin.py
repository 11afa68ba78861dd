"""Admin: the synchronous twin of AsyncAdmin. Generated; change that one instead.

Made by platform/generate_sync_clients.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from highwater._admin import AsyncAdmin
from highwater._admin_messages import MAX_TIMESTAMP_MS
from highwater._admin_models import (
    AclAccount,
    ClientConnection,
    ClusterInfo,
    ConsumeMessageDirectlyResult,
    ConsumerConnections,
    ConsumerProgress,
    ConsumerRunningInfo,
    QueryResult,
    SubscriptionGroup,
    TopicConfig,
    TopicLimit,
    TopicStats,
)
from highwater._admin_replica import DivergedMessages, GroupMember
from highwater._models import Credentials, MessageQueue, ReceivedMessage
from highwater._portal import SyncClient
from highwater._routes import TopicRoute
from highwater._settings import settings_from_env
from highwater._wait_budget import WaitBudget
from highwater.trace_story import TraceStory
from mqwire.bodies import DivergedFile, ReplicaStatus
from mqwire.names import RMQ_SYS_TRACE_TOPIC


class Admin(SyncClient[AsyncAdmin]):
    """Administration of the clusters that the name servers know; see each method.

    Changes go to every master of a cluster (or to every name server) and are safe to repeat: after a failure some may
    have been changed and others not.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str],
        credentials: Credentials | None = None,
        timeout_ms: int = 3000,
        *,
        use_tls: bool | ssl.SSLContext = False,
        only_addresses: Collection[str] | None = None,
        patience_ms: int | None = None,
        wait_budget: WaitBudget | None = None,
    ) -> None:
        super().__init__(
            AsyncAdmin(
                namesrv,
                credentials,
                timeout_ms,
                use_tls=use_tls,
                only_addresses=only_addresses,
                patience_ms=patience_ms,
                wait_budget=wait_budget,
            )
        )

    @classmethod
    def from_env(cls) -> Self:
        """Administration of the cluster that the environment names, see README; raises ConfigurationError."""
        settings = settings_from_env()
        return cls(settings.namesrv, settings.credentials, use_tls=settings.use_tls)

    def cluster_info(self) -> ClusterInfo:
        """Every cluster and broker group that the name server knows."""
        return self._run(self._twin.cluster_info)

    def consumer_running_info(
        self, group: str, client_id: str, *, stack: bool = False, timeout_ms: int | None = None
    ) -> ConsumerRunningInfo:
        """How a connected member is doing, by its own word; `stack` asks what its threads do.

        Any broker that the member is connected to can ask it, and waits 10 s for it; so do we, unless `timeout_ms` says
        otherwise. Raises ConsumerOfflineError for a member that is not connected, BrokerError for one that does not answer.
        """
        return self._run(self._twin.consumer_running_info, group, client_id, stack=stack, timeout_ms=timeout_ms)

    def consume_message_directly(
        self, group: str, client_id: str, message_id: str, *, topic: str | None = None, address: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Have a connected member handle one stored message now, and return what became of it. No progress changes.

        `message_id` is the broker's (offsetMsgId), and that broker is asked, or the one at `address`: after a failover the
        broker that the id names may be gone, and each of its replicas has the message. Raises ConsumerOfflineError when the member
        is not connected to it, ConfigurationError for text that isn't an offsetMsgId, and BrokerError when there is no
        such message, or the member has not handled it within 10 s: then it may be at it still.
        """
        return self._run(
            self._twin.consume_message_directly, group, client_id, message_id, topic=topic, address=address
        )

    def group_list(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """The names of the consumer groups on the masters of `cluster`, or of all clusters, sorted."""
        return self._run(self._twin.group_list, cluster=cluster)

    def group_configs(self, address: str) -> Mapping[str, SubscriptionGroup]:
        """All consumer groups of one broker, by name."""
        return self._run(self._twin.group_configs, address)

    def create_group(
        self,
        group: str,
        *,
        cluster: str | None = None,
        address: str | None = None,
        consume_enable: bool = True,
        consume_from_min_enable: bool = True,
        consume_broadcast_enable: bool = True,
        consume_message_orderly: bool = False,
        retry_queue_nums: int = 1,
        retry_max_times: int = 16,
        broker_id: int = 0,
        which_broker_when_consume_slowly: int = 1,
        notify_consumer_ids_changed_enable: bool = True,
        attributes: Mapping[str, str | None] | None = None,
    ) -> tuple[str, ...]:
        """Create the group, or change it, on every master of `cluster` or on the broker at `address`; returns those.

        `attributes` are changes in RocketMQ's form without its sign, such as {"priority.factor": "2"}; None removes one.
        """
        return self._run(
            self._twin.create_group,
            group,
            cluster=cluster,
            address=address,
            consume_enable=consume_enable,
            consume_from_min_enable=consume_from_min_enable,
            consume_broadcast_enable=consume_broadcast_enable,
            consume_message_orderly=consume_message_orderly,
            retry_queue_nums=retry_queue_nums,
            retry_max_times=retry_max_times,
            broker_id=broker_id,
            which_broker_when_consume_slowly=which_broker_when_consume_slowly,
            notify_consumer_ids_changed_enable=notify_consumer_ids_changed_enable,
            attributes=attributes,
        )

    def delete_group(self, group: str, *, cluster: str, clean_offset: bool = True) -> None:
        """Delete the group from every master of `cluster`; `clean_offset` also its offsets, retry and dead letters."""
        self._run(self._twin.delete_group, group, cluster=cluster, clean_offset=clean_offset)

    def consumer_progress(self, group: str, *, topic: str | None = None) -> ConsumerProgress:
        """How far the group is in each queue that it has consumed, of one topic or of all."""
        return self._run(self._twin.consumer_progress, group, topic=topic)

    def consumer_connections(self, group: str) -> ConsumerConnections:
        """The group's members that are connected now, and what they subscribe to."""
        return self._run(self._twin.consumer_connections, group)

    def producer_connections(self, group: str, topic: str) -> tuple[ClientConnection, ...]:
        """The producers of a group that are connected to the topic's brokers now, sorted."""
        return self._run(self._twin.producer_connections, group, topic)

    def reset_offset_by_time(
        self, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> Mapping[MessageQueue, int]:
        """Set the group to the first message stored at `timestamp_ms` or later (-1: to the end) in every queue.

        Members that are connected go there at once (Go's client: within 40 s). Without `force` a queue is only ever set back.
        Returns the offsets. Raises NoRouteError where a broker group has no master, before any is asked.
        """
        return self._run(self._twin.reset_offset_by_time, group, topic, timestamp_ms, force=force)

    def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set the group to `offset` in one queue, online or not; members that are connected go there at once (Go's: within 40 s).

        Refused outside of what the queue holds. Unlike `set_consumer_offset`, members' commits until then don't count.
        """
        self._run(self._twin.reset_offset, group, queue, offset)

    def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The group's stored offset in one queue; None if it has none."""
        return self._run(self._twin.consumer_offset, group, queue)

    def set_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset in one queue; members that are connected will overwrite it."""
        self._run(self._twin.set_consumer_offset, group, queue, offset)

    def topic_list(self, *, cluster: str | None = None) -> tuple[str, ...]:
        """The names of all topics that the name server knows, system topics included, sorted."""
        return self._run(self._twin.topic_list, cluster=cluster)

    def topic_route(self, topic: str) -> TopicRoute:
        """Where the topic's queues are, asked now; raises NoRouteError."""
        return self._run(self._twin.topic_route, topic)

    def topic_config(self, topic: str, address: str) -> TopicConfig:
        """The topic as one broker keeps it; raises TopicNotFoundError."""
        return self._run(self._twin.topic_config, topic, address)

    def create_topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        address: str | None = None,
        read_queue_nums: int = 8,
        write_queue_nums: int = 8,
        perm: int = 6,
        order: bool = False,
        attributes: Mapping[str, str | None] | None = None,
    ) -> tuple[str, ...]:
        """Create the topic, or change it, on every master of `cluster` or on the broker at `address`.

        Returns the addresses. `attributes` are RocketMQ's, such as {"message.type": "FIFO"}, and ours, such as
        {"reserve.bytes": "1000000"}; None removes one, and what is not named stays. Doing it again is harmless; after a failure
        some brokers may have it and others not.
        """
        return self._run(
            self._twin.create_topic,
            topic,
            cluster=cluster,
            address=address,
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            order=order,
            attributes=attributes,
        )

    def delete_topic(self, topic: str, *, cluster: str) -> None:
        """Delete the topic and its messages from every master of `cluster`, and its route. No topic: no error."""
        self._run(self._twin.delete_topic, topic, cluster=cluster)

    def topic_stats(self, topic: str) -> TopicStats:
        """Each queue's first and next offset, and when it was last written to, from the masters."""
        return self._run(self._twin.topic_stats, topic)

    def topic_limits(self, topic: str) -> tuple[TopicLimit, ...]:
        """How long the topic keeps messages, and its quotas with their use, as the master of each broker group says, by broker.

        A group without a master is left out. Raises NoRouteError.
        """
        return self._run(self._twin.topic_limits, topic)

    def topic_groups(self, topic: str) -> tuple[str, ...]:
        """The groups that have consumed the topic, sorted."""
        return self._run(self._twin.topic_groups, topic)

    def broker_runtime_info(self, address: str) -> dict[str, str]:
        """What a broker reports of itself (brokerVersionDesc, putTps, bootTimestamp …), in its own words."""
        return self._run(self._twin.broker_runtime_info, address)

    def broker_config(self, address: str) -> dict[str, str]:
        """A broker's configuration, every key with its value in force."""
        return self._run(self._twin.broker_config, address)

    def update_broker_config(self, address: str, properties: Mapping[str, str]) -> None:
        """Change keys of a running broker; it refuses those that can't be changed so."""
        self._run(self._twin.update_broker_config, address, properties)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take a broker group out of writing: clients send elsewhere, reading goes on. Returns how many topics it had.

        Done on every name server; it lasts until the broker registers again or add_write_perm().
        """
        return self._run(self._twin.wipe_write_perm, broker_name)

    def add_write_perm(self, broker_name: str) -> int:
        """The inverse of wipe_write_perm()."""
        return self._run(self._twin.add_write_perm, broker_name)

    def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value on every name server."""
        self._run(self._twin.put_kv_config, namespace, key, value)

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """A value from one name server; None if there is none."""
        return self._run(self._twin.get_kv_config, namespace, key)

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Forget a value on every name server."""
        self._run(self._twin.delete_kv_config, namespace, key)

    def kv_list(self, namespace: str) -> dict[str, str]:
        """All values of a namespace from one name server; empty if there is none."""
        return self._run(self._twin.kv_list, namespace)

    def upsert_acl_account(self, address_or_cluster: str, account: AclAccount) -> tuple[str, ...]:
        """Create or replace an account on one broker, or on every master of a cluster; returns the addresses."""
        return self._run(self._twin.upsert_acl_account, address_or_cluster, account)

    def delete_acl_account(self, access_key: str, address_or_cluster: str | None = None) -> tuple[str, ...]:
        """Delete an account from one broker, from every master of a cluster, or from every master there is."""
        return self._run(self._twin.delete_acl_account, access_key, address_or_cluster)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will have."""
        return self._run(self._twin.max_offset, queue)

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the queue's oldest message."""
        return self._run(self._twin.min_offset, queue)

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset whose message was stored at `timestamp_ms` or later."""
        return self._run(self._twin.search_offset, queue, timestamp_ms)

    def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """When the queue's oldest message was stored; None if it holds none."""
        return self._run(self._twin.earliest_store_time_ms, queue)

    def pull(
        self, queue: MessageQueue, offset: int, max_messages: int = 32, *, group: str | None = None
    ) -> list[ReceivedMessage]:
        """Messages from `offset` on, at most 32 or as many as the broker hands out at once; none at the queue's end.

        Fewer where their bodies are large: the last is the one with which they reach 32 MiB.

        An offset that the queue no longer has, or not yet, gives the messages from the nearest one that it has. No
        group's progress is touched; `group` is for access control alone, RocketMQ's TOOLS_CONSUMER by default.
        """
        return self._run(self._twin.pull, queue, offset, max_messages, group=group)

    def newest_messages(self, topic: str, limit: int = 32) -> list[ReceivedMessage]:
        """The topic's newest messages over all its queues, newest first."""
        return self._run(self._twin.newest_messages, topic, limit)

    def message_by_id(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """The message that an offsetMsgId names, from the broker whose address is in it.

        Raises NotFoundError when no message starts there, ConfigurationError for text that isn't an offsetMsgId.
        """
        return self._run(self._twin.message_by_id, message_id, topic)

    def messages_by_key(
        self, topic: str, key: str, *, limit: int = 32, begin_ms: int = 0, end_ms: int = MAX_TIMESTAMP_MS
    ) -> list[ReceivedMessage]:
        """Messages with this key, stored between the two times, newest first. None: an empty list."""
        return self._run(self._twin.messages_by_key, topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms)

    def message_by_unique_key(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """The message with this client id (UNIQ_KEY, SendResult.message_id); None when no index knows it."""
        return self._run(self._twin.message_by_unique_key, topic, message_id)

    def message_traces(
        self, message_id: str, *, trace_topic: str = RMQ_SYS_TRACE_TOPIC, sender: str | None = None
    ) -> TraceStory:
        """What clients with tracing on recorded of the message with this client's id (UNIQ_KEY): empty when none did.

        With `sender`, the address that the message came from (`ReceivedMessage.born_host`), it says which sends were recorded
        elsewhere. The newest 64 trace messages of each broker that name it are read. Raises NoRouteError for a trace topic that
        is not there, and as `query_messages`.
        """
        return self._run(self._twin.message_traces, message_id, trace_topic=trace_topic, sender=sender)

    def query_messages(
        self,
        topic: str,
        key: str,
        *,
        limit: int = 32,
        begin_ms: int = 0,
        end_ms: int = MAX_TIMESTAMP_MS,
        unique: bool = False,
    ) -> QueryResult:
        """Messages with this key or client id (UNIQ_KEY; with `unique` that only), stored between the two times.

        Each broker of the topic is asked; it answers from its message index, which follows the log by moments, with 64
        messages at most. Bodies stay compressed after the one with which they reach 32 MiB. Raises what a broker that can't be
        asked raises: "not found" is only said by those who looked.
        """
        return self._run(
            self._twin.query_messages, topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms, unique=unique
        )

    def replica_status(self, address: str) -> ReplicaStatus:
        """One replica's role, epoch and log, and its followers while it leads."""
        return self._run(self._twin.replica_status, address)

    def group_status(self, group: str, addresses: Sequence[str] = ()) -> tuple[GroupMember, ...]:
        """Every replica of a broker group that the name servers know or another replica names, by address, and those at
        `addresses`: one with brokerId 0 that knows no leader, or waits to lead again, is registered nowhere.

        One that does not answer is listed with the error. Raises NoRouteError for a group of which nothing is registered or named,
        ConfigurationError for an address of another group's.
        """
        return self._run(self._twin.group_status, group, addresses)

    def promote(
        self,
        address: str,
        group: str,
        replica_id: int,
        *,
        expected_epoch: int,
        new_epoch: int,
        in_sync: Sequence[int] = (),
        with_incomplete_log: bool = False,
        lacks_an_epoch: bool = False,
        lost: Sequence[int] = (),
    ) -> ReplicaStatus:
        """Make the replica the group's master in `new_epoch`, if it is in `expected_epoch` now; safe to repeat.

        It does not look at the other replicas: fence the old master first. `in_sync` are those that follow in a moment: readers
        are shown nothing new before they do. `with_incomplete_log`: although its log may lack records at its end. `lacks_an_epoch`:
        someone may have led in one of which its log has nothing: see highwater/promotion.py. A group that elects its leader takes
        it only with `lost`, those of its voters that are gone for good, a majority: see judge_recovery() there. Raises
        BrokerError when it is refused.
        """
        return self._run(
            self._twin.promote,
            address,
            group,
            replica_id,
            expected_epoch=expected_epoch,
            new_epoch=new_epoch,
            in_sync=in_sync,
            with_incomplete_log=with_incomplete_log,
            lacks_an_epoch=lacks_an_epoch,
            lost=lost,
        )

    def demote(
        self, address: str, group: str, *, epoch: int, leader_address: str | None = None, lost: Sequence[int] = ()
    ) -> ReplicaStatus:
        """Make the replica stop leading, because the group is, or is about to be, in `epoch`; safe to repeat.

        The answer says how far its log goes. `leader_address` is the replica to follow. With `lost`, of a group that elects, it
        promises that epoch to a recovery without these, by which the one at `leader_address`, or itself, is to lead.
        """
        return self._run(self._twin.demote, address, group, epoch=epoch, leader_address=leader_address, lost=lost)

    def freeze_sends(self, address: str, group: str, *, epoch: int, for_ms: int) -> ReplicaStatus:
        """Have the master refuse sends for so long, so that a slave can catch up; 0 takes them again at once."""
        return self._run(self._twin.freeze_sends, address, group, epoch=epoch, for_ms=for_ms)

    def transfer_leadership(self, address: str, group: str, target: int) -> ReplicaStatus:
        """Ask the leader of a quorum-led group to hand its role to `target` once it has caught up; begun when answered.

        It is done when the target leads in a higher epoch. Raises BrokerError when it is refused.
        """
        return self._run(self._twin.transfer_leadership, address, group, target)

    def change_members(
        self, address: str, group: str, change: str, replica_id: int | None, *, replica_address: str | None = None
    ) -> ReplicaStatus:
        """Ask the leader of a quorum-led group for one change of who counts; in force at once, final when nothing is pending.

        `change` is addObserver (with `replica_address`), addVoter, removeVoter or prefer (None: no one in particular); forget,
        of a replica that is gone for good, is taken by each replica of any group.
        Raises BrokerError when it is refused: one change waits for the one before it.
        """
        return self._run(self._twin.change_members, address, group, change, replica_id, replica_address=replica_address)

    def change_mode(
        self,
        address: str,
        group: str,
        mode: str,
        *,
        in_sync_replicas: int = 1,
        min_in_sync_replicas: int = 1,
        leader: ReplicaStatus | None = None,
    ) -> ReplicaStatus:
        """Ask a group's leader for another mode: single, async, sync or dledger, one step at a time; written when answered.

        It is in force when `replica_status` shows it, on each replica by itself. `leader` is what that said of the leader: a
        request that arrives when the group has been changed since is refused. Raises BrokerError when it is refused.
        """
        return self._run(
            self._twin.change_mode,
            address,
            group,
            mode,
            in_sync_replicas=in_sync_replicas,
            min_in_sync_replicas=min_in_sync_replicas,
            leader=leader,
        )

    def diverged_list(self, address: str) -> tuple[DivergedFile, ...]:
        """What a replica cut from its log because its leader never had it, oldest first."""
        return self._run(self._twin.diverged_list, address)

    def diverged_read(self, address: str, name: str, *, position: int = 0, max_messages: int = 32) -> DivergedMessages:
        """Messages of one saved cut; raises NotFoundError for a name that is not in diverged_list()."""
        return self._run(self._twin.diverged_read, address, name, position=position, max_messages=max_messages)

    def diverged_delete(self, address: str, name: str) -> None:
        """Remove one saved cut from a replica's disk for good; raises NotFoundError for a name that it does not have."""
        self._run(self._twin.diverged_delete, address, name)
