"""Bugs planted in the adoption of new disks, and in services: both sides of a pull, delayed messages, registration. As in
planted_bugs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec
import trio

from brokerd.consumer_offset import ConsumerOffsetManager
from brokerd.long_polling import PullRequestHoldService
from brokerd.processors import pull_message
from brokerd.processors.pull_message import PullMessageProcessor
from brokerd.replica import elections
from brokerd.replica.elections import Elections
from brokerd.replica.in_sync import FollowerState
from brokerd.replica.quorum import Quorum
from brokerd.replica.voters import Members
from brokerd.services import delay_level, registration, replica_server
from brokerd.services.delay_level import DueHead, ScheduleMessageService
from brokerd.services.replica_follower import FollowerService
from brokerd.store import MessageToStore
from brokerd.unproven_offsets import UnprovenOffsets
from mqwire.bodies import ConsumerOffsetSerializeWrapper
from mqwire.codes import ResponseCode
from mqwire.headers_namesrv import RegisterBrokerRequestHeader
from mqwire.headers_replica import ReplicaPullResponseHeader
from mqwire.message import StoredMessage
from mqwire.names import MASTER_ID
from tests.sim.planted_bugs import PlantedBug

Patched = AbstractContextManager[Any]


def _new_disk_is_known_when_it_is_seen() -> Patched:
    """The leader notes it in place of the lost one at once, before it has caught up, and without a record that leaves it out."""

    def next_members(
        members: Members,
        own_id: int,
        own_incarnation: str,
        followers: Mapping[int, FollowerState],
        *,
        now_s: float,
        recent_s: float,
    ) -> Members | None:
        there = {
            key: one.incarnation
            for key, one in followers.items()
            if one.incarnation and members.counts(key) and now_s - one.last_pull_s <= recent_s
        }
        known = dict(members.incarnations) | {own_id: own_incarnation} | there
        seen = replace(members, incarnations=tuple(sorted(known.items())))
        return None if seen == members else seen

    return patch.object(elections, "next_members", next_members)


def _end_is_sent_as_confirmed() -> Patched:
    def header(**values: Any) -> ReplicaPullResponseHeader:
        if values["answer"] == "bytes":
            values["confirm_offset"] = values["end_offset"]
        return ReplicaPullResponseHeader(**values)

    return patch.object(replica_server, "ReplicaPullResponseHeader", header)


def _leaders_answers_are_not_noted() -> Patched:
    """So a follower takes the leader that it pulls from for dead, again and again."""
    return patch.object(Elections, "heard_leader", lambda self, epoch, now_s: None)


def _far_delivery_is_waited_for() -> Patched:
    """A clock that was set back since leaves messages due that long later."""

    def accept(self: DueHead, deliver_at_ms: int) -> bool:
        if self.next_due_ms is None and deliver_at_ms > self._now_ms:
            self.next_due_ms = deliver_at_ms
        return self.next_due_ms is None

    return patch.object(DueHead, "accept", accept)


def _no_reader_is_sent_on() -> Patched:
    """Past what retention has deleted, by who may say so."""
    return patch.object(
        PullMessageProcessor,
        "_must_not_move",
        lambda self, header, result: pull_message._code_of(header, result) is ResponseCode.PULL_OFFSET_MOVED,
    )


def _held_pulls_are_not_woken() -> Patched:
    return patch.object(PullRequestHoldService, "wake", lambda self, queues: None)


def _empty_answer_sends_back() -> Patched:
    """To the queue's beginning, as a client takes it that goes on where any answer says."""
    write = PullMessageProcessor._write

    def writes(
        self: PullMessageProcessor,
        peer: Any,
        request: Any,
        code: int,
        remark: str,
        next_offset: int,
        min_offset: int,
        *rest: Any,
    ) -> None:
        if code == ResponseCode.PULL_NOT_FOUND:
            next_offset = min_offset
        write(self, peer, request, code, remark, next_offset, min_offset, *rest)

    return patch.object(PullMessageProcessor, "_write", writes)


def _lost_end_is_passed_over() -> Patched:
    """RocketMQ's answer to one that has read what a promotion truncated."""
    return patch.object(PullMessageProcessor, "_resume_offset", lambda self, header, result: result.next_begin_offset)


def _delayed_is_due_at_once() -> Patched:
    return patch.object(DueHead, "accept", lambda self, deliver_at_ms: True)


