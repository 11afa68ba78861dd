"""Consumer offsets: committed, queried, persisted, never lowered but by a reset."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokerd import consumer_offset
from brokerd.config_file import UnreadableConfigFile
from brokerd.metadata_record import MetadataRecord
from mqwire.bodies import ConsumerOffsetSerializeWrapper, MessageQueue, ResetOffsetBody
from mqwire.codes import PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_offset import (
    CloneGroupOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from mqwire.headers_pull import PullMessageRequestHeader
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker


@pytest.fixture
def offsets_broker(broker: BrokerUnderTest) -> BrokerUnderTest:
    """Topic `orders` with 10 messages in queue 0, stored a second apart; group `g`."""
    broker.create_topic("orders")
    broker.create_group("g")
    for number in range(10):
        broker.store_message("orders", b"%d" % number)
        broker.clock.advance(1)
    return broker


def commit(
    broker: BrokerUnderTest, offset: int, *, topic: str = "orders", group: str = "g", queue_id: int = 0
) -> RemotingCommand:
    return broker.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset),
    )


def query(
    broker: BrokerUnderTest, *, topic: str = "orders", group: str = "g", queue_id: int = 0, **members: Any
) -> int:
    """The offset, or the code of the refusal, negated."""
    reply = broker.ask(
        RequestCode.QUERY_CONSUMER_OFFSET,
        QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue_id, **members),
    )
    return int(reply.ext_fields["offset"]) if reply.code == ResponseCode.SUCCESS else -reply.code


def reset(
    broker: BrokerUnderTest, *, topic: str = "orders", group: str = "g", timestamp: int = 0, **members: Any
) -> RemotingCommand:
    return broker.ask(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp, **members),
    )


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)


# --- commit and query ---


def test_a_committed_offset_is_queried(offsets_broker: BrokerUnderTest) -> None:
    assert commit(offsets_broker, 4).code == ResponseCode.SUCCESS
    assert query(offsets_broker) == 4


def test_a_lower_offset_is_answered_but_not_taken(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 7)
    reply = commit(offsets_broker, 3)
    assert reply.code == ResponseCode.SUCCESS
    assert "lower than what the group has committed" in (reply.remark or "")
    assert query(offsets_broker) == 7


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "missing"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_a_commit_to_nowhere_is_refused(offsets_broker: BrokerUnderTest, members: dict[str, Any], code: int) -> None:
    assert commit(offsets_broker, 1, **members).code == code


def test_a_negative_offset_is_refused(offsets_broker: BrokerUnderTest) -> None:
    assert commit(offsets_broker, -1).code == ResponseCode.INVALID_PARAMETER


def test_all_offsets_have_a_bound_within_which_those_that_are_there_go_on(
    offsets_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_offset, "OFFSETS_MAX", 2)
    offsets_broker.create_group("h")
    assert [commit(offsets_broker, 0, queue_id=queue_id).code for queue_id in range(3)] == [
        ResponseCode.SUCCESS,
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_BUSY,
    ]
    assert commit(offsets_broker, 4).code == ResponseCode.SUCCESS
    assert "keeps 2 offsets" in str(reset(offsets_broker, group="h").remark)
    offsets_broker.restart()
    assert commit(offsets_broker, 0, group="h").code == ResponseCode.SYSTEM_BUSY
    assert query(offsets_broker) == 4
    offsets_broker.broker.consumer_offsets.remove_group("g")
    assert commit(offsets_broker, 0, group="h").code == ResponseCode.SUCCESS


def test_pulls_commit_no_more_offsets_than_are_kept_and_none_that_is_none(
    offsets_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_offset, "OFFSETS_MAX", 1)
    for queue_id, offset in ((0, -1), (0, 3), (1, 0)):
        header = PullMessageRequestHeader(
            consumer_group="g",
            topic="orders",
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=1,
            sys_flag=PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUBSCRIPTION,
            commit_offset=offset,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        before = dict(offsets_broker.broker.consumer_offsets.base()[0])
        offsets_broker.ask(RequestCode.PULL_MESSAGE, header)
        assert offset >= 0 or offsets_broker.broker.consumer_offsets.base()[0] == before == {}
    assert offsets_broker.broker.consumer_offsets.all_offsets() == [("orders", "g", 0, 3)]


def test_a_log_that_lost_messages_takes_back_offsets_and_pending_resets_beyond_its_end(
    offsets_broker: BrokerUnderTest,
) -> None:
    """A pending reset came back with the next base, on one replica only, and passed over what gets these offsets next."""
    commit(offsets_broker, 9)
    offsets = offsets_broker.broker.consumer_offsets
    offsets.reset("orders", "other", {0: 10})
    offsets.bound(lambda topic, queue_id: 4)
    assert (offsets.query("orders", "g", 0), offsets.query("orders", "other", 0)) == (4, 4)
    assert offsets.pending_reset("orders", "other", 0) == 4
    table, resets, counts = offsets.base()
    offsets.apply(MetadataRecord(part=0, parts=1, offsets=table, resets=resets, reset_counts=counts))
    assert offsets.query("orders", "other", 0) == 4


def test_hints_of_new_offsets_have_a_bound(offsets_broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_offset, "NEW_HINTS_MAX", 2)
    commit(offsets_broker, 1)
    offsets = offsets_broker.broker.consumer_offsets
    for queue_id in range(4):
        offsets.hint("orders", "g", queue_id, 5)
    offsets.hint("orders", "g", 1, 6)
    assert offsets.hints() == [("orders", "g", 0, 5), ("orders", "g", 1, 6), ("orders", "g", 2, 5)]


def test_a_commit_without_a_field_names_it(broker: BrokerUnderTest) -> None:
    reply = broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields={"consumerGroup": "g", "topic": "orders"})
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert "queueId" in (reply.remark or "")


def test_a_new_group_starts_at_0_on_a_young_topic(offsets_broker: BrokerUnderTest) -> None:
    assert query(offsets_broker) == 0


def test_a_new_group_finds_nothing_on_an_empty_queue(offsets_broker: BrokerUnderTest) -> None:
    assert query(offsets_broker, queue_id=1) == -ResponseCode.QUERY_NOT_FOUND


def test_a_client_that_asks_for_no_zero_gets_none(offsets_broker: BrokerUnderTest) -> None:
    assert query(offsets_broker, set_zero_if_not_found=False) == -ResponseCode.QUERY_NOT_FOUND


def test_a_new_group_finds_nothing_where_the_first_messages_are_deleted(offsets_broker: BrokerUnderTest) -> None:
    offsets_broker.store.delete_topic("orders")
    offsets_broker.store_message("orders")
    assert query(offsets_broker) == -ResponseCode.QUERY_NOT_FOUND


# --- persistence ---


def test_offsets_survive_a_graceful_restart(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 4)
    offsets_broker.restart()
    assert query(offsets_broker) == 4


def test_offsets_that_were_answered_survive_a_crash(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 4)
    offsets_broker.broker.consumer_offsets.persist()
    commit(offsets_broker, 6)
    offsets_broker.crash()
    assert query(offsets_broker) == 6


def test_the_file_is_rocketmqs(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 4)
    offsets_broker.broker.consumer_offsets.persist()
    content = json.loads((offsets_broker.folder / "store" / "config" / "consumerOffset.json").read_text())
    assert content["offsetTable"] == {"orders@g": {"0": 4}}
    assert {"counter", "timestamp"} <= set(content["dataVersion"])


def test_a_file_of_apaches_is_read(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.stop()
    (broker.folder / "store" / "config" / "consumerOffset.json").write_text(
        '{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},'
        '"offsetTable":{"orders@g":{0:12,1:7},"%RETRY%g@g":{0:1}}}'
    )
    broker.start()
    offsets = broker.broker.consumer_offsets
    assert (offsets.query("orders", "g", 0), offsets.query("orders", "g", 1), offsets.query("%RETRY%g", "g", 0)) == (
        12,
        7,
        1,
    )


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"offsetTable":{"orders@g":{"0":"x"}}}', b"\x00" * 100])
def test_a_broken_file_and_a_broken_backup_refuse_to_start(make_broker: MakeBroker, garbage: bytes) -> None:
    broker = make_broker()
    broker.stop()
    folder = broker.folder / "store" / "config"
    (folder / "consumerOffset.json").write_bytes(garbage)
    (folder / "consumerOffset.json.bak").write_bytes(garbage)
    with pytest.raises(UnreadableConfigFile, match=r"consumerOffset\.json"):
        broker.start()


def test_a_broken_file_is_replaced_by_its_backup_and_the_log_has_what_came_since(
    offsets_broker: BrokerUnderTest,
) -> None:
    commit(offsets_broker, 4)
    offsets_broker.broker.consumer_offsets.persist()
    commit(offsets_broker, 6)
    offsets_broker.stop()
    (offsets_broker.folder / "store" / "config" / "consumerOffset.json").write_bytes(b"{")
    offsets_broker.start()
    assert query(offsets_broker) == 6


def test_nothing_is_written_when_nothing_has_changed(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 4)
    offsets_broker.broker.consumer_offsets.persist()
    assert offsets_broker.broker.consumer_offsets.take_changes() is None


def test_all_offsets_are_answered_for_slaves(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 4)
    body = ConsumerOffsetSerializeWrapper.from_json(offsets_broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET).body)
    assert body.offset_table == {"orders@g": {0: 4}}


# --- reset ---


def test_a_reset_by_time_answers_each_queues_new_offset(offsets_broker: BrokerUnderTest) -> None:
    timestamp = offsets_broker.clock.time_ms() - 3_000
    body = ResetOffsetBody.from_json(reset(offsets_broker, timestamp=timestamp).body)
    assert body.offset_table == {queue(0): 7, queue(1): 0, queue(2): 0, queue(3): 0}


def test_a_reset_lowers_and_raises_for_an_offline_group(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 8)
    reset(offsets_broker, timestamp=0)
    assert query(offsets_broker) == 0
    reset(offsets_broker, timestamp=-1)
    assert query(offsets_broker) == 10


def test_a_reset_that_is_not_forced_passes_over_no_messages(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 4)
    body = ResetOffsetBody.from_json(reset(offsets_broker, timestamp=-1, is_force=False).body)
    assert body.offset_table == {queue(0): 4, queue(1): 0, queue(2): 0, queue(3): 0}
    assert not offsets_broker.broker.consumer_offsets.has_reset("orders", "g", 0)
    reset(offsets_broker, timestamp=0, is_force=False)
    assert query(offsets_broker) == 0


def test_a_reset_of_one_queue_to_an_offset(offsets_broker: BrokerUnderTest) -> None:
    commit(offsets_broker, 8)
    body = ResetOffsetBody.from_json(reset(offsets_broker, queue_id=0, offset=5).body)
    assert body.offset_table == {queue(0): 5}
    assert query(offsets_broker) == 5


def test_until_the_next_pull_a_reset_overrides_commits(offsets_broker: BrokerUnderTest) -> None:
    reset(offsets_broker, queue_id=0, offset=2)
    reply = commit(offsets_broker, 9)
    assert reply.code == ResponseCode.SUCCESS
    assert "previously reset" in (reply.remark or "")
    assert query(offsets_broker) == 2


def test_the_pull_that_takes_the_reset_ends_it(offsets_broker: BrokerUnderTest) -> None:
    offsets = offsets_broker.broker.consumer_offsets
    reset(offsets_broker, queue_id=0, offset=2)
    assert offsets.take_reset("orders", "g", 0) == 2
    assert offsets.take_reset("orders", "g", 0) is None
    commit(offsets_broker, 9)
    assert query(offsets_broker) == 9


def test_a_reset_is_durable_when_it_is_answered_and_still_pending_after_a_crash(
    offsets_broker: BrokerUnderTest,
) -> None:
    commit(offsets_broker, 8)
    reset(offsets_broker, queue_id=0, offset=2)
    offsets_broker.crash()
    assert query(offsets_broker) == 2
    commit(offsets_broker, 9)
    assert query(offsets_broker) == 2


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "missing"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 9, "offset": 0}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": 0, "offset": 11}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": 0, "offset": -5}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_reset_to_nowhere_is_refused_and_changes_nothing(
    offsets_broker: BrokerUnderTest, members: dict[str, Any], code: int
) -> None:
    commit(offsets_broker, 3)
    assert reset(offsets_broker, **members).code == code
    assert query(offsets_broker) == 3


def test_offsets_are_cloned_to_another_group(offsets_broker: BrokerUnderTest) -> None:
    offsets_broker.create_group("h")
    commit(offsets_broker, 6)
    reply = offsets_broker.ask(
        RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader(src_group="g", dest_group="h", topic="orders")
    )
    assert reply.code == ResponseCode.SUCCESS
    assert query(offsets_broker, group="h") == 6


# --- clean-up ---


def test_a_deleted_topics_offsets_are_forgotten_but_no_others(offsets_broker: BrokerUnderTest) -> None:
    offsets = offsets_broker.broker.consumer_offsets
    for topic in ("orders", "orders2", "2orders"):
        offsets.commit(topic, "g", 0, 1)
    offsets.remove_topic("orders")
    assert offsets.topics_of("g") == ["2orders", "orders2"]


def test_a_deleted_groups_offsets_are_forgotten_but_no_others(offsets_broker: BrokerUnderTest) -> None:
    offsets = offsets_broker.broker.consumer_offsets
    for group in ("g", "gg", "g2"):
        offsets.commit("orders", group, 0, 1)
    offsets.remove_group("g")
    assert offsets.groups_of("orders") == ["g2", "gg"]


@pytest.mark.parametrize(("resets", "is_kept"), [(0, True), (1, False)])
def test_what_was_committed_at_a_follower_does_not_come_back_after_a_reset_that_its_next_base_has_counted(
    offsets_broker: BrokerUnderTest, resets: int, is_kept: bool
) -> None:
    offsets = offsets_broker.broker.consumer_offsets
    offsets.hint("orders", "g", 0, 9)
    counts = {"orders@g": {0: resets}} if resets else {}
    offsets.apply(MetadataRecord(parts=1, offsets={"orders@g": {0: 2}}, reset_counts=counts))
    assert offsets.has_hint("orders", "g", 0, 9) is is_kept
