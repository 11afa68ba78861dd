"""One broker: its parts, and the few operations that touch several of them.

Run by `brokerd.run`. Everything here happens in one task at a time and never waits, so there are no locks; only the
store's flush runs in a thread.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import trio

from brokerd.acl import AccessControl
from brokerd.admission import connections_max, programs_max, raise_descriptor_limit
from brokerd.client_calls import ClientCalls
from brokerd.config_dleger import peer_id
from brokerd.config_values import BrokerRole, FlushDiskType, InnerClientCredentials
from brokerd.consumer_manager import ConsumerManager
from brokerd.consumer_offset import ConsumerOffsetManager
from brokerd.dispatch import Dispatcher, WaitingPeer
from brokerd.environment import Environment
from brokerd.long_polling import PullRequestHoldService
from brokerd.metering.service import MeteringService
from brokerd.network_cut import NetworkCut
from brokerd.processors import HANDLERS
from brokerd.processors.replica_status import replica_status
from brokerd.producer_manager import ProducerManager
from brokerd.quotas import Quotas
from brokerd.rebalance_lock import RebalanceLockManager
from brokerd.replica.diverged import DivergedMessages, count_records
from brokerd.replica.epoch_file import EpochFile
from brokerd.replica.in_sync import SendVerdict
from brokerd.replica.read_split import ReadSplit
from brokerd.replica.replica import Replica, ReplicaSettings
from brokerd.replica.voters import Members
from brokerd.services.acknowledgement import PendingAcknowledgements, recoded
from brokerd.services.delay_level import ScheduleMessageService
from brokerd.services.flush import FlushService
from brokerd.services.held_answers import HeldAnswers
from brokerd.services.leader_port import LeaderPort
from brokerd.services.loop_lag import LoopLag
from brokerd.services.member_notices import MemberNotices
from brokerd.services.message_index import MessageIndexService
from brokerd.services.metadata_log import MetadataLog
from brokerd.services.peer_repair import repair_from_peers
from brokerd.services.quorum import QuorumService
from brokerd.services.registration import RegistrationService
from brokerd.services.remoting_client import RemotingClient
from brokerd.services.replica_follower import FollowerService
from brokerd.services.replica_server import ReplicaServer
from brokerd.services.store_gate import StoreGate
from brokerd.services.stranded_pulls import StrandedPulls
from brokerd.services.table_files import TableFiles
from brokerd.services.topic_retention import TopicRetentionService
from brokerd.stats import BrokerStats
from brokerd.store import (
    INDEX_BYTES_OF_KEY,
    AppendResult,
    BatchResult,
    BatchToStore,
    MessageStore,
    MessageToStore,
    RecordDamagedError,
    RecoveryReport,
    StoreConfig,
    StoreError,
)
from brokerd.subscription_group import SubscriptionGroupManager
from brokerd.tls import client_tls
from brokerd.topic_config import TopicConfigManager
from brokerd.topic_retention import KeptMessages
from brokerd.unindexed_keys import UnindexedKeys
from brokerd.unproven_offsets import UnprovenOffsets
from mqwire.acl import SessionCredentials, Signer
from mqwire.bodies import TopicConfig
from mqwire.codes import ResponseCode
from mqwire.message import pack_host
from mqwire.mode import Mode
from mqwire.names import MASTER_ID, RMQ_SYS_EPOCH, RMQ_SYS_METADATA
from mqwire.tls_connection import TlsConnection

if TYPE_CHECKING:
    from brokerd.client_channel import Peer
    from brokerd.config import BrokerConfig
    from mqwire.command import RemotingCommand
    from mqwire.tls_connection import Connected

logger = logging.getLogger(__name__)

_TOO_FEW_REPLICAS: Final = "it is stored on the master, but too few slaves are in sync (inSyncReplicas)"
_PROMOTION_REGISTER_TIMEOUT_S: Final = 1.5
_ZERO_AHEAD_BYTES: Final = 4 * 1024 * 1024
_COUNT_MAX_BYTES: Final = 4 * 1024 * 1024
_STEPPED_DOWN: Final = "this broker stopped being the master"
# Of a MessageToStore: (topic, queue_id) and topic.
_QUEUE_OF_MESSAGE: Final = itemgetter(0, 1)
_TOPIC_OF_MESSAGE: Final = itemgetter(0)
_PROPERTIES_OF_MESSAGE: Final = itemgetter(9)


class NotLeadingError(StoreError):
    """This replica follows: what it stored by itself would part its log from its leader's."""


