"""Topics that keep their messages for less than the broker does: what expires, for whom it is gone, and that it stays so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from brokerd.metadata_record import MetadataRecord
from brokerd.metering.samples import take_samples
from brokerd.store import BoundaryType, GetMessageStatus, MessageStore
from brokerd.topic_retention import KeptMessages, Retention, Slice, kept_too_long, oldest_beyond, retention_of
from mqwire.bodies import ConsumeStats, TopicConfig
from mqwire.codes import RequestCode, ResponseCode
from mqwire.headers_group import GetConsumeStatsRequestHeader
from mqwire.headers_pull import ViewMessageRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.metered_broker import pull
from tests.brokerd.replicated_broker import pair, promote, replicate
from tests.brokerd.test_query_by_key import SMALL, bodies, index_all, query
from tests.brokerd.test_send_back import send_back
from tests.brokerd.test_topic_admin import create, delete

HOUR_S = 3600


def expire(broker: BrokerUnderTest) -> None:
    broker.store.flush()
    broker.broker.held_changed()
    trio.run(broker.broker.topic_retention.look)
    broker.store.flush()
    broker.broker.held_changed()


def bounds(broker: BrokerUnderTest, queue_id: int = 0, topic: str = "orders") -> tuple[int, int]:
    return broker.store.min_offset(topic, queue_id), broker.store.max_offset(topic, queue_id)


def stored_bytes(broker: BrokerUnderTest) -> dict[str, int]:
    stored = broker.broker.metering.stored_bytes
    for _ in stored.update():
        pass
    return stored.by_topic()


@pytest.fixture
def aged(broker: BrokerUnderTest) -> BrokerUnderTest:
    """A topic that keeps one hour, with three messages of an hour ago and two of now."""
    return with_aged_messages(broker)


def with_aged_messages(broker: BrokerUnderTest) -> BrokerUnderTest:
    create(broker, "orders", queues=1, attributes="+reserve.time=1")
    for number in range(3):
        broker.store_message("orders", b"%d" % number, properties={"KEYS": "k"})
    broker.clock.advance(HOUR_S + 61)
    for number in range(3, 5):
        broker.store_message("orders", b"%d" % number, properties={"KEYS": "k"})
    return broker


# --- by age ---


def test_messages_older_than_the_topics_hours_expire(aged: BrokerUnderTest) -> None:
    expire(aged)
    assert bounds(aged) == (3, 5)
    assert [message.body for message in aged.messages("orders")] == [b"3", b"4"]


def test_messages_that_are_young_enough_stay(aged: BrokerUnderTest) -> None:
    aged.clock.advance(-62)
    expire(aged)
    assert bounds(aged) == (0, 5)


def test_what_is_due_for_less_than_a_minute_waits_for_the_rest(aged: BrokerUnderTest) -> None:
    """Else each look would write a record."""
    aged.clock.advance(-2)
    expire(aged)
    assert bounds(aged) == (0, 5)


def test_a_queue_may_expire_to_its_end(aged: BrokerUnderTest) -> None:
    aged.clock.advance(2 * HOUR_S)
    expire(aged)
    assert bounds(aged) == (5, 5)
    assert aged.store_message("orders").queue_offset == 5


def ten_hours_of_messages(broker: BrokerUnderTest, *, behind: range = range(0)) -> list[int]:
    """One each six minutes, for eleven hours, in a topic that keeps ten; during `behind` the clock is twelve hours behind."""
    create(broker, "orders", queues=1, attributes="+reserve.time=10")
    positions = []
    for number in range(110):
        hours = -12 if number in behind else 0
        broker.clock.wall_ms += hours * HOUR_S * 1000
        positions.append(broker.store_message("orders", b"%d" % number).physical_offset)
        broker.clock.wall_ms -= hours * HOUR_S * 1000
        broker.clock.advance(360)
    return positions


def test_all_that_is_older_than_ten_hours_expires_at_once(broker: BrokerUnderTest) -> None:
    ten_hours_of_messages(broker)
    expire(broker)
    assert bounds(broker) == (10, 110)


@pytest.mark.parametrize("rotten", [5, 9, 10, 55])
def test_a_record_that_cannot_be_read_takes_no_younger_ones_with_it(broker: BrokerUnderTest, rotten: int) -> None:
    positions = ten_hours_of_messages(broker)
    broker.store.flush()
    (log,) = (broker.folder / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(positions[rotten] + 5)
        file.write(b"\xff")
    broker.restart()
    expire(broker)
    first, end = bounds(broker)
    assert (9 <= first <= 10, end) == (True, 110)


def test_a_stretch_of_records_that_cannot_be_read_holds_up_no_ones_end(broker: BrokerUnderTest) -> None:
    positions = ten_hours_of_messages(broker)
    broker.store.flush()
    (log,) = (broker.folder / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        for position in positions[:80]:
            file.seek(position + 5)
            file.write(b"\xff")
    broker.restart()
    broker.clock.advance(9 * HOUR_S)
    expire(broker)
    assert bounds(broker) == (100, 110)


@pytest.mark.parametrize("behind", [range(54, 57), range(12, 110)])
def test_times_of_a_clock_that_was_behind_take_no_younger_messages_with_them(
    broker: BrokerUnderTest, behind: range
) -> None:
    ten_hours_of_messages(broker, behind=behind)
    expire(broker)
    assert bounds(broker) == (10, 110)


def test_another_topic_keeps_what_the_broker_keeps(aged: BrokerUnderTest) -> None:
    aged.create_topic("payments", queues=1)
    aged.store_message("payments")
    aged.clock.advance(2 * HOUR_S)
    expire(aged)
    assert bounds(aged, topic="payments") == (0, 1)


def test_a_pull_of_an_expired_offset_is_sent_to_the_first_that_is_kept(aged: BrokerUnderTest) -> None:
    expire(aged)
    reply = pull(aged, offset=1)
    assert reply.code == ResponseCode.PULL_OFFSET_MOVED
    assert (reply.ext_fields["nextBeginOffset"], reply.ext_fields["minOffset"]) == ("3", "3")


def test_a_search_by_time_begins_at_the_first_that_is_kept(aged: BrokerUnderTest) -> None:
    expire(aged)
    assert aged.store.offset_by_time("orders", 0, 0) == 3
    assert aged.store.offset_by_time("orders", 0, 0, BoundaryType.UPPER) == 3


def test_what_has_expired_is_no_lag(aged: BrokerUnderTest) -> None:
    aged.create_group("g")
    aged.broker.consumer_offsets.commit("orders", "g", 0, 1, "somewhere")
    expire(aged)
    (row,) = trio.run(take_samples, aged.broker, {}).lag
    assert row.lag_messages == 2


def test_the_statistics_of_a_group_count_from_the_first_message_that_is_kept(aged: BrokerUnderTest) -> None:
    aged.create_group("g")
    aged.broker.consumer_offsets.commit("orders", "g", 0, 1, "somewhere")
    expire(aged)
    reply = aged.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="g"))
    (found,) = ConsumeStats.from_json(reply.body).offset_table.values()
    assert (found.consumer_offset, found.broker_offset) == (3, 5)


def test_what_has_expired_is_not_found_by_its_id(aged: BrokerUnderTest) -> None:
    position = aged.store.physical_offset_of("orders", 0, 0)
    assert position is not None
    expire(aged)
    reply = aged.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset=position))
    assert reply.code == ResponseCode.SYSTEM_ERROR


def test_what_has_expired_is_not_found_by_its_key(make_broker: MakeBroker) -> None:
    broker = with_aged_messages(make_broker(**SMALL))
    expire(broker)
    index_all(broker)
    assert bodies(query(broker, "k")) == [b"3", b"4"]


def test_a_consumer_may_send_back_what_has_expired_in_its_hands(aged: BrokerUnderTest) -> None:
    aged.create_group("g")
    position = aged.store.physical_offset_of("orders", 0, 0)
    assert position is not None
    expire(aged)
    assert send_back(aged, position).code == ResponseCode.SUCCESS


def test_what_has_expired_is_no_longer_among_the_stored_bytes(aged: BrokerUnderTest) -> None:
    before = stored_bytes(aged)["orders"]
    expire(aged)
    after = stored_bytes(aged)["orders"]
    assert after == sum(message.size_bytes for message in aged.messages("orders")) < before


def test_a_longer_time_does_not_bring_expired_messages_back(aged: BrokerUnderTest) -> None:
    expire(aged)
    create(aged, "orders", queues=1, attributes="+reserve.time=48")
    expire(aged)
    assert bounds(aged) == (3, 5)


def test_without_its_own_time_a_topic_expires_no_more(aged: BrokerUnderTest) -> None:
    create(aged, "orders", queues=1, attributes="-reserve.time")
    expire(aged)
    assert bounds(aged) == (0, 5)


def test_a_topic_made_again_shows_its_new_messages(aged: BrokerUnderTest) -> None:
    expire(aged)
    delete(aged, "orders")
    create(aged, "orders", queues=1)
    assert aged.store_message("orders", b"new").queue_offset == 5
    assert [message.body for message in aged.messages("orders")] == [b"new"]


def test_a_look_that_finds_nothing_writes_nothing(aged: BrokerUnderTest) -> None:
    expire(aged)
    end_offset = aged.store.end_offset
    expire(aged)
    assert aged.store.end_offset == end_offset


def test_a_topic_of_more_queues_than_a_record_has_room_for_expires_whole(make_broker: MakeBroker) -> None:
    broker = make_broker(maxMessageSize="1024")
    create(broker, "orders", queues=200, attributes="+reserve.time=1")
    for queue_id in range(200):
        broker.store_message("orders", queue_id=queue_id)
    broker.clock.advance(HOUR_S + 61)
    expire(broker)
    assert {bounds(broker, queue_id) for queue_id in range(200)} == {(1, 1)}


# --- by size ---


def test_the_oldest_messages_of_all_queues_go_until_the_rest_fits(broker: BrokerUnderTest) -> None:
    sizes = []
    create(broker, "orders", queues=2, attributes="+reserve.bytes=1")
    for number in range(8):
        sizes.append(broker.store_message("orders", b"x" * 100, queue_id=number % 2).size_bytes)
    create(broker, "orders", queues=2, attributes=f"+reserve.bytes={sum(sizes[3:])}")
    expire(broker)
    assert (bounds(broker, 0), bounds(broker, 1)) == ((2, 4), (1, 4)), "the messages 0, 1 and 2 are gone"
    assert stored_bytes(broker)["orders"] == sum(sizes[3:])


def test_a_topic_within_its_bytes_keeps_all(broker: BrokerUnderTest) -> None:
    create(broker, "orders", queues=1, attributes="+reserve.bytes=1000000")
    broker.store_message("orders")
    expire(broker)
    assert bounds(broker) == (0, 1)


def test_an_expiry_that_is_confirmed_while_bytes_are_counted_takes_no_message_more(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it took was still among the bytes that were too many, and the next message went for it."""
    create(broker, "orders", queues=1, attributes="+reserve.bytes=1000000")
    sizes = [broker.store_message("orders", b"x" * 100).size_bytes for _ in range(4)]
    create(broker, "orders", queues=1, attributes=f"+reserve.bytes={sum(sizes[1:])}")
    retention = broker.broker.topic_retention
    count_stored = retention._count_stored

    async def and_confirm() -> None:
        await count_stored()
        broker.store.keep_from("orders", 0, 1)

    monkeypatch.setattr(retention, "_count_stored", and_confirm)
    expire(broker)
    assert bounds(broker) == (1, 4)


