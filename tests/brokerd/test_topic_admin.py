"""Topics: made by administrators and by sends, changed, deleted, persisted in RocketMQ's file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokerd.config_file import UnreadableConfigFile
from brokerd.store import DiskFullError
from mqwire.bodies import (
    CreateTopicListRequestBody,
    MessageQueue,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from mqwire.codes import PermName, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock


def create(broker: BrokerUnderTest, topic: str, *, queues: int = 4, perm: int = 6, **members: Any) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=members.pop("read_queue_nums", queues),
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type=members.pop("topic_filter_type", "SINGLE_TAG"),
        **members,
    )
    return broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def delete(broker: BrokerUnderTest, topic: str) -> RemotingCommand:
    return broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


def config_of(broker: BrokerUnderTest, topic: str) -> TopicConfig:
    reply = broker.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return TopicConfig.from_json(reply.body)


def is_known(broker: BrokerUnderTest, topic: str) -> bool:
    reply = broker.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic=topic))
    return reply.code == ResponseCode.SUCCESS


@pytest.fixture
def registrations(broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the broker was asked to register again."""
    calls: list[int] = []
    monkeypatch.setattr(broker.broker, "register_soon", lambda: calls.append(1))
    return calls


# --- create and update ---


def test_a_created_topic_has_what_was_asked_for(broker: BrokerUnderTest, registrations: list[int]) -> None:
    assert create(broker, "orders", queues=8, read_queue_nums=16, perm=4, order=True).code == ResponseCode.SUCCESS
    config = config_of(broker, "orders")
    assert (config.write_queue_nums, config.read_queue_nums, config.perm, config.order) == (8, 16, 4, True)
    assert registrations == [1]


def test_an_unchanged_topic_is_not_registered_again(broker: BrokerUnderTest, registrations: list[int]) -> None:
    create(broker, "orders")
    version = broker.broker.topic_configs.data_version
    create(broker, "orders")
    assert broker.broker.topic_configs.data_version == version
    assert registrations == [1]


def test_a_change_raises_the_data_version(broker: BrokerUnderTest) -> None:
    before = broker.broker.topic_configs.data_version.counter
    create(broker, "orders")
    create(broker, "orders", queues=8)
    assert broker.broker.topic_configs.data_version.counter == before + 2


def test_attributes_are_added_and_removed(broker: BrokerUnderTest) -> None:
    create(broker, "orders", attributes="+message.type=FIFO,+reserve.time=9")
    assert config_of(broker, "orders").attributes == {"message.type": "FIFO", "reserve.time": "9"}
    create(broker, "orders", attributes="-reserve.time")
    assert config_of(broker, "orders").attributes == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    "attributes",
    ["colour=blue", "+colour=blue", "+queue.type=BatchCQ", "+cleanup.policy=COMPACTION", "+message.type=TRANSACTION"],
)
def test_attributes_that_cannot_be_honoured_are_refused(broker: BrokerUnderTest, attributes: str) -> None:
    assert create(broker, "orders", attributes=attributes).code == ResponseCode.INVALID_PARAMETER
    assert not is_known(broker, "orders")


def test_an_attribute_of_an_older_version_may_stay(broker: BrokerUnderTest) -> None:
    broker.broker.topic_configs.put(TopicConfig(topic_name="orders", attributes={"message.type": "TRANSACTION"}))
    assert create(broker, "orders", attributes="+message.type=TRANSACTION").code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "members",
    [
        {"queues": -1},
        {"queues": 1025},
        {"perm": 8},
        {"perm": -1},
        {"topic_filter_type": "MANY"},
    ],
)
def test_impossible_values_are_refused(broker: BrokerUnderTest, members: dict[str, Any]) -> None:
    assert create(broker, "orders", **members).code == ResponseCode.INVALID_PARAMETER
    assert not is_known(broker, "orders")


@pytest.mark.parametrize(
    "topic", ["", " ", "../x", "a/b", "x" * 128, "TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "%LMQ%x"]
)
def test_illegal_and_system_names_are_refused(broker: BrokerUnderTest, topic: str) -> None:
    assert create(broker, topic).code == ResponseCode.INVALID_PARAMETER


def test_several_topics_are_made_at_once_or_none(broker: BrokerUnderTest) -> None:
    body = CreateTopicListRequestBody(
        topic_config_list=[
            TopicConfig(topic_name="a"),
            TopicConfig(topic_name="b", attributes={"+message.type": "FIFO"}),
        ]
    )
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.to_json()).code == ResponseCode.SUCCESS
    assert config_of(broker, "b").attributes == {"message.type": "FIFO"}
    bad = CreateTopicListRequestBody(topic_config_list=[TopicConfig(topic_name="c"), TopicConfig(topic_name="../d")])
    assert broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=bad.to_json()).code != ResponseCode.SUCCESS
    assert not is_known(broker, "c")