class Broker:
    """What processors and services know of each other.

    Invariant: `store.confirm_offset`, which readers see up to, is the replica's confirmOffset.
    """

    def __init__(self, config: BrokerConfig, store: MessageStore, port: int, environment: Environment) -> None:
        clock, disk = environment.clock, environment.disk
        self.config = config
        self.clock = clock
        self.disk = disk
        self.threads = environment.threads
        self.random = environment.random
        self._network = NetworkCut.of(environment.network)
        self.store = store
        self.store_host = pack_host(config.broker_ip1, port)
        self.advertised_address = f"{config.broker_ip1}:{port}"
        self.ha_address = f"{config.broker_ip2}:{config.ha_listen_port or port}"
        self.stopping = False
        self.nursery: trio.Nursery | None = None
        self.stats = BrokerStats(clock.time_ms())
        self.metadata_log = MetadataLog(self)
        self.kept_messages = KeptMessages(store)
        write = self.metadata_log.write
        self.topic_configs = TopicConfigManager(config, clock.time_ms, disk, write, self._wants_table_files)
        self.subscription_groups = SubscriptionGroupManager(config, clock.time_ms, disk, write, self._wants_table_files)
        self.table_files = TableFiles(self.threads, (self.topic_configs, self.subscription_groups))
        self.consumer_offsets = ConsumerOffsetManager(config, clock.time_ms, disk, write)
        self.unproven_offsets = UnprovenOffsets(store, self.consumer_offsets, clock.monotonic)
        self.consumers = ConsumerManager(config, clock.monotonic)
        self.member_notices = MemberNotices(self.consumers)
        self.producers = ProducerManager(config, clock.monotonic)
        self.client_calls = ClientCalls()
        self.rebalance_locks = RebalanceLockManager(clock.monotonic)
        self.acl = AccessControl(config, clock.time_ms) if config.acl_enable else None
        self._tls_context = client_tls(config)
        own = config.inner_client_authentication_credentials
        self._signer = None if own is None else Signer(_session(own), clock.time_ms)
        self.held_pulls = PullRequestHoldService()
        self.held_answers = HeldAnswers(self)
        self.replica = Replica(
            _replica_settings(config, self), store, EpochFile(disk, config.store_path_root_dir), self.random
        )
        self.replica_server = ReplicaServer(self)
        self.loop_lag = LoopLag()
        self.read_split = ReadSplit(
            self.replica,
            store,
            slave_read_enable=lambda: config.slave_read_enable,
            memory_bytes=_physical_memory_bytes() * config.access_message_in_memory_max_ratio // 100,
            busy=lambda: self.loop_lag.busy,
        )
        self._looks_at_damage = False
        self.diverged = DivergedMessages(disk, config.store_path_root_dir)
        self.store_gate = StoreGate(lambda: store.wants_reopening)
        self.acknowledgements = PendingAcknowledgements(
            self.stats.send_latency, timeout_s=config.sync_flush_timeout_ms / 1000
        )
        self.quorum = QuorumService(self)
        self.flush_service = FlushService(self)
        self.registration = RegistrationService(self)
        self.leader_port = LeaderPort(self)
        self.stranded_pulls = StrandedPulls(self.replica, self.consumers)
        self.schedule = ScheduleMessageService(self)
        self.metering = MeteringService(self)
        self.follower = FollowerService(self)
        self.topic_retention = TopicRetentionService(self)
        self.message_index = MessageIndexService(config, store, self.store_gate, clock, self.threads)
        self.quotas = Quotas(
            config,
            clock.monotonic,
            stored_bytes=self._stored_bytes,
            stored_by_topic=lambda: self.metering.stored_bytes.by_topic(),
            topic_quotas=lambda: self.topic_configs.quotas,
            credential_quotas={} if self.acl is None else self.acl.quotas,
            is_exempt=self._is_infrastructure,
            programs_max=programs_max(connections_max(raise_descriptor_limit())),
        )
        self.dispatcher = Dispatcher(self, HANDLERS)
        if self.acl is not None:
            self.acl.on_change = self._accounts_changed
        self.waits_for_flush = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        # Where an append's records end, and their queues: whose waiting pulls are answered once that is confirmed.
        self._arrived: deque[tuple[int, set[tuple[str, int]]]] = deque()
        self._flush_failure: str | None = None
        self._unindexed = UnindexedKeys()

    # --- the log ---

    def append(
        self,
        messages: Sequence[MessageToStore],
        *,
        counted_for: str | None = None,
        any_size: bool = False,
        stored: Callable[[], None] | None = None,
    ) -> list[AppendResult]:
        """Store messages, all or none, and wake the tasks that wait for them; raises StoreError, also on a replica that follows.

        `counted_for` is the access key that sends them ("" without access control); None for what is no client's send.
        `any_size`: copies of messages that are stored, and were taken before maxMessageSize became lower. `stored` is called
        when they are in the log, before any replica is sent them.
        """
        if not self.replica.leads:
            raise self._not_leading()
        counts = None if counted_for is None else self.metering.counts_for(counted_for)
        results = self.store.append(messages, counts, any_size=any_size)
        if stored is not None:
            stored()
        first, last = results[0], results[-1]
        self._arrived.append((last.physical_offset + last.size_bytes, set(map(_QUEUE_OF_MESSAGE, messages))))
        self.stats.put(
            map(_TOPIC_OF_MESSAGE, messages),
            len(messages),
            last.physical_offset + last.size_bytes - first.physical_offset,
        )
        if self.config.quota_stored_bytes:
            end_offset = last.physical_offset + last.size_bytes
            self._note_keys(first.physical_offset, end_offset, list(map(_PROPERTIES_OF_MESSAGE, messages)))
        self.log_grew()
        return results

    def append_batch(self, batch: BatchToStore, *, counted_for: str) -> BatchResult:
        """As `append`, for the messages of a client's batch."""
        if not self.replica.leads:
            raise self._not_leading()
        result = self.store.append_batch(batch, self.metering.counts_for(counted_for))
        self._arrived.append((result.end_offset, {(batch.topic, batch.queue_id)}))
        positions = result.physical_offsets
        self.stats.put_batch(batch.topic, len(positions), result.end_offset - positions[0])
        if self.config.quota_stored_bytes:
            self._note_keys(positions[0], result.end_offset, batch.properties)
        self.log_grew()
        return result

    def _note_keys(self, begin_offset: int, end_offset: int, properties: Sequence[bytes]) -> None:
        """Count what the index will take at most for messages with these: a UNIQ_KEY and the KEYS, which blanks separate."""
        if self.config.message_index_enable:
            joined = b"".join(properties)
            blanks = joined.count(b" ") if b" " in joined else 0  # which is mostly so, and several times as fast to see
            self._unindexed.add(begin_offset, end_offset, (2 * len(properties) + blanks) * INDEX_BYTES_OF_KEY)

    def _stored_bytes(self) -> int:
        """What counts as stored: the log, its index, and what both will take for messages that are stored already."""
        store = self.store
        log_bytes = store.end_offset - store.min_physical_offset
        index_bytes = store.index.used_bytes + self._unindexed.bytes_after(store.index.indexed_until)
        return log_bytes + index_bytes + self.schedule.waiting_bytes

    def _is_infrastructure(self, access_key: str) -> bool:
        account = None if self.acl is None else self.acl.accounts.get(access_key)
        return account is not None and account.infrastructure

    def _not_leading(self) -> NotLeadingError:
        return NotLeadingError(self.replica.refuses_sends(self.clock.monotonic()) or _STEPPED_DOWN)

    def log_grew(self) -> None:
        """Records were appended: flush them, hand them out, and answer what is held by that."""
        if self.waits_for_flush:
            self.flush_service.flush_soon()
            self.replica_server.wake()  # followers fetch and flush while this replica flushes
        else:
            self.held_changed()

    def held_changed(self) -> None:
        """The log grew, became durable, or a follower reported: let readers see it, answer the requests that waited for that."""
        replica = self.replica
        now_s = self.clock.monotonic()
        before = self.store.confirm_offset
        replica.held_changed(now_s)
        if replica.modes.pending is not None and replica.modes.adopt(now_s):
            self._mode_changed()
        confirmed = replica.confirm_offset
        self.store.confirm_offset = confirmed
        if self.kept_messages.unconfirmed:
            self.kept_messages.confirmed(confirmed)
        if len(self.acknowledgements):
            if replica.verdict(0) is SendVerdict.SLAVE_NOT_AVAILABLE:
                _flush_all(self.acknowledgements.give_up(_TOO_FEW_REPLICAS, ResponseCode.SLAVE_NOT_AVAILABLE))
            else:
                _flush_all(self.acknowledgements.release(confirmed, now_s))
        self.replica_server.wake()
        arrived: set[tuple[str, int]] = set()
        while self._arrived and self._arrived[0][0] <= confirmed:
            arrived |= self._arrived.popleft()[1]
        if not len(self.held_pulls):
            return
        if confirmed > before and replica.leads and replica.epochs.epoch_at(before - 1) < replica.epoch:
            arrived.update(self.held_pulls.queues())  # for what came before it led, whose queues are not noted
        if arrived:
            self._answer_arrivals(sorted(arrived))

    def _answer_arrivals(self, queues: Iterable[tuple[str, int]]) -> None:
        _flush_all(self.dispatcher.pulls.answer_arrivals(queues))
        if self.held_pulls.has_woken:
            self.held_answers.go_on()

    def answer_held_pulls(self) -> bool:
        """Answer the next of those that were woken or are due; whether any may be left that can be answered now."""
        if self.store_gate.closed:
            return False
        held, pulls, now_s = self.held_pulls, self.dispatcher.pulls, self.clock.monotonic()
        _flush_all(pulls.answer_woken())
        _flush_all(pulls.answer_expired(now_s))
        return held.has_woken or held.is_any_due(now_s)

    def _accounts_changed(self, ended: Set[str]) -> None:
        if len(self.held_pulls):
            _flush_all(self.dispatcher.pulls.answer_disallowed())
        for peer in self.quotas.connected(ended):
            logger.info("%r: closing, the account that it showed was deleted or is another now", peer)
            peer.close_soon()

    def offsets_reset(self, topic: str, group: str, queue_ids: Iterable[int]) -> None:
        """A group's offsets were reset: send its members there that wait for these queues' messages."""
        if len(self.held_pulls):
            _flush_all(self.dispatcher.pulls.answer_resets(topic, group, queue_ids))

    def answer_when_held(
        self, peer: Peer, end_offset_bytes: int, frames: list[bytes], *, since_s: float | None = None
    ) -> None:
        """Write SUCCESS answers once what they promise is true up to their records' end; at once when it is.

        Those of sends that were taken up at `since_s` are counted by how long they took.
        """
        verdict = self.replica.verdict(end_offset_bytes)
        if verdict is SendVerdict.SEND_OK and not len(self.acknowledgements):
            peer.write(frames[0] if len(frames) == 1 else b"".join(frames))
            if since_s is not None:
                self.stats.send_latency.observe(self.clock.monotonic() - since_s, len(frames))
        elif verdict is SendVerdict.SLAVE_NOT_AVAILABLE:
            peer.write(recoded(frames, ResponseCode.SLAVE_NOT_AVAILABLE, _TOO_FEW_REPLICAS))
        else:
            self.acknowledgements.add(peer, end_offset_bytes, frames, self.clock.monotonic(), since_s)

    def answer_expired(self) -> None:
        """Answer what has waited too long for a flush, a message or a client."""
        now_s = self.clock.monotonic()
        self.held_changed()  # time passed: a slave may have left the in-sync set
        _flush_all(self.acknowledgements.expire(now_s, self.replica.held_offset))
        self.replica_server.answer_expired(now_s)
        self.client_calls.expire(now_s)
        self._look_for_damage()
        if not self.store_gate.closed:
            _flush_all(self.dispatcher.pulls.answer_expired(now_s))
            if self.held_pulls.has_woken or self.held_pulls.is_any_due(now_s):
                self.held_answers.go_on()

    def _look_for_damage(self) -> None:
        """A reader met no whole record where one was: find out where that begins, and fetch it from a replica that has it.

        Where none gives it now the broker takes no more messages, and hands over to one that should have it.
        """
        if self._looks_at_damage:
            return
        offset, self.store.damage_seen = self.store.damage_seen, None
        if offset is not None and self.nursery is not None and not self.store_gate.closed:
            self._looks_at_damage = True
            self.nursery.start_soon(self._look_at_damage, offset)

    async def _look_at_damage(self, offset: int) -> None:
        try:
            await self._put_right(offset)
        finally:
            self._looks_at_damage = False

    async def _put_right(self, offset: int) -> None:
        async with self.store_gate.shared():
            try:
                begin_offset = await self.threads.run(self.store.locate_damage, offset)
            except OSError as error:
                logger.error("the log cannot be read at %d: %s", offset, error)
                return
        if begin_offset is None or self.store.damaged_from is not None:
            return
        if await repair_from_peers(self, begin_offset, partial(self._write_over, begin_offset)):
            return
        # Retention may be deleting the damaged file, and nothing would put that right.
        async with self.store_gate.alone():
            self._declare_damaged(begin_offset)

    def _declare_damaged(self, begin_offset: int) -> None:
        if self.store.damaged_from is not None or begin_offset < self.store.min_physical_offset:
            return
        if self.replica.is_repairable(begin_offset):
            logger.error(
                "the log is damaged at %d: taking no more messages until another replica put it right", begin_offset
            )
            self.store.declare_damaged(begin_offset)
        else:
            logger.error("the log is damaged at %d, and no other replica is known to have that record", begin_offset)

    async def _write_over(self, begin_offset: int, data: bytes) -> None:
        async with self.store_gate.shared():
            if begin_offset >= self.store.end_offset:
                raise ValueError("it was truncated meanwhile")
            async with self.message_index.paused():
                await self.threads.run(self.store.write_over, begin_offset, data)
            self.metadata_log.read_again()

    def flush_failed(self, cause: str) -> None:
        """Nothing more can be proven durable: take no more sends, and refuse those that wait."""
        self._flush_failure = cause
        self.metadata_log.write_for_waiting()  # refused from now on
        _flush_all(self.acknowledgements.give_up(cause))

    def refuses_sends(self) -> str | None:
        """Why no message is taken now, as a remark; None when they are."""
        if self.metering.closed:
            return "the broker takes no messages: its cluster is being deleted"
        if not self.config.broker_permission & 2:
            return "the broker takes no messages: brokerPermission is without write"
        return self.refuses_appends()

    def refuses_appends(self) -> str | None:
        """Why nothing is written now, be it the broker's own; None when it is."""
        if self.stopping:
            return "the broker is stopping; send to another broker or again in a moment"
        if self._flush_failure is not None:
            return f"the broker takes no messages: {self._flush_failure}; restart it once the disk is well"
        if self.store.refusal is not None:
            return f"the broker takes no messages: {self.store.refusal}"
        return self.replica.refuses_sends(self.clock.monotonic())

    # --- roles

    @property
    def advertised_id(self) -> int | None:
        """The brokerId at the name servers: 0 for the leader, else the replica id; None while the role is not known.

        Replica 0 goes by the leader's replica id, which no one else uses then.
        """
        replica = self.replica
        if replica.leads:
            return MASTER_ID
        if replica.settings.replica_id != MASTER_ID:
            return replica.settings.replica_id
        if replica.must_reclaim:
            return None
        for replica_id, address in replica.known_replicas.items():
            if address == replica.leader_address:
                return replica_id
        return None

    @property
    def registered_address(self) -> str:
        """Where clients are sent: the group's leader port while this replica serves it, else its own address."""
        return self.leader_port.address or self.advertised_address

    @property
    def delivers_messages(self) -> bool:
        """Whether this replica delivers delayed messages: the leader does, once it sees all of its log, unless its role is moving.

        Before its epoch is confirmed, what it has delivered may lie past the end of what readers see, as if it never was there.
        """
        replica, now_s = self.replica, self.clock.monotonic()
        return not self.metering.closed and replica.refuses_sends(now_s) is None and replica.knows_group_end(now_s)

    def saw_epoch(self, epoch: int, leader_address: str | None) -> None:
        """A peer named an epoch: a higher one ends this replica's leadership before anything more is acknowledged."""
        if self.replica.saw_epoch(epoch, leader_address):
            self.role_changed()

    def role_changed(self) -> None:
        """This replica began or stopped to lead: what waited is answered, the name servers and the follower loop look again."""
        replica = self.replica
        self.metering.role_changed()
        if replica.leads:
            logger.info("group %s: leading in epoch %d", replica.settings.group, replica.epoch)
            self.held_changed()
            # Consumers may have read from the former master what never came here.
            self._begin_leadership()
            self.flush_service.flush_soon()
        else:
            logger.info("group %s: following in epoch %d", replica.settings.group, replica.epoch)
            self.metadata_log.rebuild_or_note()  # without what was not written to the log
            self._arrived.clear()  # replicated() reports what is confirmed now
            _flush_all(self.acknowledgements.release(replica.confirm_offset, self.clock.monotonic()))
            _flush_all(self.acknowledgements.give_up(_STEPPED_DOWN, ResponseCode.FLUSH_SLAVE_TIMEOUT))
            self.replica_server.stopped_leading()
        self.leader_port.role_changed()
        self.follower.role_changed()
        self.registration.role_changed()

    def forget_replica(self, replica_id: int) -> None:
        """A replica was stopped, and has left the group for good. What it or the leader sent before brings it back no more."""
        self.replica.forget_known_replica(replica_id, self.clock.monotonic())
        self.replica_server.forget(replica_id)
        self.follower.replica_forgotten()
        self.log_grew()  # no one waits for it any more

    def _mode_changed(self) -> None:
        replica = self.replica
        logger.info("group %s: the mode is %s now", replica.settings.group, replica.settings.mode)
        self._obey_mode()
        self.follower.role_changed()
        self.registration.role_changed()

    def _obey_mode(self) -> None:
        """How long a send waits for its proof, and its answer without."""
        mode, config = self.replica.settings.mode, self.config
        self.acknowledgements.set_mode(
            timeout_s=(config.sync_flush_timeout_ms if mode.leader_is_enough else config.slave_timeout_ms) / 1000,
            unproven=ResponseCode.SYSTEM_ERROR if mode is Mode.DLEDGER else None,
        )

    def _begin_leadership(self) -> None:
        """The tables are this replica's from now on; consumers may have read from the former master what never came here."""
        loss = self.replica.saved.lacks_shown_from
        self.unproven_offsets.begin_leadership(after_loss=loss is not None and loss not in self.consumer_offsets.losses)
        self._drop_hints_after_loss()
        self.consumer_offsets.commit_hints(self.unproven_offsets.is_proven)
        self.consumer_offsets.bound(self._known_queue_end)
        self.schedule.look_for_levels()
        self.metadata_log.write_base()

    def _drop_hints_after_loss(self) -> None:
        """What groups said to this replica while it followed, and what they may have read of another log. A group without an offset
        has read of this one at least up to where the other left it: that is this log's end (`bound`), unless no one knows where
        it is, or other messages have followed it since.
        """
        saved = self.replica.saved
        loss = saved.lacks_shown_from
        if loss is None:
            return
        is_at_end = loss == self.replica.epochs.entries[-1].start_offset
        if loss in self.consumer_offsets.losses or (is_at_end and not saved.lacks_an_epoch):
            self.consumer_offsets.drop_hints_of_known()
        else:
            self.consumer_offsets.drop_hints()

    def _known_queue_end(self, topic: str, queue_id: int) -> int | None:
        """Where a queue ends. None where there is none: a file of others may know of more; but after a loss it is gone, too."""
        end = self.store.queue_end_offset(topic, queue_id)
        return 0 if end is None and self.replica.saved.lacks_shown_from is not None else end

    def know_stored_topics(self) -> None:
        """Make the topics of which the log has messages and the tables know nothing. Raises StoreError."""
        missing = [
            TopicConfig(topic_name=topic, read_queue_nums=max(queues) + 1, write_queue_nums=max(queues) + 1)
            for topic, queues in self.store.topics().items()
            if queues and topic not in (RMQ_SYS_EPOCH, RMQ_SYS_METADATA) and self.topic_configs.select(topic) is None
        ]
        if missing:
            logger.warning("topics found in the log alone: %s", ", ".join(config.topic_name for config in missing))
            self.topic_configs.put_all(missing)

    def leader_changed(self) -> None:
        """See processors/context.py."""
        self.follower.role_changed()
        self.registration.role_changed()

    def finish_promotion(self, peer: Peer, request: RemotingCommand) -> None:
        """See processors/context.py."""
        assert self.nursery is not None, "the broker runs while it serves requests"
        self.nursery.start_soon(self._finish_promotion, peer, request)

    async def _finish_promotion(self, peer: Peer, request: RemotingCommand) -> None:
        epoch = self.replica.epoch
        await self.flush_service.flush_once()
        registered = await self.registration.until_registered(_PROMOTION_REGISTER_TIMEOUT_S)
        status = replica_status(self)
        if not self.replica.leads or self.replica.epoch != epoch:
            reply = request.reply(ResponseCode.ILLEGAL_OPERATION, "the role moved on before the promotion was finished")
        else:
            remark = None if registered else "promoted; a name server has not confirmed it yet"
            reply = request.reply(ResponseCode.SUCCESS, remark, body=status.to_json())
        peer.send(reply)

    def replicated(self, *, has_data: bool) -> None:
        """The leader's records arrived, or were confirmed: let readers here see them."""
        before = self.store.confirm_offset
        if self.replica.modes.pending is not None and self.replica.modes.adopt(self.clock.monotonic()):
            self._mode_changed()
        self.store.confirm_offset = confirmed = self.replica.confirm_offset
        self.kept_messages.confirmed(confirmed)
        if confirmed > before and len(self.held_pulls):
            self._answer_arrivals(self.held_pulls.queues())
        if has_data and not self.waits_for_flush:
            self.flush_service.flush_soon()

    def log_was_truncated(self) -> None:
        """This replica's log lost its end: what counts messages must not count those."""
        self.store.confirm_offset = self.replica.confirm_offset
        self.metadata_log.rebuild_or_note()
        self.consumer_offsets.bound(self._known_queue_end)
        self.unproven_offsets.log_was_truncated()
        self.schedule.log_was_truncated()
        self.metering.stored_bytes.log_was_truncated()

    def forget_messages(self, topic: str) -> None:
        """A topic was deleted: its messages go with it. Raises StoreError or OSError."""
        self.store.delete_topic(topic)
        self.stats.forget_topic(topic)
        self.metering.stored_bytes.forget_topic(topic)

    def messages_behind(self, offset: int) -> int | None:
        """How many records lie between `offset` and the log's end; None when those are too many to count, or were deleted."""
        if self.store.end_offset - offset > _COUNT_MAX_BYTES or offset < self.store.min_physical_offset:
            return None
        return count_records(self.store, offset)

    # --- everyone else ---

    def leader_port_changed(self) -> None:
        """See processors/context.py."""
        self.leader_port.port_changed()

    def _wants_table_files(self) -> None:
        self.table_files.changed()

    def register_soon(self) -> None:
        """A topic changed: notify the name servers now."""
        self.registration.register_soon()

    def sign(self, request: RemotingCommand) -> None:
        """Put this broker's own credentials into a request to a name server or another replica."""
        if self._signer is not None:
            self._signer.sign(request)

    def cut_network(self, for_s: float) -> bool:
        """Be cut off from everyone for so long, from this answer on; False while that is so already."""
        if self.nursery is None or not self._network.ask():
            return False
        self.nursery.start_soon(self._network.run, for_s)
        return True

    def end_network_cut(self) -> None:
        """Be cut off no more, nor again."""
        self._network.end()

    def client_of(self, address: str, *, takes_records: bool = False) -> RemotingClient:
        """A client of the name server or broker at `address`, with this broker's credentials. `takes_records`: of a replica."""
        return RemotingClient(address, sign=self.sign, connect=self._connect, takes_records=takes_records)

    async def _connect(self, host: str, port: int) -> Connected:
        connection = await self._network.connect(host, port)
        if self._tls_context is None:
            return connection
        secured = TlsConnection(connection, self._tls_context())
        try:
            await secured.handshake()
        except BaseException:
            secured.close()
            raise
        return secured

    def dispatch(self, peer: WaitingPeer, commands: Sequence[RemotingCommand]) -> int:
        """Serve a connection's commands, or as many as it has its turn for; returns how many."""
        return self.dispatcher.dispatch(peer, commands)

    def pause_s(self, peer: Peer, code: int) -> float:
        """How long a request that was not served has to wait for its turn, in seconds."""
        return self.dispatcher.pause_s(peer, code)

    def peer_closed(self, peer: Peer) -> None:
        """A connection ended: its clients are gone."""
        self.quotas.disconnect(peer)
        self.producers.close_peer(peer)
        self.consumers.close_peer(peer)
        self.client_calls.close_peer(peer)

    def load(self) -> None:
        """Read config/*.json and find out which role this replica has, before anything is served.

        Raises UnreadableConfigFile or StoreFormatError rather than starting with an empty table or a forgotten epoch.
        """
        self.topic_configs.load()
        self.subscription_groups.load()
        self.consumer_offsets.load()
        self.schedule.load()
        self.replica.start(self.clock.monotonic(), self.clock.time_ms())
        self.replica.keep_reserve()
        self._read_tables()
        self._obey_mode()
        self.metering.load()
        self.metering.role_changed()
        self.held_changed()
        if self.replica.leads:
            self._begin_leadership()

    def _read_tables(self) -> None:
        """As the log has them. Where it is damaged there, another replica puts it right first: this one runs, and does not lead."""
        try:
            self.metadata_log.rebuild()
        except RecordDamagedError as error:
            damaged_from = self.store.damaged_from  # recovery may have found it, in front of this record
            if damaged_from is None:
                damaged_from = self.store.locate_damage(error.physical_offset)
            if damaged_from is None or not self.replica.is_repairable(damaged_from):
                raise
            self.store.declare_damaged(damaged_from)
            self.metadata_log.rebuild_or_note()

    def persist(self) -> None:
        """Write what changed of config/*.json as far as the disk takes it, and of the offsets to the log, if this replica leads."""
        self.metadata_log.write_last_offsets()
        self.topic_configs.write_file()
        self.subscription_groups.write_file()
        for name, write in (
            ("offsets that consumers committed", self.consumer_offsets.persist),
            ("deliveries of delayed messages", self.schedule.persist),
        ):
            try:
                write()
            except OSError as error:
                logger.error("the last %s cannot be written: %s", name, error)