def test_bytes_that_someone_else_is_counting_just_now_expire_nothing_more(broker: BrokerUnderTest) -> None:
    """Metering counts beside it: the first message that counted was of now, and the bytes of before."""
    create(broker, "orders", queues=1, attributes="+reserve.bytes=1000000")
    sizes = [broker.store_message("orders", b"x" * 100).size_bytes for _ in range(4)]
    create(broker, "orders", queues=1, attributes=f"+reserve.bytes={sum(sizes[1:])}")
    broker.store.flush()
    broker.broker.held_changed()
    stored = broker.broker.metering.stored_bytes
    stored_bytes(broker)
    broker.store.keep_from("orders", 0, 1)
    for _ in stored.update():
        if stored.first_of("orders", 0) == 1:
            break
    assert stored.bytes_of("orders") == sum(sizes[1:]) < stored.by_topic()["orders"]
    assert list(broker.broker.topic_retention._expired("orders", [0], Retention(None, sum(sizes[1:])))) in ([], [{}])


def test_a_limit_that_is_raised_during_a_look_holds(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was answered, and the messages went by the old one."""
    create(broker, "sized", queues=1, attributes="+reserve.bytes=1000000")
    with_aged_messages(broker)
    retention = broker.broker.topic_retention
    expired = retention._expired

    def and_raise(*arguments: Any) -> Iterator[dict[int, int]]:
        yield from expired(*arguments)
        create(broker, "orders", queues=1, attributes="+reserve.time=48")

    monkeypatch.setattr(retention, "_expired", and_raise)
    expire(broker)
    assert bounds(broker) == (0, 5)


def test_a_limit_that_is_raised_while_bytes_are_counted_holds(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "sized", queues=1, attributes="+reserve.bytes=1000000")
    with_aged_messages(broker)
    retention = broker.broker.topic_retention

    async def and_raise() -> None:
        create(broker, "orders", queues=1, attributes="+reserve.time=48")

    monkeypatch.setattr(retention, "_count_stored", and_raise)
    expire(broker)
    assert bounds(broker) == (0, 5)


def test_time_and_size_hold_together(aged: BrokerUnderTest) -> None:
    size = aged.store_message("orders", b"5").size_bytes
    create(aged, "orders", queues=1, attributes=f"+reserve.bytes={size}")
    expire(aged)
    assert bounds(aged) == (5, 6)


def test_the_oldest_slices_go_first_whichever_queue_they_are_of() -> None:
    queues = {
        0: iter([Slice(0, 0, 10, 50), Slice(200, 0, 20, 50)]),
        1: iter([Slice(100, 1, 7, 50), Slice(300, 1, 9, 50)]),
    }
    *_, kept_from = oldest_beyond(101, queues)
    assert kept_from == {0: 20, 1: 7}


def test_what_is_within_its_bytes_is_not_read() -> None:
    messages = iter([Slice(0, 0, 10, 50)])
    assert list(oldest_beyond(0, {0: messages})) == []
    assert next(messages).end_offset == 10


def test_no_step_reads_a_slice_of_more_than_one_queue() -> None:
    """Others run between the steps, and a topic may have a thousand queues."""
    read: list[int] = []

    def messages(queue_id: int) -> Iterator[Slice]:
        read.append(queue_id)
        yield Slice(queue_id, queue_id, 1, 50)

    steps = oldest_beyond(1, {queue_id: messages(queue_id) for queue_id in range(3)})
    assert [(next(steps), len(read)) for _ in range(3)] == [({}, 1), ({}, 2), ({}, 3)]


class QueuesSeen(trio.abc.Instrument):
    """How many queues' oldest messages had been looked at when each turn of a task began."""

    def __init__(self, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.at_turns: list[int] = []
        self._expired_to = store.expired_to
        monkeypatch.setattr(store, "expired_to", self._counting)

    def _counting(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        self.count += 1
        return self._expired_to(topic, queue_id, timestamp_ms)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.at_turns.append(self.count)


def test_others_run_after_each_queue_of_a_topic(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    create(broker, "orders", queues=8, attributes="+reserve.time=1")
    for queue_id in range(8):
        broker.store_message("orders", queue_id=queue_id)
    broker.store.flush()
    broker.broker.held_changed()
    seen = QueuesSeen(broker.store, monkeypatch)
    trio.run(broker.broker.topic_retention.look, instruments=[seen])
    assert set(range(9)) <= set(seen.at_turns)


# --- restarts and replicas ---


def test_what_has_expired_stays_so_after_a_restart(aged: BrokerUnderTest) -> None:
    expire(aged)
    aged.restart()
    assert bounds(aged) == (3, 5)


def test_what_has_expired_stays_so_after_a_crash(aged: BrokerUnderTest) -> None:
    expire(aged)
    aged.store.flush_consume_queues()
    aged.crash()
    assert bounds(aged) == (3, 5)


def test_what_has_expired_stays_so_when_the_log_is_read_from_a_later_base(aged: BrokerUnderTest) -> None:
    expire(aged)
    aged.broker.metadata_log.write_base()
    aged.restart()
    assert bounds(aged) == (3, 5)


def test_a_follower_has_what_its_leader_has(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker)
    with_aged_messages(leader)
    expire(leader)
    replicate(leader, follower)
    assert bounds(follower) == bounds(leader) == (3, 5)


def test_a_promoted_follower_goes_on_where_its_leader_was(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker)
    with_aged_messages(leader)
    expire(leader)
    replicate(leader, follower)
    promote(follower, leader)
    assert bounds(follower) == (3, 5)
    replicate(follower, leader)
    assert bounds(leader) == (3, 5)


def test_readers_see_an_expiry_once_it_is_confirmed(aged: BrokerUnderTest) -> None:
    """A failover before that would take it back."""
    kept = KeptMessages(aged.store)
    kept.apply(MetadataRecord(kept_from={"orders": {0: 3}}), end_offset=100)
    kept.confirmed(99)
    assert bounds(aged)[0] == 0
    kept.confirmed(100)
    assert bounds(aged)[0] == 3


def test_an_expiry_that_was_truncated_is_taken_back(aged: BrokerUnderTest) -> None:
    kept = KeptMessages(aged.store)
    kept.apply(MetadataRecord(kept_from={"orders": {0: 3}}), end_offset=100)
    kept.rebuild([MetadataRecord(kept_from={"orders": {0: 2}})])
    kept.confirmed(1000)
    assert bounds(aged)[0] == 2


def test_what_a_deleted_topic_had_expired_hides_nothing_of_a_later_one(aged: BrokerUnderTest) -> None:
    """A follower that catches up has both records before either is confirmed."""
    kept = KeptMessages(aged.store)
    kept.apply(MetadataRecord(kept_from={"orders": {0: 3}, "bills": {0: 1}}), end_offset=100)
    kept.apply(MetadataRecord(deleted_topics=["orders"]), end_offset=200)
    kept.confirmed(200)
    assert bounds(aged) == (0, 5)


def test_no_expiry_moves_readers_past_what_is_confirmed(aged: BrokerUnderTest) -> None:
    """After a start the log may hold both, and another leader's log neither: a consumer would be sent there and back."""
    fourth = aged.store.physical_offset_of("orders", 0, 3)
    assert fourth is not None
    KeptMessages(aged.store).rebuild([MetadataRecord(kept_from={"orders": {0: 5}})])
    aged.store.confirm_offset = fourth
    assert bounds(aged) == (3, 3)
    aged.store.confirm_offset = None
    assert bounds(aged) == (5, 5)


def test_a_follower_expires_nothing_by_itself(make_broker: MakeBroker) -> None:
    leader, follower = pair(make_broker)
    with_aged_messages(leader)
    replicate(leader, follower)
    expire(follower)
    assert bounds(follower) == (0, 5)


# --- what may be asked for ---


def test_a_topic_cannot_keep_more_than_the_brokers_files(make_broker: MakeBroker) -> None:
    broker = make_broker(fileReservedTime="48")
    assert create(broker, "orders", attributes="+reserve.time=48").code == ResponseCode.SUCCESS
    reply = create(broker, "orders", attributes="+reserve.time=49")
    assert reply.code == ResponseCode.INVALID_PARAMETER
    assert reply.remark == (
        "reserve.time is 49 hours, but this broker deletes its files after fileReservedTime=48 hours: keep the topic for"
        " 48 hours at most, or raise fileReservedTime"
    )


def test_a_topic_from_before_fileReservedTime_was_lowered_can_still_be_changed(broker: BrokerUnderTest) -> None:
    broker.broker.topic_configs.put(TopicConfig(topic_name="orders", attributes={"reserve.time": "1000"}))
    assert create(broker, "orders", queues=8).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "attribute",
    ["reserve.time=0", "reserve.time=soon", "reserve.time=1.5", "reserve.bytes=0", f"reserve.bytes={2**60}"],
)
def test_a_limit_that_is_none_is_refused(broker: BrokerUnderTest, attribute: str) -> None:
    assert create(broker, "orders", attributes=f"+{attribute}").code == ResponseCode.INVALID_PARAMETER


def test_minus_one_is_no_limit_of_the_topics_own() -> None:
    assert retention_of({"reserve.time": "-1", "reserve.bytes": "-1"}) is None
    assert kept_too_long({"reserve.time": "-1"}, 72) is None


def test_what_an_older_version_took_unread_counts_for_nothing() -> None:
    assert retention_of({"reserve.time": "a while"}) is None


def test_a_pull_of_a_kept_offset_is_served(aged: BrokerUnderTest) -> None:
    expire(aged)
    assert aged.store.get_messages("orders", 0, 3, 10, 10_000).status is GetMessageStatus.FOUND
