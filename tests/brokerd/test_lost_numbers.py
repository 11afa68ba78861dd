"""Consumers after a promotion that loses messages: others get the numbers of what they have read, and none is passed over."""

from __future__ import annotations

import pytest

from brokerd.replica.epoch_record import Lacks
from brokerd.store import StoreError
from mqwire.bodies import ConsumerOffsetSerializeWrapper
from mqwire.codes import HighwaterRequestCode, PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import GetMaxOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from mqwire.headers_pull import PullMessageRequestHeader
from mqwire.headers_replica import ReplicaReclaimRequestHeader, ReplicaReclaimResponseHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.replicated_broker import pair, promote, replicate

LOST = 7  # messages that the old leader alone has


def pull(
    broker: BrokerUnderTest, offset: int, *, consumed: int = 0, group: str = "g", peer: RecordingPeer | None = None
) -> RemotingCommand:
    """A push consumer's: once it has consumed anything, each commits how far."""
    return broker.ask(
        RequestCode.PULL_MESSAGE,
        PullMessageRequestHeader(
            consumer_group=group,
            topic="orders",
            queue_id=0,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.COMMIT_OFFSET if consumed else 0),
            commit_offset=consumed,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        ),
        peer=peer,
    )


def commit(broker: BrokerUnderTest, offset: int, group: str = "g") -> RemotingCommand:
    header = UpdateConsumerOffsetRequestHeader(consumer_group=group, topic="orders", queue_id=0, commit_offset=offset)
    return broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def committed(broker: BrokerUnderTest, group: str = "g") -> int:
    return broker.broker.consumer_offsets.query("orders", group, 0)


def store(broker: BrokerUnderTest, count: int) -> None:
    for number in range(count):
        broker.store_message("orders", b"%d" % number)
    broker.store.flush()
    broker.broker.held_changed()


def record_only(leader: BrokerUnderTest, follower: BrokerUnderTest) -> None:
    """The follower gets the record of the leader's epoch, and no base."""
    begin, end = leader.broker.replica.epochs.entries[-1].start_offset, leader.store.end_offset
    data = leader.store.read_raw(begin, end - begin)
    follower.broker.saw_epoch(leader.broker.replica.epoch, "10.0.0.1:10911")
    follower.broker.replica.received(data, begin, leader.broker.replica.epoch, 0)


def where(reply: RemotingCommand) -> tuple[int, str]:
    return reply.code, reply.ext_fields["nextBeginOffset"]


def filled(make_broker: MakeBroker) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """A leader with ten messages in queue 0, and its follower."""
    leader, follower = pair(make_broker)
    leader.create_topic("orders")
    for group in ("g", "late"):
        leader.create_group(group)
    store(leader, 10)
    return leader, follower


def after_a_loss(make_broker: MakeBroker, *, committed: int | None) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """The new leader and the old one. Ten messages both had, seven are lost, and twenty have come since: a consumer that had
    read up to 17 finds others there.
    """
    old, new = filled(make_broker)
    if committed is not None:
        commit(old, committed)
    replicate(old, new)
    store(old, LOST)
    promote(new, old, loses=True)
    store(new, 20)
    return new, old