def _flush_all(peers: Iterable[Peer]) -> None:
    for peer in peers:
        peer.flush()


def _session(own: InnerClientCredentials) -> SessionCredentials:
    return SessionCredentials(own.access_key, own.secret_key)


def _physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _replica_settings(config: BrokerConfig, broker: Broker) -> ReplicaSettings:
    # A slave's role does not say how it would acknowledge as master: inSyncReplicas does.
    elected = config.enable_dleger_commit_log
    synchronous = config.in_sync_replicas > 1 and config.broker_role is not BrokerRole.ASYNC_MASTER
    if elected:
        mode = Mode.DLEDGER
    elif config.total_replicas == 1 and config.broker_role is BrokerRole.ASYNC_MASTER:
        mode = Mode.SINGLE
    else:
        mode = Mode.SYNC if synchronous else Mode.ASYNC
    not_level_s = config.ha_max_time_slave_not_catchup_ms / 1000
    return ReplicaSettings(
        group=config.broker_name,
        replica_id=config.broker_id,
        address=broker.advertised_address,
        store_host=broker.store_host,
        mode=mode,
        durable_counts=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        starts_as_leader=config.broker_role is not BrokerRole.SLAVE and not elected,
        total_replicas=config.total_replicas,
        in_sync_replicas=config.in_sync_replicas,
        min_in_sync_replicas=config.min_in_sync_replicas,
        auto_in_sync_replicas=config.enable_auto_in_sync_replicas,
        max_time_not_level_s=not_level_s,
        follower_timeout_s=max(not_level_s, 3 * config.ha_send_heartbeat_interval_ms / 1000),
        max_gap_bytes=config.ha_max_gap_not_in_sync_bytes,
        members=Members(tuple(sorted(config.dleger_peers)), peer_id(config.preferred_leader_id)),
        peers=config.dleger_peers,
    )


