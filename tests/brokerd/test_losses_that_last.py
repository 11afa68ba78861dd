"""A loss is remembered through retention, restarts, hints and a leader that leads again, and no longer than it is one."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from brokerd.replica.epoch_record import Lacks, losses_in
from brokerd.store import DiskFullError
from mqwire.codes import ResponseCode
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.replicated_broker import lead_again, pair, promote, replicate, settle
from tests.brokerd.test_lost_numbers import (
    after_a_loss,
    commit,
    committed,
    filled,
    gone_back,
    pull,
    record_only,
    store,
    where,
)

HOURLY = ";".join(f"{hour:02d}" for hour in range(24))


def delete_what_has_expired(broker: BrokerUnderTest) -> None:
    broker.store.sync_consume_queues(broker.store.write_consume_queues())
    broker.broker.replica.remember_epochs()
    broker.store.delete_expired(broker.clock.time_ms(), keep_from_offset=broker.broker.metadata_log.needed_from)
    assert broker.store.min_physical_offset > 0


def test_where_someone_may_have_led_unseen_a_group_begins_again_though_the_log_does_not_begin_at_0(
    make_broker: MakeBroker,
) -> None:
    keys = {"mappedFileSizeCommitLog": str(64 * 1024), "fileReservedTime": "1", "deleteWhen": HOURLY}
    old, new = pair(make_broker, **keys)
    for topic in ("orders", "filler"):
        old.create_topic(topic)
    old.create_group("g")
    for _ in range(20):
        old.store_message("filler", b"." * 4000)
    settle(old, new)
    old.broker.metadata_log.keep_base_near()
    settle(old, new)
    new.clock.advance(3 * 3600)
    delete_what_has_expired(new)
    store(old, 10)
    settle(old, new)
    promote(new, old, loses=True, lacks_an_epoch=True)
    new.store.flush()
    new.broker.held_changed()
    new.broker.metadata_log.note_sent_back()
    new.broker.metadata_log.write_base()
    assert where(pull(new, 8, consumed=8)) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    commit(new, 8)
    assert committed(new) == -1


def test_it_does_not_once_retention_has_deleted_all_of_that_log(make_broker: MakeBroker) -> None:
    broker = make_broker()
    offsets = broker.broker.consumer_offsets
    offsets.send_back(700, from_the_beginning=True)
    offsets.forget_losses(701, but=None)
    assert offsets.losses == []


def test_what_a_follower_heard_of_a_group_without_an_offset_is_not_believed_where_someone_may_have_led_unseen(
    make_broker: MakeBroker,
) -> None:
    """The group read that of the other leader's log, which may have left this one anywhere."""
    old, new = filled(make_broker)
    replicate(old, new)
    new.broker.consumer_offsets.hint("orders", "g", 0, 8)
    promote(new, old, loses=True, lacks_an_epoch=True)
    assert committed(new) == -1


def test_nor_where_other_messages_have_followed_since_the_loss(make_broker: MakeBroker) -> None:
    """Whose leader could write no base that says so: this replica has its epoch's record alone, and what came then."""
    old, new = filled(make_broker)
    replicate(old, new)
    epoch = new.broker.replica.epoch + 1
    now = (new.clock.monotonic(), new.clock.time_ms())
    new.broker.replica.promote(epoch - 1, epoch, *now, with_incomplete_log=True)
    store(new, 20)
    record_only(new, old)
    old.broker.consumer_offsets.hint("orders", "g", 0, 17)
    promote(old, new)
    assert committed(old) == -1


def refused_for_a_full_disk(broker: BrokerUnderTest, epoch: int, *, lacks_an_epoch: bool = False) -> None:
    """A promotion with a loss that was agreed to, whose epoch's record is not written."""
    replica = broker.broker.replica
    replica.step_down(epoch, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.store, "append_needed", Mock(side_effect=DiskFullError("full")))
        with pytest.raises(DiskFullError):
            replica.promote(epoch, epoch + 1, *times(broker), with_incomplete_log=True, lacks_an_epoch=lacks_an_epoch)


def times(broker: BrokerUnderTest) -> tuple[float, int]:
    return broker.clock.monotonic(), broker.clock.time_ms()


def stepped_down(broker: BrokerUnderTest, epoch: int) -> None:
    broker.broker.replica.step_down(epoch, None)
    broker.broker.role_changed()


@pytest.mark.parametrize("messages", [0, 3])
def test_a_promotion_with_loss_that_met_a_full_disk_is_over_once_another_replica_leads(
    make_broker: MakeBroker, messages: int
) -> None:
    old, new = filled(make_broker)
    commit(old, 4)
    replicate(old, new)
    store(old, messages)
    refused_for_a_full_disk(new, 100)
    stepped_down(old, 104)
    new.broker.replica.step_down(104, None)
    promote(old, new)
    replicate(old, new)
    promote(new, old)
    assert new.broker.consumer_offsets.pending_reset("orders", "g", 0) is None


def test_but_not_where_the_same_replica_is_promoted_again(make_broker: MakeBroker) -> None:
    """And its epoch's record says so, for who leads next."""
    old, new = filled(make_broker)
    replicate(old, new)
    refused_for_a_full_disk(new, 100, lacks_an_epoch=True)
    promote(new, old)
    begin = new.broker.replica.epochs.entries[-1].start_offset
    assert losses_in(new.store.read_raw(begin, 1 << 20))[0] == (begin, Lacks(shown=True, an_epoch=True))


