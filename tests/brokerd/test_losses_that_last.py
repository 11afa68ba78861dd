"""A loss is remembered through retention, restarts, hints and a leader that leads again, and no longer than it is one."""

from __future__ import annotations

from mqwire.codes import ResponseCode
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.replicated_broker import pair, promote, replicate, settle
from tests.brokerd.test_lost_numbers import commit, committed, filled, pull, record_only, store, where

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
