"""Delayed messages: they wait in SCHEDULE_TOPIC_XXXX, come when they are due, and survive restarts and crashes."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from brokerd.config_file import UnreadableConfigFile
from brokerd.replies import Refusal
from brokerd.services.delay_level import DueHead
from brokerd.store import AppendResult, DiskFullError
from mqwire.bodies import DelayOffsetSerializeWrapper
from mqwire.codes import RequestCode
from mqwire.message import tags_code
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock
from tests.brokerd.replicated_broker import in_sync_pair, reclaim, replicate, settle

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def send(
    broker: BrokerUnderTest,
    body: bytes,
    level: int | str,
    *,
    topic: str = "orders",
    queue_id: int = 2,
    **properties: str,
) -> AppendResult:
    return broker.store_message(topic, body, queue_id=queue_id, properties={"DELAY": str(level), **properties})


def deliver(broker: BrokerUnderTest) -> None:
    while broker.broker.schedule.deliver_due():
        pass


def look(broker: BrokerUnderTest) -> None:
    """What the broker does each tenth of a second."""
    if broker.broker.delivers_messages:
        deliver(broker)


def damage_head(broker: BrokerUnderTest) -> int:
    """The record of the first message that waits in level 1 rots on the disk; returns where in the log it is."""
    offset = broker.messages(SCHEDULE_TOPIC, 0)[0].physical_offset
    with (broker.folder / "store" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(offset + 20)
        file.write(b"\xff" * 8)
    broker.store._reader.log_was_written_over()  # it was read long ago
    return offset


def bodies(broker: BrokerUnderTest, topic: str = "orders", queue_id: int = 2) -> list[bytes]:
    return [message.body for message in broker.messages(topic, queue_id)]


# --- the wait ---


def test_a_delayed_message_waits_in_its_levels_queue(broker: BrokerUnderTest) -> None:
    send(broker, b"later", 3)
    assert bodies(broker) == []
    (waiting,) = broker.messages(SCHEDULE_TOPIC, 2)
    assert (waiting.body, waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == (b"later", "orders", "2")


def test_a_level_above_the_highest_waits_in_the_highest(broker: BrokerUnderTest) -> None:
    send(broker, b"later", 99)
    (waiting,) = broker.messages(SCHEDULE_TOPIC, 17)
    assert waiting.properties["DELAY"] == "18"


def test_a_message_comes_in_a_queue_that_is_read_when_its_topic_has_fewer_than_it_had(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders", queues=8)
    send(broker, b"later", 3, queue_id=7)
    broker.create_topic("orders", queues=4)
    broker.clock.advance(11)
    deliver(broker)
    assert bodies(broker, queue_id=3) == [b"later"]


@pytest.mark.parametrize("level", [0, -1])
def test_a_level_of_0_or_less_does_not_wait(broker: BrokerUnderTest, level: int) -> None:
    send(broker, b"now", level)
    assert bodies(broker) == [b"now"]


def test_a_level_that_is_no_number_is_refused(broker: BrokerUnderTest) -> None:
    with pytest.raises(Refusal, match="delay level"):
        send(broker, b"x", "soon")


# --- delivery ---


def test_nothing_comes_before_its_time(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 2)
    clock.advance(4.999)
    deliver(broker)
    assert bodies(broker) == []


def test_a_message_comes_when_it_is_due(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 2)
    clock.advance(5)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_message_comes_once(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    clock.advance(100)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_delivered_message_keeps_what_its_sender_gave_it(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 1, TAGS="paid", KEYS="k1", UNIQ_KEY="u1", ключ="значение")
    clock.advance(1)
    deliver(broker)
    (message,) = broker.messages("orders", 2)
    properties = dict(message.properties)
    properties.pop("__CRC32#", None)
    assert properties == {
        "DELAY": "1",
        "TAGS": "paid",
        "KEYS": "k1",
        "UNIQ_KEY": "u1",
        "ключ": "значение",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
    }
    assert message.born_host == ("10.9.8.7", 1234)
    assert message.born_timestamp_ms == clock.time_ms() - 1000


def test_a_delivered_message_can_be_filtered_by_its_tag(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"a", 1, TAGS="paid")
    send(broker, b"b", 1, TAGS="open")
    clock.advance(1)
    deliver(broker)
    found = broker.store.get_messages("orders", 2, 0, 10, 10**6, accept=lambda code: code == tags_code("open"))
    assert found.count == 1


def test_a_message_that_waited_in_one_queue_after_undue_ones_comes_in_time(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker, b"long", 18)
    send(broker, b"short", 1)
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == [b"short"]


def test_messages_of_a_level_come_in_their_order_and_in_bulk(broker: BrokerUnderTest, clock: ManualClock) -> None:
    expected = []
    for number in range(1000):
        expected.append(b"%d" % number)
        send(broker, expected[-1], 1)
        clock.advance(0.001)
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == expected


def test_only_what_is_due_of_a_level_comes(broker: BrokerUnderTest, clock: ManualClock) -> None:
    for number in range(10):
        send(broker, b"%d" % number, 1)
        clock.advance(0.1)
    clock.advance(0.5)
    deliver(broker)
    assert bodies(broker) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_retried_message_is_delivered_to_its_retry_topic(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"again", 3, topic="%RETRY%g", queue_id=0)
    clock.advance(10)
    deliver(broker)
    assert bodies(broker, "%RETRY%g", 0) == [b"again"]


def test_a_clock_that_was_set_back_does_not_hold_messages_for_long(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 1)
    clock.wall_ms -= 3_600_000
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_round_looks_at_no_level_before_its_head_is_due(
    broker: BrokerUnderTest, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, b"later", 5)
    deliver(broker)
    monkeypatch.setattr(broker.store, "get_messages", lambda *_arguments, **_keywords: pytest.fail("it looked"))
    clock.advance(30)
    deliver(broker)


def test_a_full_disk_loses_nothing(
    broker: BrokerUnderTest, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, b"later", 1)
    clock.advance(1)

    def full(_messages: object, _counts: object, *, any_size: bool) -> None:
        raise DiskFullError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "append", full)
        with pytest.raises(DiskFullError):
            deliver(broker)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_maximum_size_that_became_lower_keeps_no_message_that_was_taken_before(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker, b"." * 2000, 1)
    broker.stop()
    with (broker.folder / "broker.conf").open("a") as conf:
        conf.write("maxMessageSize=1024\n")
    broker.start()
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == [b"." * 2000]


def test_a_record_that_names_no_real_topic_holds_up_no_one(broker: BrokerUnderTest, clock: ManualClock) -> None:
    broker.store_message(SCHEDULE_TOPIC, b"stray", queue_id=0)
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_damaged_message_holds_up_no_one_where_there_is_no_other_replica(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker, b"damaged", 1)
    send(broker, b"later", 1)
    damage_head(broker)
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_retention_deletes_no_message_that_waits(make_broker: MakeBroker, clock: ManualClock) -> None:
    broker = make_broker(
        mappedFileSizeCommitLog=str(64 * 1024),
        fileReservedTime="1",
        deleteWhen=";".join(f"{hour:02d}" for hour in range(24)),
    )
    fill_a_file(broker)
    send(broker, b"in two hours", 18)
    fill_a_file(broker)
    clock.advance(3 * 3600)
    fill_a_file(broker)
    broker.broker.metadata_log.keep_base_near()
    expire(broker)
    assert 0 < broker.store.min_physical_offset <= (broker.broker.schedule.first_waiting() or 0)
    deliver(broker)
    broker.store.flush()
    assert bodies(broker) == [b"in two hours"]
    before = broker.store.min_physical_offset
    expire(broker)
    assert broker.store.min_physical_offset > before


def fill_a_file(broker: BrokerUnderTest) -> None:
    for _ in range(70):
        broker.store_message("other", b"." * 1000)


def expire(broker: BrokerUnderTest) -> None:
    """A round of retention."""
    broker.store.flush()
    broker.store.flush_consume_queues()

    async def run() -> None:
        with trio.move_on_after(broker.config.clean_resource_interval_ms / 1000 + 1):
            await broker.broker.flush_service.run_retention()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


# --- restart ---


def test_progress_survives_a_graceful_restart(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"first", 1)
    clock.advance(1)
    deliver(broker)
    send(broker, b"second", 1)
    broker.restart()
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == [b"first", b"second"]


def test_what_waits_survives_a_crash(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 2)
    broker.store.flush()
    broker.crash()
    clock.advance(5)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_crash_repeats_what_was_delivered_since_the_last_persist(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    broker.store.flush()
    broker.crash()
    deliver(broker)
    assert bodies(broker) == [b"later", b"later"]


def test_progress_is_not_written_before_the_delivered_messages_are_durable(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker, b"later", 1)
    broker.store.flush()
    clock.advance(1)
    deliver(broker)
    broker.broker.schedule.persist()
    assert broker.broker.schedule.to_wrapper().offset_table == {}
    broker.store.flush()
    broker.broker.schedule.persist()
    assert broker.broker.schedule.to_wrapper().offset_table == {1: 1}


def test_the_file_is_rocketmqs(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    broker.stop()
    content = json.loads((broker.folder / "store" / "config" / "delayOffset.json").read_text())
    assert content["offsetTable"] == {"1": 1}
    assert content["dataVersion"]["counter"] == 1


def test_a_file_of_apaches_is_read(broker: BrokerUnderTest) -> None:
    broker.stop()
    folder = broker.folder / "store" / "config"
    (folder / "delayOffset.json").write_text(
        '{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":1},"offsetTable":{3:0,1:0}}'
    )
    broker.start()
    assert broker.broker.schedule.offsets == {3: 0, 1: 0}


@pytest.mark.parametrize("content", ["{", '{"offsetTable":{"1":-4}}', '{"offsetTable":{"0":4}}'])
def test_a_broken_file_refuses_to_start(broker: BrokerUnderTest, content: str) -> None:
    broker.stop()
    folder = broker.folder / "store" / "config"
    (folder / "delayOffset.json").write_text(content)
    (folder / "delayOffset.json.bak").unlink(missing_ok=True)
    with pytest.raises(UnreadableConfigFile, match=r"delayOffset\.json"):
        broker.start()


def test_an_offset_past_the_queues_end_is_corrected(broker: BrokerUnderTest, clock: ManualClock) -> None:
    broker.stop()
    folder = broker.folder / "store" / "config"
    (folder / "delayOffset.json").write_text('{"offsetTable":{"1":500}}')
    broker.start()
    deliver(broker)
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_an_offset_past_the_queues_end_passes_over_nothing_that_comes_later(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    """The log lost its end while this replica followed, and it was killed before it wrote that down."""
    send(broker, b"delivered", 1)
    clock.advance(1)
    deliver(broker)
    broker.stop()
    file = broker.folder / "store" / "config" / "delayOffset.json"
    file.write_text(file.read_text().replace('"offsetTable":{"1":1}', '"offsetTable":{"1":3,"2":3}'))
    broker.start()
    for number in range(4):
        send(broker, b"%d" % number, 1 + number % 2)
    clock.advance(5)
    deliver(broker)
    assert sorted(bodies(broker)) == [b"0", b"1", b"2", b"3", b"delivered"]


def test_a_level_that_the_configuration_has_lost_is_still_delivered(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    broker = make_broker()
    send(broker, b"later", 18)
    broker.stop()
    (broker.folder / "broker.conf").unlink()
    broker.keys = {"messageDelayLevel": "1s 5s"}
    broker.start()
    clock.advance(7200)
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_delivery_that_was_truncated_comes_again_although_no_master_has_said_so(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    """Whoever led again before it had asked the next leader never delivered that message."""
    send(broker, b"later", 1)
    broker.broker.store.flush()
    end_offset = broker.broker.store.end_offset
    clock.advance(1)
    deliver(broker)
    broker.broker.store.truncate(end_offset)
    broker.broker.schedule.log_was_truncated()
    deliver(broker)
    assert bodies(broker) == [b"later"]


def test_a_delivery_that_was_truncated_comes_again_after_what_could_not_be_delivered(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker, b"later", 1)
    broker.store_message(SCHEDULE_TOPIC, b"names no topic", queue_id=0)
    broker.broker.store.flush()
    end_offset = broker.broker.store.end_offset
    clock.advance(1)
    schedule = broker.broker.schedule
    schedule._damaged[1] = 1  # so that the first one is delivered by itself
    deliver(broker)
    broker.broker.store.truncate(end_offset)
    schedule.log_was_truncated()
    deliver(broker)
    assert bodies(broker) == [b"later"]


@pytest.mark.parametrize("kept", [1, 0])
def test_a_truncation_of_what_was_delivered_is_written_down_at_once(
    broker: BrokerUnderTest, clock: ManualClock, kept: int
) -> None:
    """The queue may have grown past that offset, by others' messages, when this replica starts again."""
    ends = [send(broker, body, 1).physical_offset for body in (b"kept", b"truncated")]
    clock.advance(1)
    deliver(broker)
    broker.store.flush()
    broker.broker.schedule.persist()
    broker.broker.store.truncate(ends[kept])
    broker.broker.schedule.log_was_truncated()
    file = broker.folder / "store" / "config" / "delayOffset.json"
    assert json.loads(file.read_text())["offsetTable"] == {"1": 0}