def open_store(
    config: BrokerConfig, store_host: bytes, environment: Environment
) -> tuple[MessageStore, RecoveryReport]:
    """The recovered store; raises StoreError when it cannot be opened."""
    environment.disk.make_directory(config.store_path_root_dir)
    store = MessageStore(
        StoreConfig(
            root_dir=config.store_path_root_dir,
            commit_log_dir=config.store_path_commit_log,
            mapped_file_size_commit_log_bytes=config.mapped_file_size_commit_log_bytes,
            mapped_file_size_consume_queue_bytes=config.mapped_file_size_consume_queue_bytes,
            max_message_size_bytes=config.max_message_size_bytes,
            append_record_crc=config.enabled_append_prop_crc,
            truncate_unproven_tail="always" if config.truncate_damaged_tail else "after_power_loss",
            zero_ahead_bytes=_ZERO_AHEAD_BYTES if config.flush_disk_type is FlushDiskType.SYNC_FLUSH else 0,
            delay_levels_ms=config.message_delay_level.delays_ms,
            file_reserved_hours=config.file_reserved_time_hours,
            delete_when=config.delete_when_hours,
            disk_max_used_space_ratio=config.disk_max_used_space_ratio / 100,
            disk_space_clean_forcibly_ratio=config.disk_space_clean_forcibly_ratio / 100,
            disk_space_warning_level_ratio=config.disk_space_warning_level_ratio / 100,
            clean_file_forcibly=config.clean_file_forcibly_enable,
            message_index_enable=config.message_index_enable,
            max_hash_slot_num=config.max_hash_slot_num,
            max_index_num=config.max_index_num,
            max_msgs_num_batch=config.max_msgs_num_batch,
        ),
        disk=environment.disk,
        clock=environment.clock,
        store_host=store_host,
    )
    return store, store.open()