def test_a_topic_that_the_log_does_not_take_is_not_there(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise DiskFullError("no room is left")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "append", full)
        reply = create(broker, "orders")
    assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "no room is left" in (reply.remark or "")
    assert not is_known(broker, "orders")


def test_a_topic_that_the_log_has_taken_does_not_need_its_file(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("brokerd.config_file.store", full)
        assert create(broker, "orders").code == ResponseCode.SUCCESS
        broker.crash()
    assert is_known(broker, "orders")


# --- delete ---


def test_a_deleted_topic_is_gone_with_its_messages_and_offsets(
    broker: BrokerUnderTest, registrations: list[int]
) -> None:
    create(broker, "orders")
    broker.store_message("orders")
    broker.broker.consumer_offsets.commit("orders", "g", 0, 1)
    assert delete(broker, "orders").code == ResponseCode.SUCCESS
    assert not is_known(broker, "orders")
    assert broker.messages("orders") == []
    assert broker.broker.consumer_offsets.query("orders", "g", 0) == -1
    assert registrations == [1, 1]


def test_a_deleted_topic_stays_deleted_after_a_crash(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    broker.store_message("orders")
    broker.broker.consumer_offsets.commit("orders", "g", 0, 1)
    broker.broker.consumer_offsets.persist()
    delete(broker, "orders")
    broker.crash()
    assert not is_known(broker, "orders")
    assert broker.messages("orders") == []
    assert broker.broker.consumer_offsets.query("orders", "g", 0) == -1


def test_a_topic_made_again_shows_no_old_messages(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    broker.store_message("orders", b"old")
    delete(broker, "orders")
    create(broker, "orders")
    broker.store_message("orders", b"new")
    assert [message.body for message in broker.messages("orders")] == [b"new"]


def test_deleting_a_missing_topic_is_harmless(broker: BrokerUnderTest) -> None:
    assert delete(broker, "missing").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", ["TBW102", "DefaultCluster", "broker-a", "../config", ""])
def test_system_topics_and_illegal_names_are_not_deleted(broker: BrokerUnderTest, topic: str) -> None:
    assert delete(broker, topic).code == ResponseCode.INVALID_PARAMETER


# --- list ---


def test_all_topics_are_listed_with_their_version(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    reply = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    body = TopicConfigAndMappingSerializeWrapper.from_json(reply.body)
    assert {"orders", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(body.topic_config_table)
    assert body.data_version == broker.broker.topic_configs.data_version
    assert int(reply.ext_fields["totalTopicNum"]) == len(body.topic_config_table)


def test_topics_are_listed_in_pages(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    version = broker.broker.topic_configs.data_version.to_json().decode()
    seen: list[str] = []
    for first in range(0, 40, 5):
        header = GetAllTopicConfigRequestHeader(topic_seq=first, max_topic_num=5, data_version=version)
        reply = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
        seen += TopicConfigAndMappingSerializeWrapper.from_json(reply.body).topic_config_table
    assert seen == sorted(broker.broker.topic_configs.table)


def test_pages_begin_again_when_the_table_has_changed(broker: BrokerUnderTest) -> None:
    header = GetAllTopicConfigRequestHeader(topic_seq=3, max_topic_num=1, data_version='{"counter":0}')
    reply = broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
    first = sorted(broker.broker.topic_configs.table)[0]
    assert list(TopicConfigAndMappingSerializeWrapper.from_json(reply.body).topic_config_table) == [first]


def test_the_brokers_own_topics_are_listed(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    topics = TopicList.from_json(broker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topic_list
    assert {"TBW102", "DefaultCluster", "broker-a", "DefaultCluster_REPLY_TOPIC"} <= set(topics)
    assert "orders" not in topics


def test_a_missing_topic_is_refused_by_name(broker: BrokerUnderTest) -> None:
    reply = broker.ask(RequestCode.GET_TOPIC_CONFIG, GetTopicConfigRequestHeader(topic="missing"))
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST


def test_the_statistics_of_a_topic_give_each_queues_reach(broker: BrokerUnderTest, clock: ManualClock) -> None:
    create(broker, "orders", queues=2)
    broker.store_message("orders")
    clock.advance(5)
    broker.store_message("orders")
    reply = broker.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="orders"))
    table = TopicStatsTable.from_json(reply.body).offset_table
    first, second = (MessageQueue(topic="orders", broker_name="broker-a", queue_id=number) for number in (0, 1))
    assert (table[first].min_offset, table[first].max_offset) == (0, 2)
    assert table[first].last_update_timestamp == clock.time_ms()
    assert (table[second].max_offset, table[second].last_update_timestamp) == (0, 0)


# --- made by a send ---


def test_a_send_creates_the_topic_with_the_lower_number_of_queues(broker: BrokerUnderTest) -> None:
    topics = broker.broker.topic_configs
    topics.create_on_send("few", "TBW102", 4)
    topics.create_on_send("many", "TBW102", 64)
    assert broker.topic_config("few").write_queue_nums == 4
    assert broker.topic_config("many").write_queue_nums == 8
    assert broker.topic_config("few").perm == 6


def test_a_send_that_wishes_no_queue_gets_one(broker: BrokerUnderTest) -> None:
    broker.broker.topic_configs.create_on_send("orders", "TBW102", -3)
    assert broker.topic_config("orders").write_queue_nums == 1


def test_a_send_after_an_ordinary_topic_creates_nothing(broker: BrokerUnderTest) -> None:
    create(broker, "orders")
    assert broker.broker.topic_configs.create_on_send("other", "orders", 4) is None


def test_without_auto_creation_a_send_creates_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker(autoCreateTopicEnable="false")
    assert broker.broker.topic_configs.create_on_send("orders", "TBW102", 4) is None
    assert broker.broker.topic_configs.select("TBW102") is None


@pytest.mark.parametrize("template", ["DefaultCluster", "broker-a"])
def test_without_auto_creation_no_other_template_makes_a_topic(make_broker: MakeBroker, template: str) -> None:
    broker = make_broker(autoCreateTopicEnable="false")
    assert broker.topic_config(template).perm & PermName.INHERIT
    assert broker.broker.topic_configs.create_on_send("orders", template, 4) is None


def test_with_auto_creation_the_clusters_template_makes_a_topic(broker: BrokerUnderTest) -> None:
    assert broker.broker.topic_configs.create_on_send("orders", "DefaultCluster", 4) is not None


def test_turning_auto_creation_off_later_closes_tbw102(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.stop()
    (broker.folder / "broker.conf").unlink()
    broker.keys = {"autoCreateTopicEnable": "false"}
    broker.start()
    assert broker.broker.topic_configs.create_on_send("orders", "TBW102", 4) is None
    assert broker.topic_config("TBW102").perm == 6


# --- persistence ---


def test_topics_survive_a_crash_after_their_answer(broker: BrokerUnderTest) -> None:
    version = broker.broker.topic_configs.data_version
    create(broker, "orders", queues=8)
    broker.crash()
    assert config_of(broker, "orders").write_queue_nums == 8
    assert broker.broker.topic_configs.data_version != version  # name servers take the table


def test_the_file_is_rocketmqs(broker: BrokerUnderTest) -> None:
    create(broker, "orders", queues=8)
    broker.broker.persist()
    content = json.loads((broker.folder / "store" / "config" / "topics.json").read_text())
    assert content["topicConfigTable"]["orders"] == {
        "topicName": "orders",
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
    assert {"counter", "timestamp", "stateVersion"} == set(content["dataVersion"])


def test_a_file_of_apaches_is_read(broker: BrokerUnderTest) -> None:
    broker.stop()
    (broker.folder / "store" / "config" / "topics.json").write_text(
        '{\n\t"dataVersion":{\n\t\t"counter":9,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},\n'
        '\t"topicConfigTable":{\n\t\t"old":{\n\t\t\t"attributes":{},\n\t\t\t"order":false,\n\t\t\t"perm":6,\n'
        '\t\t\t"readQueueNums":3,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"old",\n'
        '\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":3\n\t\t}\n\t}\n}'
    )
    broker.start()
    assert config_of(broker, "old").write_queue_nums == 3
    assert broker.broker.topic_configs.data_version.counter >= 9


def test_a_broken_file_and_a_broken_backup_refuse_to_start(broker: BrokerUnderTest) -> None:
    broker.stop()
    for name in ("topics.json", "topics.json.bak"):
        (broker.folder / "store" / "config" / name).write_text('{"topicConfigTable":{"a":{}}}')
    with pytest.raises(UnreadableConfigFile, match=r"topics\.json"):
        broker.start()


def test_a_restart_without_changes_keeps_the_data_version(broker: BrokerUnderTest) -> None:
    version = broker.broker.topic_configs.data_version
    broker.restart()
    assert broker.broker.topic_configs.data_version == version