@pytest.mark.parametrize("restarts", ["before", "after", "twice after", "never"])
def test_a_delivery_that_was_safe_comes_again_where_an_unclean_promotion_has_truncated_it(
    broker: BrokerUnderTest, clock: ManualClock, restarts: str
) -> None:
    """Its progress was on the disk, and who led again before it had asked the next leader never delivered that message."""
    send(broker, b"earlier", 1)
    clock.advance(1)
    deliver(broker)
    send(broker, b"later", 1)
    broker.broker.store.flush()
    end_offset = broker.broker.store.end_offset
    clock.advance(1)
    deliver(broker)
    broker.broker.store.flush()
    broker.broker.schedule.persist()
    if restarts == "before":
        broker.crash()
    broker.broker.store.truncate(end_offset)
    if "after" in restarts:
        broker.crash()
    else:
        broker.broker.schedule.log_was_truncated()
    if "twice" in restarts:
        broker.store_message("elsewhere", bytes(1000))  # the log has grown past where the delivery was
        broker.store.flush()
        broker.crash()
    deliver(broker)
    assert bodies(broker) == [b"earlier", b"later"]


def test_a_delivery_in_front_of_what_was_truncated_does_not_come_again(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    end_offset = broker.broker.store.end_offset
    broker.store_message("orders", b"truncated", queue_id=2)
    broker.broker.store.truncate(end_offset)
    broker.broker.schedule.log_was_truncated()
    deliver(broker)
    assert bodies(broker) == [b"later"]


# --- a group ---


def test_a_leader_that_was_killed_delivers_again_nothing_that_its_file_calls_delivered(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    """It shows readers what was confirmed when it began to lead, until its followers have pulled again: no message at all here."""
    leader, follower = in_sync_pair(make_broker)
    expected = [b"%d" % number for number in range(20)]
    for body in expected:
        send(leader, body, 1)
    settle(leader, follower)
    clock.advance(1)
    look(leader)
    settle(leader, follower)
    leader.broker.schedule.persist()
    leader.crash()
    reclaim(leader, follower)
    assert leader.broker.refuses_appends() is None
    look(leader)  # the follower has not pulled yet
    settle(leader, follower)
    look(leader)
    settle(leader, follower)
    assert bodies(leader) == expected


def test_a_leader_delivers_nothing_before_its_epoch_is_confirmed(make_broker: MakeBroker) -> None:
    broker = make_broker(flushDiskType="SYNC_FLUSH")
    broker.crash()  # leads again in an epoch whose first record is not durable yet
    assert not broker.broker.delivers_messages
    broker.store.flush()
    broker.broker.held_changed()
    assert broker.broker.delivers_messages


def damaged_leader(make_broker: MakeBroker) -> tuple[BrokerUnderTest, BrokerUnderTest, int]:
    """A leader with two messages that are due, of which it cannot read the first, its follower, and where that is in the log."""
    leader, follower = in_sync_pair(make_broker)
    send(leader, b"damaged here", 1)
    send(leader, b"whole", 1)
    settle(leader, follower)
    leader.clock.advance(1)
    offset = damage_head(leader)
    return leader, follower, offset


def test_a_message_that_is_damaged_here_is_delivered_once_another_replica_has_given_it_whole(
    make_broker: MakeBroker,
) -> None:
    leader, follower, offset = damaged_leader(make_broker)
    look(leader)
    assert bodies(leader) == []
    leader.store.write_over(offset, follower.store.records_and_next(offset, 1))
    leader.clock.advance(1)
    look(leader)
    settle(leader, follower)
    assert bodies(leader) == [b"damaged here", b"whole"]


def test_a_message_that_no_replica_gives_whole_is_passed_over_after_ten_minutes(make_broker: MakeBroker) -> None:
    leader, follower, _offset = damaged_leader(make_broker)
    look(leader)
    leader.clock.advance(599)
    settle(leader, follower)
    look(leader)
    assert bodies(leader) == []
    leader.clock.advance(1)
    look(leader)
    settle(leader, follower)
    assert bodies(leader) == [b"whole"]


def test_a_slave_writes_its_masters_progress_down_once_the_delivered_messages_are_durable_here(
    make_broker: MakeBroker, clock: ManualClock
) -> None:
    """Promoted after a power cut it would pass over messages that its log has only where they waited."""
    leader, follower = in_sync_pair(make_broker, flushDiskType="ASYNC_FLUSH")
    send(leader, b"later", 1)
    settle(leader, follower)
    clock.advance(1)
    look(leader)
    leader.store.flush()
    replicate(leader, follower)
    schedule = follower.broker.schedule
    assert schedule.offsets == {1: 1}
    assert schedule.to_wrapper().offset_table == {}
    follower.store.flush()
    assert schedule.to_wrapper().offset_table == {1: 1}


def test_progress_is_answered_for_slaves(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, b"later", 1)
    clock.advance(1)
    deliver(broker)
    broker.store.flush()
    body = DelayOffsetSerializeWrapper.from_json(broker.ask(RequestCode.GET_ALL_DELAY_OFFSET).body)
    assert body.offset_table == {1: 1}


# --- the pure part ---


def test_the_head_ends_at_the_first_message_that_is_not_due() -> None:
    head = DueHead(now_ms=1000, delay_ms=500)
    assert [head.accept(at_ms) for at_ms in (900, 1000, 1001, 950)] == [True, True, False, False]
    assert head.next_due_ms == 1001


def test_a_time_further_ahead_than_the_delay_is_due() -> None:
    head = DueHead(now_ms=1000, delay_ms=500)
    assert [head.accept(at_ms) for at_ms in (1501, 1500)] == [True, False]