def test_a_consumer_goes_back_to_what_its_group_has_committed_though_the_queue_has_grown_past_it(
    make_broker: MakeBroker,
) -> None:
    new, _ = after_a_loss(make_broker, committed=10)
    assert where(pull(new, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    assert where(pull(new, 10)) == (ResponseCode.SUCCESS, "30")


def test_what_it_commits_before_it_has_gone_back_does_not_count(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=10)
    commit(new, 17)
    assert committed(new) == 10
    pull(new, 17, consumed=17)
    commit(new, 17)
    assert committed(new) == 10


def test_after_a_promotion_that_loses_nothing_it_goes_on_where_it_is(make_broker: MakeBroker) -> None:
    old, new = filled(make_broker)
    commit(old, 4)
    replicate(old, new)
    promote(new, old)
    store(new, 20)
    assert where(pull(new, 10, consumed=9)) == (ResponseCode.SUCCESS, "30")
    assert committed(new) == 9


def test_a_group_that_had_committed_nothing_goes_back_to_where_the_queue_ended(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    assert where(pull(new, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    assert committed(new) == -1
    pull(new, 10)
    commit(new, 30)
    assert committed(new) == 30


def test_nor_does_its_commit_count_before_it_has_read_what_is_there_now(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    assert "pull again" in (commit(new, 17).remark or "")
    assert committed(new) == -1


def test_a_new_group_may_begin_at_the_end_that_it_was_told(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    peer = RecordingPeer()
    told = new.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="orders", queue_id=0), peer=peer)
    assert told.ext_fields["offset"] == "30"
    store(new, 1)
    assert where(pull(new, 30, group="late", peer=peer)) == (ResponseCode.SUCCESS, "31")
    assert where(pull(new, 31, consumed=31, group="late"))[0] == ResponseCode.PULL_NOT_FOUND
    assert committed(new, "late") == 31


def test_who_commits_nothing_reads_where_it_likes(make_broker: MakeBroker) -> None:
    """A Spark job by its checkpoint, or a broadcast consumer by its own file."""
    new, _ = after_a_loss(make_broker, committed=None)
    assert where(pull(new, 17)) == (ResponseCode.SUCCESS, "30")


def test_the_leader_after_the_next_still_sends_it_back(make_broker: MakeBroker) -> None:
    """It slept through the first one."""
    new, old = after_a_loss(make_broker, committed=10)
    replicate(new, old)
    promote(old, new)
    assert where(pull(old, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def test_and_does_so_where_its_group_had_committed_nothing(make_broker: MakeBroker) -> None:
    new, old = after_a_loss(make_broker, committed=None)
    replicate(new, old)
    promote(old, new)
    assert where(pull(old, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")


@pytest.mark.parametrize("durable", [True, False])
def test_a_leader_that_is_restarted_sends_no_one_back_again_once_that_was_durable(
    make_broker: MakeBroker, durable: bool
) -> None:
    new, _ = after_a_loss(make_broker, committed=10)
    loss = new.broker.replica.epochs.entries[-1].start_offset
    assert new.broker.replica.saved.lacks_shown_from == loss
    if durable:
        new.broker.metadata_log.note_sent_back()
    assert new.broker.replica.saved.lacks_shown_from == (None if durable else loss)


def test_what_consumers_committed_at_a_follower_that_has_not_heard_of_the_loss_is_not_taken_over(
    make_broker: MakeBroker,
) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    before = ConsumerOffsetSerializeWrapper(offset_table={"orders@g": {0: 17}})
    new.broker.consumer_offsets.merge(before, new.broker.unproven_offsets.is_proven)
    assert committed(new) == -1


def test_nor_is_what_was_committed_at_a_later_leader_while_it_followed(make_broker: MakeBroker) -> None:
    """Not even as far as it is surely true: the group would have an offset by it, and its next commit would be believed."""
    new, old = after_a_loss(make_broker, committed=None)
    replicate(new, old)
    old.broker.consumer_offsets.hint("orders", "g", 0, 17)
    promote(old, new)
    assert committed(old) == -1


@pytest.mark.parametrize("messages", [0, 10])
def test_what_was_committed_at_the_new_leader_while_it_followed_counts_up_to_where_its_queue_ends(
    make_broker: MakeBroker, messages: int
) -> None:
    old, new = filled(make_broker)
    if messages:
        replicate(old, new)
    store(old, LOST)
    new.broker.consumer_offsets.hint("orders", "g", 0, 17)
    promote(new, old, loses=True)
    assert committed(new) == messages


def test_whoever_leads_next_sends_them_back_where_the_first_one_could_not_say_so_in_time(
    make_broker: MakeBroker,
) -> None:
    """It died when its epoch's record was on its way, and nothing after it."""
    old, new = filled(make_broker)
    commit(old, 10)
    replicate(old, new)
    epoch = new.broker.replica.epoch + 1
    now = (new.clock.monotonic(), new.clock.time_ms())
    new.broker.replica.promote(epoch - 1, epoch, *now, with_incomplete_log=True)
    record_only(new, old)
    promote(old, new)
    store(old, 20)
    assert where(pull(old, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def test_a_committing_client_that_is_late_to_obey_is_sent_back_all_the_same(make_broker: MakeBroker) -> None:
    """The answer was lost, or the client stood still: what it goes on from is not what is there now."""
    new, _ = after_a_loss(make_broker, committed=10)
    pull(new, 17, consumed=17)
    new.clock.advance(120.0)
    assert where(pull(new, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    assert committed(new) == 10


def test_a_lite_consumer_is_sent_back_once_a_commit_of_its_was_not_taken(make_broker: MakeBroker) -> None:
    """Its pulls do not say that it commits."""
    new, _ = after_a_loss(make_broker, committed=None)
    assert where(pull(new, 17)) == (ResponseCode.SUCCESS, "30")
    commit(new, 30)
    assert where(pull(new, 30)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    pull(new, 10)
    commit(new, 30)
    assert committed(new) == 30


def test_a_new_group_that_says_at_once_that_it_commits_may_begin_at_the_end_too(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    peer = RecordingPeer()
    new.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="orders", queue_id=0), peer=peer)
    assert where(pull(new, 30, consumed=30, group="late", peer=peer))[0] == ResponseCode.PULL_NOT_FOUND
    assert committed(new, "late") == 30


def test_of_a_queue_that_is_not_there_no_beginning_is_remembered(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    new.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic="x" * 200, queue_id=7))
    assert new.broker.unproven_offsets._beginnings == {}


def test_a_hint_of_its_own_makes_a_leader_believe_no_other(make_broker: MakeBroker) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    new.broker.consumer_offsets.hint("orders", "g", 0, 3)
    losses = new.broker.consumer_offsets.losses
    theirs = ConsumerOffsetSerializeWrapper(offset_table={"orders@g": {0: 17}}, losses=losses)
    new.broker.consumer_offsets.merge(theirs, new.broker.unproven_offsets.is_proven)
    assert new.broker.consumer_offsets.query("orders", "g", 0) == 3


def test_where_the_disk_cannot_be_read_no_hint_is_believed_and_the_replica_leads_all_the_same(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = after_a_loss(make_broker, committed=None)
    replicate(new, old)
    old.broker.consumer_offsets.hint("orders", "g", 0, 3)

    def unreadable(*_: object) -> int:
        raise StoreError("the disk cannot be read")

    monkeypatch.setattr(old.store, "queue_offset_at", unreadable)
    promote(old, new)
    assert committed(old) == -1
    assert old.broker.consumer_offsets.losses == new.broker.consumer_offsets.losses


def test_a_replica_that_trusted_its_own_end_sends_consumers_back(make_broker: MakeBroker) -> None:
    old, new = filled(make_broker)
    commit(old, 10)
    replicate(old, new)
    new.broker.replica.trust_own_end()
    promote(new, old)
    assert new.broker.consumer_offsets.pending_reset("orders", "g", 0) == 10


def gone_back(make_broker: MakeBroker, *, before: int | None) -> BrokerUnderTest:
    """After a loss a group has consumed the five messages that had come; since then twenty more have."""
    old, new = filled(make_broker)
    if before is not None:
        commit(old, before)
    replicate(old, new)
    store(old, LOST)
    promote(new, old, loses=True)
    store(new, 5)
    pull(new, 17, consumed=17)
    pull(new, 10)
    commit(new, 15)
    assert committed(new) == 15
    store(new, 20)
    return new


@pytest.mark.parametrize("before", [None, 10])
def test_a_commit_that_was_sent_before_the_group_went_back_and_comes_late_does_not_count(
    make_broker: MakeBroker, before: int | None
) -> None:
    new = gone_back(make_broker, before=before)
    assert "pull again" in (commit(new, 17).remark or "")
    assert committed(new) == 15
    assert where(pull(new, 15, consumed=15)) == (ResponseCode.SUCCESS, "35")
    commit(new, 17)
    assert committed(new) == 17


def test_after_two_minutes_no_commit_is_late_and_a_member_may_have_read_elsewhere(make_broker: MakeBroker) -> None:
    new = gone_back(make_broker, before=10)
    new.clock.advance(120.0)
    commit(new, 35)
    assert committed(new) == 35


def test_a_group_that_has_just_gone_back_is_not_told_to_read_from_a_slave(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader would not see how far it gets, and take none of its commits."""
    new = gone_back(make_broker, before=10)
    monkeypatch.setattr(new.broker.read_split, "suggest", lambda *_: 1)
    assert pull(new, 15).ext_fields["suggestWhichBrokerId"] == "0"
    new.clock.advance(120.0)
    assert pull(new, 15).ext_fields["suggestWhichBrokerId"] == "1"


def test_an_operators_reset_after_a_loss_counts_as_what_the_group_was_told(make_broker: MakeBroker) -> None:
    new = gone_back(make_broker, before=10)
    new.broker.consumer_offsets.reset("orders", "g", {0: 30})
    assert where(pull(new, 15)) == (ResponseCode.PULL_OFFSET_MOVED, "30")
    assert where(pull(new, 30, consumed=30)) == (ResponseCode.SUCCESS, "35")
    assert committed(new) == 30


def test_a_member_that_was_away_while_another_went_back_goes_back_too(make_broker: MakeBroker) -> None:
    """It has its old messages at hand; what it committed after two minutes passed over two messages."""
    new = gone_back(make_broker, before=10)
    assert where(pull(new, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "15")
    assert committed(new) == 15


def test_a_group_without_an_offset_that_goes_back_late_is_looked_after_from_then_on(make_broker: MakeBroker) -> None:
    old, new = filled(make_broker)
    replicate(old, new)
    store(old, LOST)
    promote(new, old, loses=True)
    pull(new, 10)  # one member waits here
    new.clock.advance(121.0)
    store(new, 5)
    assert where(pull(new, 17, consumed=17)) == (ResponseCode.PULL_OFFSET_MOVED, "10")
    pull(new, 10)
    commit(new, 15)
    store(new, 20)
    commit(new, 17)
    assert committed(new) == 15


def test_a_group_that_commits_nothing_reads_from_slaves_again_after_two_minutes(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    monkeypatch.setattr(new.broker.read_split, "suggest", lambda *_: 1)
    assert pull(new, 10).ext_fields["suggestWhichBrokerId"] == "0"
    new.clock.advance(120.0)
    assert pull(new, 10).ext_fields["suggestWhichBrokerId"] == "1"


def test_what_retention_has_deleted_since_is_in_front_of_no_one(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new group that begins at the first message that is left is not sent back to where there is none any more."""
    new, _ = after_a_loss(make_broker, committed=None)
    pull(new, 10, group="late")
    monkeypatch.setattr(new.store, "min_offset", lambda *_: 20)
    commit(new, 20)
    assert committed(new) == 20


def test_a_group_whose_first_message_takes_long_reads_from_the_leader_until_it_has_committed(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, _ = after_a_loss(make_broker, committed=None)
    monkeypatch.setattr(new.broker.read_split, "suggest", lambda *_: 1)
    commit(new, 17)
    pull(new, 17, consumed=17)
    pull(new, 10)
    new.clock.advance(121.0)
    assert pull(new, 10).ext_fields["suggestWhichBrokerId"] == "0"
    commit(new, 11)
    assert pull(new, 12).ext_fields["suggestWhichBrokerId"] == "1"


def test_where_someone_may_have_led_unseen_a_group_without_an_offset_begins_again(make_broker: MakeBroker) -> None:
    """Its log may have left this one anywhere: what lies in front of where this one ended need not be what the group has read."""
    old, new = filled(make_broker)
    replicate(old, new)
    promote(new, old, loses=True, lacks_an_epoch=True)
    assert where(pull(new, 10, consumed=10)) == (ResponseCode.PULL_OFFSET_MOVED, "0")
    commit(new, 10)
    assert committed(new) == -1
    pull(new, 0)
    commit(new, 10)
    assert committed(new) == 10


def test_so_it_does_with_the_next_leader_that_has_but_the_record_of_that(make_broker: MakeBroker) -> None:
    old, new = filled(make_broker)
    replicate(old, new)
    promote(new, old, loses=True, lacks_an_epoch=True)
    record_only(new, old)
    promote(old, new)
    assert where(pull(old, 10, consumed=10)) == (ResponseCode.PULL_OFFSET_MOVED, "0")


@pytest.mark.parametrize("lost", [{"log_may_be_incomplete": True}, {"joined": False}], ids=["power", "disk"])
def test_one_that_leads_again_by_the_word_of_one_that_may_have_lost_more_sends_consumers_back(
    make_broker: MakeBroker, lost: dict[str, bool]
) -> None:
    """That one may have led meanwhile, and a power cut may have taken what it showed, or its disk is a new one."""
    old, new = filled(make_broker)
    commit(old, 10)
    replicate(old, new)
    new.broker.replica._save(**lost)
    old.broker.replica.stop_leading()
    replica = old.broker.replica
    epoch = replica.begin_reclaim(new.broker.replica.epoch)
    answer = new.ask(
        HighwaterRequestCode.REPLICA_RECLAIM,
        ReplicaReclaimRequestHeader(
            group=replica.settings.group,
            replica_id=replica.settings.replica_id,
            epoch=epoch,
            last_epoch=replica.epochs.last_epoch,
            end_offset=old.store.end_offset,
            address=replica.settings.address,
        ),
    ).header(ReplicaReclaimResponseHeader)
    assert (answer.granted, answer.lacks_shown) == (True, True)
    replica.end_reclaim()
    lacks = Lacks(shown=answer.lacks_shown, an_epoch=answer.lacks_an_epoch)
    replica.reclaimed(epoch, old.clock.monotonic(), old.clock.time_ms(), lacks=lacks)
    old.broker.role_changed()
    assert where(pull(old, 12, consumed=12)) == (ResponseCode.PULL_OFFSET_MOVED, "10")


def test_what_a_follower_heard_is_not_believed_when_it_leads_after_a_loss(make_broker: MakeBroker) -> None:
    """The group may have read that from a replica with another log; what it committed before is what this one knows."""
    old, new = filled(make_broker)
    commit(old, 4)
    replicate(old, new)
    new.broker.consumer_offsets.hint("orders", "g", 0, 9)
    promote(new, old, loses=True)
    assert committed(new) == 4
    assert where(pull(new, 9, consumed=9)) == (ResponseCode.PULL_OFFSET_MOVED, "4")
