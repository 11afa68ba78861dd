"""Bugs planted in recovery, services, tables, adoption, name servers and promotions, as in planted_bugs.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from brokerd.consumer_offset import ConsumerOffsetManager
from brokerd.metadata_record import MetadataRecord
from brokerd.replica import replica as replicas
from brokerd.replica.epoch_file import changes_by_own_disk
from brokerd.replica.in_sync import InSyncSet
from brokerd.replica.replica import Replica
from brokerd.replica.voters import Members, Tally
from brokerd.services import replica_follower, topic_retention
from brokerd.services.acknowledgement import PendingAcknowledgements
from brokerd.services.flush import FlushService
from brokerd.services.metadata_log import MetadataLog
from brokerd.services.replica_reclaim import LeaderReclaim
from brokerd.store import message_store
from brokerd.store.commit_log import CommitLog
from brokerd.store.index_service import IndexService
from brokerd.store.message_store import MessageStore
from brokerd.store.recovery import Recovery
from brokerd.store.topic_tombstones import Tombstone, TopicTombstones
from brokerd.subscription_group import SubscriptionGroupManager
from brokerd.topic_config import TopicConfigManager
from brokerd.topic_retention import KeptMessages, oldest_beyond
from controlplane.failover import samples
from controlplane.failover.disks import KnownDisk
from controlplane.failover.promotion import order
from controlplane.failover.promotion.fencing import Unpromised, replicas_to_fence
from controlplane.failover.promotion.verdict import GroupView, ReplicaView, standing_of
from highwater import promotion
from highwater.promotion import Ballot, Cleanness, Group, Standing
from mqwire.bodies import BrokerMemberGroup, ClusterInfo, SubscriptionGroupConfig, TopicConfig
from mqwire.names import MASTER_ID
from namesrvd.route_info import RouteInfoManager
from tests.sim.planted_bugs import PlantedBug

Patched = AbstractContextManager[Any]


# --- recovery and the log


def _recovered_is_durable() -> Patched:
    def believes(self: CommitLog, begin: int) -> None:
        self.durable_offset = self.end_offset

    return patch.object(CommitLog, "make_recovered_durable", believes)


def _recovered_is_not_written_again() -> Patched:
    return patch.object(CommitLog, "_write_again", lambda self, fd, base, offset: None)


def _only_what_the_checkpoint_knows() -> Patched:
    scan = Recovery._scan

    def truncates(self: Recovery, start: int, dispatch_from: int) -> int:
        if self.report.durable_mark > start:
            self._log.truncate(self.report.durable_mark)
        return scan(self, start, dispatch_from)

    return patch.object(Recovery, "_scan", truncates)


def _flush_of_one_file() -> Patched:
    """Of those that an append has reached, only the first."""

    def flush(self: CommitLog) -> int:
        with self._flush_lock:
            target, fd = self.end_offset, self._writers.get(self.base_of(self.durable_offset))
            if target > self.durable_offset and fd is not None:
                self._disk.fdatasync(fd)
            self.durable_offset = target
            return target

    return patch.object(CommitLog, "flush", flush)


class _NoNamesSynced:
    def __init__(self, disk: Any) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync_directory(self, path: str) -> None:
        """Forgotten."""


def _new_files_name_not_synced() -> Patched:
    create = CommitLog._create

    def forgets(self: CommitLog, base: int) -> int:
        disk, self._disk = self._disk, _NoNamesSynced(self._disk)
        try:
            return create(self, base)
        finally:
            self._disk = disk

    return patch.object(CommitLog, "_create", forgets)


def _checkpoint_above_the_end() -> Patched:
    return patch.object(MessageStore, "_lower_checkpoint", lambda self, end_offset: None)


def _retention_asks_no_age() -> Patched:
    return patch.object(message_store, "expired_files", lambda config, files, *others: list(files))


def _nothing_is_flushed() -> Patched:
    """With ASYNC_FLUSH: neither the log nor, with the log, the ConsumeQueues."""
    flush_once, run_consume_queues = FlushService.flush_once, FlushService.run_consume_queues

    async def flushes(self: FlushService) -> bool:
        if self._synchronous:
            return await flush_once(self)
        self._broker.held_changed()
        return True

    async def flushes_queues(self: FlushService) -> None:
        if self._synchronous:
            await run_consume_queues(self)

    both = ExitStack()
    both.enter_context(patch.object(FlushService, "flush_once", flushes))
    both.enter_context(patch.object(FlushService, "run_consume_queues", flushes_queues))
    return both


class _NoTags:
    def of(self, *record: object) -> int:
        return 0


def _recovery_knows_no_tags() -> Patched:
    init = Recovery.__init__

    def begins(self: Recovery, *arguments: Any, **options: Any) -> None:
        init(self, *arguments, **options)
        self._tags_code = _NoTags()  # type: ignore[assignment] # that is the bug

    return patch.object(Recovery, "__init__", begins)


def _index_is_not_truncated() -> Patched:
    return patch.object(IndexService, "_go_back", lambda self, end_offset: None)


# --- services


def _leads_without_silent_replicas() -> Patched:
    return patch.object(LeaderReclaim, "_check_complete", lambda self, others: None)


def _ended_leader_still_answers() -> Patched:
    return patch.object(PendingAcknowledgements, "give_up", lambda self, cause, code=0: [])


def _in_sync_set_not_inherited() -> Patched:
    return patch.object(InSyncSet, "await_in_sync", lambda self, replica_ids, now_s: None)


def _idle_pulls_outlast_leases() -> Patched:
    return patch.object(replica_follower, "leased_wait_ms", lambda lease_s: 5_000)


def _lease_too_long() -> Patched:
    return patch.object(InSyncSet, "lease_s", lambda self, replica_id: 60.0)


# --- tables


def _topic_answered_at_once() -> Patched:
    return patch.object(MetadataLog, "answer", lambda self, reply: reply)


def _commit_answered_at_once() -> Patched:
    def answers(self: MetadataLog, peer: Any, frame: bytes) -> None:
        peer.write(frame)
        peer.flush()

    return patch.object(MetadataLog, "answer_with_offsets", answers)


def _commit_answered_when_appended() -> Patched:
    write = MetadataLog.write_for_waiting

    def answers(self: MetadataLog) -> None:
        waiting, self._waiting = self._waiting, []
        write(self)
        if self.refusal() is None:
            self.write_offsets()
            for peer, frame in waiting:
                peer.write(frame)
                peer.flush()

    return patch.object(MetadataLog, "write_for_waiting", answers)


def _followers_tables_stay() -> Patched:
    return patch.object(MetadataLog, "receive", lambda self, data, *_: iter([data] if data else []))


def _tables_not_rebuilt_at_a_start() -> Patched:
    return patch.object(MetadataLog, "rebuild", lambda self: None)


def _offsets_taken_back_to_zero() -> Patched:
    def bound(self: ConsumerOffsetManager, queue_end_offset: Any) -> None:
        for by_queue in self._offsets.values():
            by_queue.update(dict.fromkeys(by_queue, 0))

    return patch.object(ConsumerOffsetManager, "bound", bound)


def _offset_one_too_far() -> Patched:
    query = ConsumerOffsetManager.query

    def beyond(self: ConsumerOffsetManager, topic: str, group: str, queue_id: int) -> int:
        return query(self, topic, group, queue_id) + 1

    return patch.object(ConsumerOffsetManager, "query", beyond)


# --- adoption and votes


def _disk_is_adopted_in_one_step() -> Patched:
    """Without a record that the others confirm first."""
    return patch.object(Members, "with_new_disk", Members.with_voter)


def _votes_of_the_forgetful_count() -> Patched:
    add = Tally.add

    def trusting(self: Tally, voter: int, incarnation: str, *, log_may_be_incomplete: bool) -> None:
        add(self, voter, incarnation, log_may_be_incomplete=False)

    return patch.object(Tally, "add", trusting)


def _majority_founds() -> Patched:
    wins = Tally.wins
    return patch.object(
        Tally, "wins", lambda self, members, *, founding, **others: wins(self, members, founding=False, **others)
    )


def _own_disk_is_not_doubted() -> Patched:
    def certain(state: Any, doubts: Any, durable_counts: bool, random: Any) -> dict[str, object]:
        return changes_by_own_disk(state, (), durable_counts, random)

    return patch.object(replicas, "changes_by_own_disk", certain)


# --- name servers


def _groups_listed(change: Callable[[dict[int, str]], dict[int, str]]) -> Patched:
    """What brokers ask for who else is in their group."""
    all_cluster_info = RouteInfoManager.all_cluster_info

    def changed(self: RouteInfoManager) -> ClusterInfo:
        info = all_cluster_info(self)
        groups = info.broker_addr_table.items()
        return msgspec.structs.replace(
            info,
            broker_addr_table={
                name: msgspec.structs.replace(group, broker_addrs=change(group.broker_addrs)) for name, group in groups
            },
        )

    return patch.object(RouteInfoManager, "all_cluster_info", changed)


def _slaves_are_not_listed() -> Patched:
    return _groups_listed(lambda addresses: {key: address for key, address in addresses.items() if key == MASTER_ID})


def _master_is_not_listed() -> Patched:
    return _groups_listed(lambda addresses: {key: address for key, address in addresses.items() if key != MASTER_ID})


def _slave_is_named_as_the_master() -> Patched:
    """To clients."""
    member_group = RouteInfoManager.broker_member_group

    def swapped(self: RouteInfoManager, cluster_name: str, broker_name: str) -> BrokerMemberGroup:
        group = member_group(self, cluster_name, broker_name)
        addresses = group.broker_addrs
        if MASTER_ID in addresses and len(addresses) > 1:
            slave = max(addresses)
            addresses[MASTER_ID], addresses[slave] = addresses[slave], addresses[MASTER_ID]
        return group

    return patch.object(RouteInfoManager, "broker_member_group", swapped)


def _leader_of_the_past_is_listed() -> Patched:
    return patch.object(RouteInfoManager, "_check_epoch", lambda self, broker, epoch: None)


# --- promotions


def _one_promise_too_few() -> Patched:
    fewer = property(lambda self: len(self.replica_ids) - self.in_sync_replicas)
    return patch.object(Group, "needed", fewer)


def _every_answer_counts() -> Patched:
    def all_of_them(group: Group, answers: Mapping[int, Standing]) -> dict[int, Standing]:
        return dict(answers)

    return patch.object(promotion, "counting", all_of_them)


def _shorter_log_is_clean() -> Patched:
    cleanness_of = promotion.cleanness_of

    def lenient(group: Group, answers: Mapping[int, Standing], candidate_id: int, **others: Any) -> Cleanness:
        candidate = answers.get(candidate_id)
        if candidate is None:
            return cleanness_of(group, answers, candidate_id, **others)
        alike = {
            key: replace(one, log_epoch=candidate.log_epoch, held_offset=candidate.held_offset)
            for key, one in answers.items()
        }
        return cleanness_of(group, alike, candidate_id, **others)

    return patch.object(promotion, "cleanness_of", lenient)


def _what_readers_saw_is_forgotten() -> Patched:
    return patch.object(promotion, "_may_have_shown", lambda group, answers, counted: False)


def _said_before_the_fence() -> Patched:
    """What the samples say is taken for promises."""

    def promises_given(view: GroupView, said: Iterable[Standing], ballot: Ballot) -> dict[int, Standing]:
        return {
            one.replica_id: standing
            for one in view.replicas
            if (standing := standing_of(one)) is not None and standing.replica_id in {each.replica_id for each in said}
        }

    return patch.object(order, "promises_given", promises_given)


def _no_one_is_stopped() -> Patched:
    return patch.object(order, "unpromised", lambda *arguments, **others: Unpromised((), ()))


def _refused_fence_is_asked_for_again() -> Patched:
    """Slaves may tell the leader of a fence before it is asked itself, and then it refuses that one for ever."""

    def unchanged(promotion: order.Promotion, ballot: Ballot, view: GroupView) -> order.Order[order.Promotion]:
        yield from ()
        return promotion

    both = ExitStack()
    both.enter_context(patch.object(order, "_in_order_of_fencing", lambda view: [tuple(replicas_to_fence(view))]))
    both.enter_context(patch.object(order, "_with_ballot_to_promise", unchanged))
    return both


def _promises_outlive_a_power_cut() -> Patched:
    promote, free = Replica.promote, order._free_to_lead

    def promotes(self: Replica, *arguments: Any, **others: Any) -> None:
        promote(self, *arguments, **{**others, "with_incomplete_log": True})

    def is_free(promotion: order.Promotion, view: GroupView) -> ReplicaView:
        return replace(free(promotion, view), log_may_be_incomplete=False)

    both = ExitStack()
    both.enter_context(patch.object(Replica, "promote", promotes))
    both.enter_context(patch.object(order, "_free_to_lead", is_free))
    return both


def _every_disk_counts() -> Patched:
    return patch.object(samples, "disk_after", lambda known, status, leader: KnownDisk(status.incarnation))


def _resets_are_not_written() -> Patched:
    def resets(self: ConsumerOffsetManager, topic: str, group: str, offsets: dict[int, int]) -> None:
        self.apply(MetadataRecord(resets={f"{topic}@{group}": offsets}))

    return patch.object(ConsumerOffsetManager, "reset", resets)


def _updates_are_not_written() -> Patched:
    """Of a topic that is there."""
    become = TopicConfigManager._become

    def becomes(self: TopicConfigManager, table: dict[str, TopicConfig], record: MetadataRecord | None = None) -> None:
        updates = record is not None and record.topics and record.topics.keys() <= self._table.keys()
        become(self, table, None if updates else record)

    return patch.object(TopicConfigManager, "_become", becomes)


def _groups_settings_are_not_written() -> Patched:
    """Of a group that is there."""
    become = SubscriptionGroupManager._become

    def becomes(
        self: SubscriptionGroupManager, table: dict[str, SubscriptionGroupConfig], record: MetadataRecord | None = None
    ) -> None:
        updates = record is not None and record.groups and record.groups.keys() <= self._table.keys()
        become(self, table, None if updates else record)

    return patch.object(SubscriptionGroupManager, "_become", becomes)


def _deleted_groups_come_back() -> Patched:
    apply = SubscriptionGroupManager.apply

    def keeps(self: SubscriptionGroupManager, record: MetadataRecord) -> None:
        apply(self, msgspec.structs.replace(record, deleted_groups=[]))

    return patch.object(SubscriptionGroupManager, "apply", keeps)


def _index_stays_where_damage_is_put_right() -> Patched:
    return patch.object(IndexService, "_lacks", lambda self, records: None)


def _expired_messages_come_back() -> Patched:
    return patch.object(KeptMessages, "rebuild", lambda self, records: self._store.keep_all())


def _a_little_excess_takes_all() -> Patched:
    def all_of_it(excess_bytes: int, queues: Any) -> Any:
        return oldest_beyond(excess_bytes if excess_bytes <= 0 else 1 << 60, queues)

    return patch.object(topic_retention, "oldest_beyond", all_of_it)


# --- topics made again


def _tombstones_are_not_read() -> Patched:
    return patch.object(TopicTombstones, "load", lambda self: None)


def _tombstones_have_no_numbers() -> Patched:
    bury = TopicTombstones.bury

    def buries(self: TopicTombstones, topic: str, tombstone: Tombstone) -> None:
        bury(self, topic, Tombstone(tombstone.physical_offset))

    return patch.object(TopicTombstones, "bury", buries)


def _followers_keep_deleted_messages() -> Patched:
    finish = MetadataLog.finish_deletions

    def finishes(self: MetadataLog) -> None:
        if not self._broker.replica.leads:
            self._undeleted.clear()
        finish(self)

    return patch.object(MetadataLog, "finish_deletions", finishes)


def _deletions_are_not_truncated() -> Patched:
    return patch.object(TopicTombstones, "truncate", lambda self, end_offset: False)


STEP_BUGS = (
    PlantedBug("what recovery found is called durable", "single", "sync", _recovered_is_durable),
    PlantedBug(
        "what recovery found is synced, and not written again", "single", "sync", _recovered_is_not_written_again
    ),
    PlantedBug("recovery keeps only what the checkpoint knows", "single", "sync", _only_what_the_checkpoint_knows),
    PlantedBug("a flush syncs the first file only", "single", "sync", _flush_of_one_file),
    PlantedBug("a new file's name is not synced", "single", "sync", _new_files_name_not_synced),
    PlantedBug("a truncation leaves the checkpoint above it", "async", "sync", _checkpoint_above_the_end),
    PlantedBug("retention asks for no age", "single", "sync", _retention_asks_no_age),
    PlantedBug("with ASYNC_FLUSH nothing is flushed", "single", "async", _nothing_is_flushed),
    PlantedBug("recovery gives no tags to what it dispatches", "sync", "sync", _recovery_knows_no_tags),
    PlantedBug(
        "a truncation leaves the message index as it is", "async", "sync", _index_is_not_truncated, indexes=True
    ),
    PlantedBug("an update of a topic is not written", "sync", "sync", _updates_are_not_written),
    PlantedBug("a group's new settings are not written", "sync", "sync", _groups_settings_are_not_written),
    PlantedBug("a deletion of a group is not applied at a start", "single", "sync", _deleted_groups_come_back),
    PlantedBug(
        "the index of keys lacks what was damaged when it was made",
        "async",
        "async",
        _index_stays_where_damage_is_put_right,
        indexes=True,
    ),
    PlantedBug("a restart forgets what topics have expired", "sync", "sync", _expired_messages_come_back),
    PlantedBug("a topic with a byte too much loses all", "single", "sync", _a_little_excess_takes_all),
    PlantedBug("a commit is answered at once", "single", "sync", _commit_answered_at_once),
    PlantedBug("a follower's tables stay as they are", "sync", "sync", _followers_tables_stay),
    PlantedBug("deleted topics are forgotten at a start", "single", "sync", _tombstones_are_not_read),
    PlantedBug("a topic that is made again counts from zero", "single", "sync", _tombstones_have_no_numbers),
    PlantedBug("a follower keeps the messages of a deleted topic", "async", "sync", _followers_keep_deleted_messages),
    PlantedBug("a deletion that was truncated counts", "async", "sync", _deletions_are_not_truncated),
    PlantedBug("offsets are taken back to zero", "single", "sync", _offsets_taken_back_to_zero),
    PlantedBug("a reset of an offset is not written", "single", "sync", _resets_are_not_written),
    PlantedBug("an offset is answered one too far", "single", "sync", _offset_one_too_far),
    PlantedBug("name servers list no slaves", "async", "sync", _slaves_are_not_listed, promotions=False),
    # Rare: a leader asks every replica that is listed before it leads, and each learns of it by that; a control plane says it, too.
    PlantedBug("name servers do not list the master", "async", "sync", _master_is_not_listed),
    PlantedBug("name servers name a slave as the master", "async", "sync", _slave_is_named_as_the_master),
    PlantedBug("name servers list a leader of the past", "sync", "sync", _leader_of_the_past_is_listed),
    PlantedBug(
        "a restarted leader does not wait for silent replicas", "async", "sync", _leads_without_silent_replicas, 3
    ),
    PlantedBug("an ended leader still answers", "sync", "sync", _ended_leader_still_answers),
    PlantedBug("a commit is answered when it is appended", "single", "sync", _commit_answered_when_appended),
    PlantedBug("tables are not read from the log at a start", "single", "sync", _tables_not_rebuilt_at_a_start),
    PlantedBug("votes of those that may lack records count in full", "dledger", "async", _votes_of_the_forgetful_count),
    PlantedBug("a majority founds the group", "dledger", "sync", _majority_founds),
    PlantedBug("no replica doubts its own disk", "dledger", "async", _own_disk_is_not_doubted),
    PlantedBug("no replica doubts its own disk", "sync", "async", _own_disk_is_not_doubted),
    PlantedBug("a new disk is adopted in one step", "dledger", "sync", _disk_is_adopted_in_one_step),
    # Seeds of mode single have not found it: there only the moment until the flush is dangerous, and no replica is asked.
    PlantedBug("a topic is answered at once", "dledger", "sync", _topic_answered_at_once),
    PlantedBug("one promise too few is enough", "sync", "sync", _one_promise_too_few, 3),
    PlantedBug("a follower's lease is too long", "sync", "sync", _lease_too_long),
    PlantedBug("a pull of an idle group is held for longer than a lease", "sync", "sync", _idle_pulls_outlast_leases),
    PlantedBug("a shorter log is clean", "sync", "sync", _shorter_log_is_clean),
    PlantedBug("what readers saw is forgotten", "sync", "sync", _what_readers_saw_is_forgotten),
    PlantedBug("what was said before the fence is taken for a promise", "async", "sync", _said_before_the_fence),
    PlantedBug(
        "a fence that the leader refuses is asked for again", "async", "sync", _refused_fence_is_asked_for_again
    ),
    PlantedBug("a silent replica that may lead is not stopped", "async", "sync", _no_one_is_stopped),
    PlantedBug("every answer counts for cleanness", "sync", "sync", _every_answer_counts, 3),
    PlantedBug("every disk counts", "sync", "sync", _every_disk_counts, 3),
    PlantedBug("a promise outlives the power cut of who gave it", "sync", "async", _promises_outlive_a_power_cut, 3),
    PlantedBug("a new leader does not inherit the in-sync set", "sync", "sync", _in_sync_set_not_inherited),
)
