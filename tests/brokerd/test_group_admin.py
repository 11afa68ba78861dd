"""Subscription groups: made by administrators and by first use, changed, deleted, persisted in RocketMQ's file."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import pytest

from brokerd.config_file import UnreadableConfigFile
from brokerd.store import StoreError
from mqwire.bodies import SubscriptionGroupConfig, SubscriptionGroupList, SubscriptionGroupWrapper
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker


def create(broker: BrokerUnderTest, group: str, **members: Any) -> RemotingCommand:
    body = SubscriptionGroupConfig(group_name=group, **members).to_json()
    return broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


def delete(broker: BrokerUnderTest, group: str, *, clean_offset: bool = False) -> RemotingCommand:
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=clean_offset)
    return broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


def config_of(broker: BrokerUnderTest, group: str) -> SubscriptionGroupConfig:
    reply = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader(group=group))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return SubscriptionGroupConfig.from_json(reply.body)


def is_known(broker: BrokerUnderTest, group: str) -> bool:
    reply = broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetSubscriptionGroupConfigRequestHeader(group=group))
    return reply.code == ResponseCode.SUCCESS


def test_a_created_group_has_what_was_asked_for(broker: BrokerUnderTest) -> None:
    assert create(broker, "g", retry_max_times=3, consume_enable=False).code == ResponseCode.SUCCESS
    config = config_of(broker, "g")
    assert (config.retry_max_times, config.consume_enable, config.retry_queue_nums) == (3, False, 1)


def test_a_created_group_has_its_retry_topic_at_once(broker: BrokerUnderTest) -> None:
    create(broker, "g", retry_queue_nums=2)
    assert broker.topic_config("%RETRY%g").read_queue_nums == 2


def test_several_groups_are_made_at_once_or_none(broker: BrokerUnderTest) -> None:
    def put(*names: str) -> int:
        body = SubscriptionGroupList(group_config_list=[SubscriptionGroupConfig(group_name=name) for name in names])
        return broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body.to_json()).code

    assert put("a", "b") == ResponseCode.SUCCESS
    assert put("c", "../d") == ResponseCode.INVALID_PARAMETER
    assert is_known(broker, "b")
    assert not is_known(broker, "c")


@pytest.mark.parametrize("group", ["", " ", "../x", "a b", "g@h", "x" * 121])
def test_illegal_names_are_refused(broker: BrokerUnderTest, group: str) -> None:
    assert create(broker, group).code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize("members", [{"retry_queue_nums": -1}, {"retry_queue_nums": 5000}, {"retry_max_times": -2}])
def test_impossible_values_are_refused(broker: BrokerUnderTest, members: dict[str, Any]) -> None:
    assert create(broker, "g", **members).code == ResponseCode.INVALID_PARAMETER


def test_attributes_are_set_and_removed(broker: BrokerUnderTest) -> None:
    create(broker, "g", attributes={"+priority.factor": "2", "+other": "1"})
    create(broker, "g", attributes={"-other": ""})
    assert config_of(broker, "g").attributes == {"priority.factor": "2"}


def test_a_deleted_group_is_gone_but_its_offsets_stay(broker: BrokerUnderTest) -> None:
    create(broker, "g")
    broker.broker.consumer_offsets.commit("orders", "g", 0, 5)
    assert delete(broker, "g").code == ResponseCode.SUCCESS
    assert not is_known(broker, "g")
    assert broker.broker.consumer_offsets.query("orders", "g", 0) == 5


def test_a_deletion_takes_the_offsets_along_when_asked(broker: BrokerUnderTest) -> None:
    create(broker, "g")
    broker.broker.consumer_offsets.commit("orders", "g", 0, 5)
    delete(broker, "g", clean_offset=True)
    broker.crash()
    assert broker.broker.consumer_offsets.query("orders", "g", 0) == -1


def test_deleting_a_missing_group_is_harmless(broker: BrokerUnderTest) -> None:
    assert delete(broker, "missing").code == ResponseCode.SUCCESS


def test_all_groups_are_listed_with_their_version(broker: BrokerUnderTest) -> None:
    create(broker, "g")
    reply = broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    body = SubscriptionGroupWrapper.from_json(reply.body)
    assert {"g", "TOOLS_CONSUMER"} <= set(body.subscription_group_table)
    assert body.data_version == broker.broker.subscription_groups.data_version
    assert int(reply.ext_fields["totalGroupNum"]) == len(body.subscription_group_table)


def test_groups_are_listed_in_pages(broker: BrokerUnderTest) -> None:
    create(broker, "g")
    version = broker.broker.subscription_groups.data_version.to_json().decode()
    header = GetAllSubscriptionGroupRequestHeader(group_seq=1, max_group_num=2, data_version=version)
    reply = broker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
    names = sorted(broker.broker.subscription_groups.table)
    assert list(SubscriptionGroupWrapper.from_json(reply.body).subscription_group_table) == names[1:3]


def test_a_group_is_made_on_first_use_where_that_is_allowed(broker: BrokerUnderTest) -> None:
    made = broker.broker.subscription_groups.find_or_create("new", "")
    assert made is not None
    assert made.group_name == "new"
    broker.crash()
    assert is_known(broker, "new")


def test_a_group_is_not_made_on_first_use_where_that_is_not_allowed(make_broker: MakeBroker) -> None:
    groups = make_broker(autoCreateSubscriptionGroup="false").broker.subscription_groups
    assert groups.find_or_create("new", "") is None
    assert groups.find_or_create("CID_RMQ_SYS_anything", "") is not None


def test_groups_survive_a_crash_after_their_answer(broker: BrokerUnderTest) -> None:
    create(broker, "g", retry_max_times=3)
    broker.crash()
    assert config_of(broker, "g").retry_max_times == 3


def test_the_file_is_rocketmqs(broker: BrokerUnderTest) -> None:
    create(broker, "g")
    broker.broker.persist()
    content = json.loads((broker.folder / "store" / "config" / "subscriptionGroup.json").read_text())
    assert set(content) == {"subscriptionGroupTable", "forbiddenTable", "dataVersion", "inLog"}
    assert content["subscriptionGroupTable"]["g"]["retryMaxTimes"] == 16


def test_a_file_of_apaches_is_read(broker: BrokerUnderTest) -> None:
    broker.stop()
    (broker.folder / "store" / "config" / "subscriptionGroup.json").write_text(
        '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"forbiddenTable":{},'
        '"subscriptionGroupTable":{"old":{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,'
        '"consumeEnable":true,"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        '"groupName":"old","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,"retryQueueNums":1,'
        '"whichBrokerWhenConsumeSlowly":1}}}'
    )
    broker.start()
    assert config_of(broker, "old").retry_max_times == 5


def test_a_group_whose_deletion_the_log_does_not_take_is_as_it_was(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(broker, "g")
    groups = broker.broker.subscription_groups
    monkeypatch.setitem(groups._forbidden, "g", {"orders": 4})
    before = groups.to_wrapper()
    monkeypatch.setattr(groups, "_write", Mock(side_effect=StoreError("the disk is full")))
    with pytest.raises(StoreError):
        groups.delete("g")
    assert groups.to_wrapper() == before


def test_a_broken_file_refuses_to_start(broker: BrokerUnderTest) -> None:
    create(broker, "g")
    broker.stop()
    folder = broker.folder / "store" / "config"
    (folder / "subscriptionGroup.json").write_text("{")
    (folder / "subscriptionGroup.json.bak").write_text("")
    with pytest.raises(UnreadableConfigFile, match=r"subscriptionGroup\.json"):
        broker.start()
