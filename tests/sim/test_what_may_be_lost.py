"""What may be lost, as the observer judges it."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from brokerd.replica.epoch_map import EpochMap
from tests.sim.history import Copy, History, Violation
from tests.sim.sim_requests import CommitOffset, ResetOffset
from tests.sim.verdict import judge_consumed
from tests.sim.wire import topic_of

EPOCHS = EpochMap([(1, 0)])
LAST = Copy("r0", 1, 900, 1000, 9)
SYNCED = Copy("r0", 1, 400, 500, 4)


def observed(*, in_sync_replicas: int = 2, **logs_end_at: int) -> History:
    history = History(mode="sync", in_sync_replicas=in_sync_replicas)
    history.logs = lambda: {name: (EPOCHS, end) for name, end in logs_end_at.items()}
    return history


def test_nothing_is_lost_by_a_power_cut_while_another_replica_in_sync_keeps_its_memory() -> None:
    history = observed(r0=500, r1=1000)
    history.keeps(1, frozenset({"r0", "r1"}))
    history.power_cut("r0", EPOCHS, 1000, 500)
    assert not history.may_be_lost(LAST)
    assert history.lost_by(LAST) == {"r0"}


def test_what_all_replicas_in_sync_had_in_memory_only_may_be_lost_when_the_last_of_them_loses_power() -> None:
    history = observed(r0=500, r1=1000, r2=1000)
    history.keeps(1, frozenset({"r0", "r1"}))
    history.power_cut("r0", EPOCHS, 1000, 500)
    history.power_cut("r1", EPOCHS, 1000, 600)
    assert history.may_be_lost(LAST)
    assert not history.may_be_lost(SYNCED)


def test_nothing_is_lost_by_the_power_cut_of_a_follower_where_the_leader_is_enough() -> None:
    history = observed(r0=1000, r1=500)
    history.keeps(1, frozenset({"r0"}))
    history.power_cut("r1", EPOCHS, 1000, 500)
    assert not history.may_be_lost(LAST)
    history.power_cut("r0", EPOCHS, 1000, 500)
    assert history.may_be_lost(LAST)


def test_a_leader_of_the_past_does_not_say_who_has_to_keep_what() -> None:
    history = observed(r0=500, r1=1000)
    history.keeps(2, frozenset({"r1"}))
    history.keeps(1, frozenset({"r0"}))
    history.power_cut("r0", EPOCHS, 1000, 500)
    assert not history.may_be_lost(LAST)


@pytest.mark.parametrize("led", [True, False])
@pytest.mark.parametrize("in_sync_replicas", [1, 2])
def test_a_lost_disk_may_cost_what_only_it_had_where_its_leader_was_enough(led: bool, in_sync_replicas: int) -> None:
    history = observed(in_sync_replicas=in_sync_replicas)
    history.disk_lost("r0", EPOCHS, 1000, {"r1": (EPOCHS, 500)}, led=led, memory_counts=False)
    assert history.may_be_lost(LAST) is (led and in_sync_replicas == 1)
    assert not history.may_be_lost(SYNCED)
    assert history.lost_by(LAST) == {"r0"}


def test_with_async_flush_a_lost_disk_may_cost_what_the_others_in_sync_had_lost_from_memory() -> None:
    history = observed(r0=1000, r1=1000)
    history.keeps(1, frozenset({"r0", "r1"}))
    history.power_cut("r1", EPOCHS, 1000, 500)
    assert not history.may_be_lost(LAST)
    history.disk_lost("r0", EPOCHS, 1000, {"r1": (EPOCHS, 500)}, led=False, memory_counts=True)
    assert history.may_be_lost(LAST)
    assert not history.may_be_lost(SYNCED)


def test_only_the_newest_leader_knows_what_was_committed_since_a_reset() -> None:
    """One of the past, which hears of no one, may send a consumer where the reset sent it before."""
    history = observed(r0=1000)
    reset = ResetOffset(3, 12, history.offsets.reset_asked(3, 12))
    history.changed(reset, SYNCED)
    history.changed(CommitOffset(3, 28, history.offsets.commit_asked(3, 28)), LAST)
    history.sent_back(3, 28, 12, newest=False)
    with pytest.raises(Violation, match="sent back from 28 to 12"):
        history.sent_back(3, 28, 12, newest=True)
    with pytest.raises(Violation, match="sent back from 28 to 11"):
        history.sent_back(3, 28, 11, newest=False)


def test_a_commit_that_was_answered_counts_after_a_loss_unless_it_is_lost_itself() -> None:
    history = observed(r0=500)
    history.keeps(1, frozenset({"r0"}))
    for queue, offset, copy in ((3, 7, SYNCED), (3, 9, LAST), (4, 2, LAST)):
        history.changed(CommitOffset(queue, offset, history.offsets.commit_asked(queue, offset)), copy)
    assert [history.offsets.least(queue) for queue in (3, 4)] == [9, 2]
    history.power_cut("r0", EPOCHS, 1000, 500)
    assert [history.offsets.least(queue) for queue in (3, 4)] == [7, None]
    history.count_changes()
    assert history.counts["answered changes judged"] == 1
    assert history.counts["answered changes that may be lost"] == 2


def consumed_up_to(history: History, offset: int) -> None:
    """A group has committed that, and the commit was answered."""
    change = history.offsets.commit_asked(0, offset)
    history.changed(CommitOffset(0, offset, change), SYNCED)


def test_no_client_is_sent_past_an_acknowledged_message_that_is_there() -> None:
    history = observed(r0=1000)
    stored(history, 5)
    history.sent_on(0, 2, 5)
    with pytest.raises(Violation, match="past message"):
        history.sent_on(0, 2, 6)


def test_a_group_is_sent_past_it_where_a_reset_had_passed_over_it_and_a_later_one_is_lost() -> None:
    history = observed(r0=1000)
    stored(history, 5)
    history.changed(ResetOffset(0, 6, history.offsets.reset_asked(0, 6)), SYNCED)
    history.sent_on(0, 2, 6, commits=True)
    with pytest.raises(Violation, match="past message"):
        history.sent_on(0, 2, 6)


def test_a_consumer_that_has_read_a_lost_end_goes_on_where_its_group_has_committed() -> None:
    """From the end of the queue on it would miss what came at the offsets of what was lost."""
    history = observed(r0=1000)
    history.unclean_promotion(2, EPOCHS, 500)
    stored(history, 5)
    consumed_up_to(history, 4)
    history.sent_back(0, 9, 4, newest=True)
    with pytest.raises(Violation, match="past message"):
        history.sent_back(0, 9, 6, newest=True)


@pytest.mark.parametrize("expired_below", [599, 600])
def test_a_consumer_may_never_have_seen_what_expired_on_another_replica(expired_below: int) -> None:
    """Of a message that ends at 600."""
    history = observed(r0=1000, r1=1000)
    stored(history, 5)
    history.expired(expired_below)
    message: Any = SimpleNamespace(body=b"body", physical_offset=500, size_bytes=100)
    offsets: Any = SimpleNamespace(query=lambda *queue: 6)
    if expired_below == 600:
        judge_consumed(history, offsets, {(topic_of(0), 0, 5): message})
    else:
        with pytest.raises(Violation, match="has never seen message"):
            judge_consumed(history, offsets, {(topic_of(0), 0, 5): message})


def stored(history: History, queue_offset: int) -> None:
    """A message was acknowledged there, in the newest epoch."""
    attempt = history.sending(0, b"body")
    copy = Copy("r0", 2, 500, 600, queue_offset)
    attempt.acknowledged.append(copy)
    history.appended(attempt, 0, copy)
    history.answered(attempt.number, "SEND_OK", queue_offset)


@pytest.mark.parametrize("planned", [False, True])
def test_a_message_is_delivered_again_but_by_another_leader_that_is_planned(planned: bool) -> None:
    history = observed(r0=1000)
    attempt = history.sending(0, b"later", delayed=True)
    attempt.copies.append(LAST)
    history.note_delivered()
    history.another_is_to_lead(planned=planned)
    history.appended(attempt, 0, LAST)
    with pytest.raises(Violation, match="again") if planned else contextlib.nullcontext():
        history.appended(attempt, 0, LAST)


def test_a_message_that_was_delivered_before_all_were_level_is_not_delivered_again() -> None:
    history = observed(r0=1000)
    attempt = history.sending(0, b"later", delayed=True)
    history.appended(attempt, 0, LAST)
    history.note_delivered()
    history.appended(attempt, 0, LAST)  # at least once
    history.another_is_to_lead(planned=False)
    with pytest.raises(Violation, match="again"):
        history.appended(attempt, 0, LAST)