def _delivered_without_properties() -> Patched:
    to_real_topic = delay_level.to_real_topic

    def bare(message: StoredMessage) -> MessageToStore | None:
        real = to_real_topic(message)
        return None if real is None else real._replace(properties=b"")

    return patch.object(delay_level, "to_real_topic", bare)


def _truncated_deliveries_count() -> Patched:
    return patch.object(ScheduleMessageService, "_take_back", lambda self, log_end_offset: None)


def _deliveries_are_not_taken_over() -> Patched:
    return patch.object(ScheduleMessageService, "take_over", lambda self, table: None)


def _transfer_is_forgotten() -> Patched:
    return patch.object(Quorum, "transfer", lambda self, target, now_s: None)


def _diverged_follower_stops() -> Patched:
    truncate_to = FollowerService._truncate_to

    async def halts(self: FollowerService, header: ReplicaPullResponseHeader) -> None:
        await truncate_to(self, header)
        await trio.sleep_forever()

    return patch.object(FollowerService, "_truncate_to", halts)


def _slave_registers_as_the_master() -> Patched:
    def header(**values: Any) -> RegisterBrokerRequestHeader:
        return RegisterBrokerRequestHeader(**{**values, "broker_id": MASTER_ID})

    return patch.object(registration, "RegisterBrokerRequestHeader", header)


def _groups_keep_their_offsets_after_a_loss() -> Patched:
    """Their members read on from numbers that other messages have by now."""

    def only_noted(offsets: ConsumerOffsetManager, loss_offset: int, *, from_the_beginning: bool = False) -> None:
        offsets.losses.append(loss_offset)

    return patch.object(ConsumerOffsetManager, "send_back", only_noted)


def _every_offset_is_taken_for_proven() -> Patched:
    """Of a group that has committed nothing, after a loss."""
    return patch.object(UnprovenOffsets, "_concerns", lambda self, queue: False)


def _offsets_of_before_a_loss_are_merged() -> Patched:
    """A restarted leader takes over what was committed where the loss has not been heard of."""
    merge = ConsumerOffsetManager.merge

    def all_taken(
        offsets: ConsumerOffsetManager,
        theirs: ConsumerOffsetSerializeWrapper,
        is_proven: Callable[[str, str, int, int], bool],
    ) -> None:
        merge(offsets, msgspec.structs.replace(theirs, losses=offsets.losses), lambda *said: True)

    return patch.object(ConsumerOffsetManager, "merge", all_taken)


SERVICE_BUGS = (
    PlantedBug("a new disk is known when it is seen", "dledger", "sync", _new_disk_is_known_when_it_is_seen),
    PlantedBug("followers are sent the log's end as confirmed", "sync", "sync", _end_is_sent_as_confirmed),
    PlantedBug("a follower does not note its leader's answers", "dledger", "sync", _leaders_answers_are_not_noted),
    PlantedBug(
        "a delivery that a clock has put far ahead is waited for", "single", "sync", _far_delivery_is_waited_for
    ),
    PlantedBug("no reader is sent past what retention has deleted", "async", "sync", _no_reader_is_sent_on),
    PlantedBug("a message does not end the wait of a pull", "single", "sync", _held_pulls_are_not_woken),
    PlantedBug("an elected group's pulls wait though messages come", "dledger", "sync", _held_pulls_are_not_woken),
    PlantedBug("an empty answer sends a consumer back", "single", "sync", _empty_answer_sends_back),
    PlantedBug("a delayed message is due at once", "single", "sync", _delayed_is_due_at_once),
    PlantedBug("a delayed message loses its properties", "single", "sync", _delivered_without_properties),
    PlantedBug("a delivery that was truncated counts", "async", "sync", _truncated_deliveries_count),
    PlantedBug("a slave takes no progress of deliveries over", "sync", "sync", _deliveries_are_not_taken_over),
    PlantedBug("a transfer is forgotten", "dledger", "sync", _transfer_is_forgotten),
    PlantedBug("a follower stops for good where its log parted", "dledger", "sync", _diverged_follower_stops),
    PlantedBug("a slave registers as the master", "async", "sync", _slave_registers_as_the_master),
    PlantedBug("groups keep their offsets after a loss", "async", "sync", _groups_keep_their_offsets_after_a_loss),
    PlantedBug("every offset is taken for proven after a loss", "async", "sync", _every_offset_is_taken_for_proven),
    PlantedBug("offsets of before a loss are merged", "async", "sync", _offsets_of_before_a_loss_are_merged),
)