def test_what_another_replica_lacks_counts_though_a_promotion_here_met_a_full_disk(make_broker: MakeBroker) -> None:
    old, new = filled(make_broker)
    replicate(old, new)
    refused_for_a_full_disk(new, 100, lacks_an_epoch=True)
    stepped_down(old, 104)
    new.broker.replica.step_down(104, None)
    promote(old, new, loses=True)
    record_only(old, new)
    saved = new.broker.replica.saved
    assert (saved.lacks_shown_from, saved.lacks_an_epoch) == (old.broker.replica.epochs.entries[-1].start_offset, False)


def test_a_replica_that_starts_over_has_no_loss_of_the_log_that_it_had(make_broker: MakeBroker) -> None:
    old, new = filled(make_broker)
    commit(old, 4)
    replicate(old, new)
    promote(new, old, loses=True)
    stepped_down(new, 100)
    new.broker.replica.start_over(0, 0, lambda: new.store.start_over(0))
    new.broker.log_was_truncated()
    stepped_down(old, 100)
    promote(old, new)
    replicate(old, new)
    promote(new, old)
    assert new.broker.consumer_offsets.pending_reset("orders", "g", 0) is None


def test_a_late_commit_does_not_count_either_where_the_same_replica_leads_again(make_broker: MakeBroker) -> None:
    """A promotion that was given up gave the role back."""
    new = gone_back(make_broker, before=10)
    lead_again(new)
    commit(new, 17)
    assert committed(new) == 15


def test_nor_does_one_that_came_while_it_did_not_lead(make_broker: MakeBroker) -> None:
    new = gone_back(make_broker, before=10)
    new.store.flush()
    new.broker.held_changed()
    new.broker.metadata_log.note_sent_back()
    stepped_down(new, 100)
    new.broker.consumer_offsets.hint("orders", "g", 0, 17)
    lead_again(new)
    assert committed(new) == 15


@pytest.mark.parametrize("before", [None, 10])
def test_who_has_read_on_is_not_sent_back_where_the_same_replica_leads_again(
    make_broker: MakeBroker, before: int | None
) -> None:
    new = gone_back(make_broker, before=before)
    assert where(pull(new, 15, consumed=15)) == (ResponseCode.SUCCESS, "35")
    lead_again(new)
    assert where(pull(new, 35, consumed=20))[0] == ResponseCode.PULL_NOT_FOUND
    assert committed(new) == 20


def test_what_was_told_of_messages_that_are_truncated_is_forgotten(make_broker: MakeBroker) -> None:
    """Another replica led with others in their place."""
    new, old = after_a_loss(make_broker, committed=None)
    replicate(new, old)
    store(new, 5)
    pull(new, 10)  # and is sent what there is up to 35
    promote(old, new)
    store(old, 5)
    replicate(old, new)
    promote(new, old)
    commit(new, 35)
    assert committed(new) == -1


def test_nor_is_what_was_told_before_another_loss_believed(make_broker: MakeBroker) -> None:
    new, old = after_a_loss(make_broker, committed=None)
    pull(new, 10)
    promote(new, old, loses=True)
    commit(new, 30)
    assert committed(new) == -1


def asleep(make_broker: MakeBroker) -> BrokerUnderTest:
    """A lite consumer, whose pulls do not say that it commits, was asleep when it was sent back, and reads on where it was."""
    new, _ = after_a_loss(make_broker, committed=10)
    assert where(pull(new, 17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    new.clock.advance(61.0)
    assert where(pull(new, 17)) == (ResponseCode.SUCCESS, "30")
    return new


def test_a_lite_consumer_that_slept_while_it_was_sent_back_is_sent_back_once_it_commits(
    make_broker: MakeBroker,
) -> None:
    new = asleep(make_broker)
    commit(new, 30)
    assert where(pull(new, 30)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    pull(new, 10)
    commit(new, 30)
    assert committed(new) == 30


def test_so_it_is_where_its_first_messages_took_it_longer_than_any_commit_is_late(make_broker: MakeBroker) -> None:
    new = asleep(make_broker)
    new.clock.advance(121.0)
    commit(new, 30)
    assert committed(new) == 10
    assert where(pull(new, 30)) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def test_who_keeps_its_offsets_itself_is_left_alone_after_a_reset_that_it_has_not_followed(
    make_broker: MakeBroker,
) -> None:
    new = asleep(make_broker)
    store(new, 5)
    assert where(pull(new, 30)) == (ResponseCode.SUCCESS, "35")


def test_such_a_one_is_sent_back_once_for_each_commit_of_another_member(make_broker: MakeBroker) -> None:
    """Who keeps its offsets itself need not obey, and is to read on."""
    new = asleep(make_broker)
    commit(new, 30)
    pull(new, 30)
    assert where(pull(new, 30))[0] == ResponseCode.PULL_NOT_FOUND


def test_once_it_has_gone_back_no_commit_is_late_after_two_minutes(make_broker: MakeBroker) -> None:
    new = asleep(make_broker)
    pull(new, 10)
    store(new, 5)
    new.clock.advance(121.0)
    commit(new, 35)
    assert committed(new) == 35
