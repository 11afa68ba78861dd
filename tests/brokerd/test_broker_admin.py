"""The broker's runtime information, configuration and statistics."""

from __future__ import annotations

import datetime
import json

import pytest

from brokerd.processors import HANDLERS
from brokerd.stats_history import StatsHistory
from mqwire.bodies import BrokerStatsData, KVTable
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_broker import ViewBrokerStatsDataRequestHeader
from mqwire.names import RMQ_SYS_EPOCH, RMQ_SYS_METADATA
from mqwire.properties import parse_properties
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock, RecordingPeer
from tests.brokerd.replicated_broker import pair, replicate
from tests.brokerd.test_client_manage import beat


def runtime_info(broker: BrokerUnderTest) -> dict[str, str]:
    return KVTable.from_json(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table


def update(broker: BrokerUnderTest, text: str) -> RemotingCommand:
    return broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


# What mqadmin's clusterList and brokerStatus read (ClusterListSubCommand).
READ_BY_MQADMIN = [
    "brokerActive",
    "brokerVersionDesc",
    "commitLogDiskRatio",
    "earliestMessageTimeStamp",
    "getTransferredTps",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgPutTotalYesterdayMorning",
    "pageCacheLockTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "putTps",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "sendThreadPoolQueueSize",
    "timerCongestNum",
    "timerDequeueTps",
    "timerEnqueueTps",
    "timerOffsetBehind",
    "timerReadBehind",
]


@pytest.mark.parametrize("name", READ_BY_MQADMIN)
def test_the_runtime_information_has_what_mqadmin_reads(broker: BrokerUnderTest, name: str) -> None:
    assert name in runtime_info(broker)


def test_the_runtime_information_counts_messages_and_bytes(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders")
    for _ in range(3):
        result = broker.store_message("orders")
    info = runtime_info(broker)
    assert info["putMessageTimesTotal"] == info["msgPutTotalTodayNow"] == "3"
    assert info["commitLogMaxOffset"] == str(result.physical_offset + result.size_bytes)
    assert info["storeState"] == "running"


def test_rates_that_are_not_sampled_yet_leave_their_place_empty(broker: BrokerUnderTest) -> None:
    assert runtime_info(broker)["putTps"] == "  "


def test_the_progress_of_delay_levels_is_reported(broker: BrokerUnderTest, clock: ManualClock) -> None:
    broker.store_message("orders", properties={"DELAY": "1"})
    clock.advance(1)
    broker.broker.schedule.deliver_due()
    assert runtime_info(broker)["scheduleMessageOffset_1"] == "1,1"


def test_the_backlog_of_all_groups_is_reported_without_what_retention_deleted_or_rocketmqs_own_groups(
    broker: BrokerUnderTest,
) -> None:
    broker.create_topic("orders")
    for _ in range(3):
        broker.store_message("orders", queue_id=0)
    offsets = broker.broker.consumer_offsets
    offsets.commit("orders", "billing", 0, 1)
    offsets.commit("orders", "shipping", 0, 3)
    offsets.commit("orders", "CID_RMQ_SYS_x", 0, 0)
    assert runtime_info(broker)["consumerLagMessages"] == "2"


def test_groups_with_a_backlog_and_no_member_are_reported(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders")
    for _ in range(3):
        broker.store_message("orders", queue_id=0)
    offsets = broker.broker.consumer_offsets
    offsets.commit("orders", "billing", 0, 1)
    offsets.commit("orders", "shipping", 0, 3)
    offsets.commit("orders", "CID_RMQ_SYS_x", 0, 0)
    assert json.loads(runtime_info(broker)["consumerGroupsAway"]) == ["billing"]
    broker.create_group("billing")
    beat(broker, RecordingPeer(), "c1", "billing")
    assert json.loads(runtime_info(broker)["consumerGroupsAway"]) == []


def test_of_many_groups_the_first_hundred_are_named_and_all_are_counted(broker: BrokerUnderTest) -> None:
    broker.create_topic("orders")
    broker.store_message("orders", queue_id=0)
    for number in range(150):
        broker.broker.consumer_offsets.commit("orders", f"group-{number:03}", 0, 0)
    info = runtime_info(broker)
    assert json.loads(info["consumerGroupsAway"]) == [f"group-{number:03}" for number in range(100)]
    assert info["consumerGroupsAwayCount"] == "150"


def test_the_ends_of_queues_are_looked_up_once_for_all_groups(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key may have a million offsets, in queues that never had a message: each was looked up four times."""
    broker.create_topic("orders", queues=50)
    broker.store_message("orders")
    for number in range(20):
        for queue_id in range(50):
            broker.broker.consumer_offsets.commit("orders", f"group-{number}", queue_id, 0)
    looked_up: list[str] = []
    max_offset = broker.store.max_offset

    def noted(topic: str, queue_id: int) -> int:
        looked_up.append(topic)
        return max_offset(topic, queue_id)

    monkeypatch.setattr(broker.store, "max_offset", noted)
    assert runtime_info(broker)["consumerLagMessages"] == "20"
    assert looked_up.count("orders") == 1


def test_dead_letters_are_counted_over_all_groups(broker: BrokerUnderTest) -> None:
    for group in ("billing", "shipping"):
        broker.create_topic(f"%DLQ%{group}", queues=1)
        broker.store_message(f"%DLQ%{group}")
    broker.create_topic("orders")
    broker.store_message("orders")
    assert runtime_info(broker)["deadLetterMessages"] == "2"


# --- configuration ---


def test_the_configuration_is_answered_as_properties(broker: BrokerUnderTest) -> None:
    reply = broker.ask(RequestCode.GET_BROKER_CONFIG)
    values = {entry.key: entry.value for entry in parse_properties(bytes(reply.body))}
    assert (values["brokerName"], values["brokerRole"]) == ("broker-a", "ASYNC_MASTER")
    assert "counter" in reply.ext_fields["version"]


def test_the_configuration_shows_no_secret(make_broker: MakeBroker) -> None:
    broker = make_broker(innerClientAuthenticationCredentials='{"accessKey":"a","secretKey":"hunter2"}')
    assert b"hunter2" not in broker.ask(RequestCode.GET_BROKER_CONFIG).body


def test_a_hot_key_is_changed_at_once_and_for_the_next_start(broker: BrokerUnderTest) -> None:
    assert update(broker, "brokerPermission=4\n").code == ResponseCode.SUCCESS
    assert broker.broker.refuses_sends() is not None
    broker.restart()
    assert broker.config.broker_permission == 4


def test_a_changed_permission_reaches_the_name_servers(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(broker.broker, "register_soon", lambda: calls.append(1))
    before = broker.broker.topic_configs.data_version.counter
    update(broker, "brokerPermission=4")
    assert calls == [1]
    assert broker.broker.topic_configs.data_version.counter == before + 1


def test_turning_auto_creation_on_opens_tbw102(make_broker: MakeBroker) -> None:
    broker = make_broker(autoCreateTopicEnable="false")
    update(broker, "autoCreateTopicEnable=true\ndefaultTopicQueueNums=5")
    broker.broker.topic_configs.create_on_send("orders", "TBW102", 16)
    assert broker.topic_config("orders").write_queue_nums == 5


# The payloads of CVE-2023-33246 and CVE-2023-37582, and paths that must not move.
@pytest.mark.parametrize(
    "text",
    [
        "filterServerNums=1\nrocketmqHome=-c $@|sh . echo id > /tmp/pwned;",
        "rocketmqHome=/tmp/x",
        "configStorePath=/tmp/x",
        "storePathRootDir=/tmp/x",
        "brokerConfigPath=/tmp/x",
        "configBlackList=",
        "aclEnable=false",
        "aclConfigFile=/tmp/x",
        "listenPort=1",
        "nonsense=1",
        "brokerPermission=4\naclEnable=false",
    ],
)
def test_no_other_key_can_be_changed(broker: BrokerUnderTest, text: str) -> None:
    reply = update(broker, text)
    assert reply.code == ResponseCode.NO_PERMISSION
    assert "brokerPermission" in (reply.remark or "")
    assert broker.config.broker_permission == 6
    assert "aclEnable" not in (broker.folder / "broker.conf").read_text()


@pytest.mark.parametrize("text", ["brokerPermission=9", "brokerPermission=", "longPollingEnable=perhaps"])
def test_a_bad_value_is_refused_and_changes_nothing(broker: BrokerUnderTest, text: str) -> None:
    assert update(broker, text).code == ResponseCode.INVALID_PARAMETER
    assert broker.config.broker_permission == 6


def test_a_body_that_is_no_text_is_refused(broker: BrokerUnderTest) -> None:
    assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"\xff\xfe").code == ResponseCode.INVALID_PARAMETER


def test_a_configuration_that_would_hold_up_everyone_is_refused(broker: BrokerUnderTest) -> None:
    reply = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=1\n" * 4000)
    assert (reply.code, "name fewer keys" in str(reply.remark)) == (ResponseCode.INVALID_PARAMETER, True)


# --- statistics ---


def view(broker: BrokerUnderTest, name: str, key: str) -> RemotingCommand:
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    return broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)


def test_the_messages_of_the_last_minute_are_counted_by_topic(broker: BrokerUnderTest, clock: ManualClock) -> None:
    broker.create_topic("orders")
    for _ in range(12):
        broker.broker.stats.sample(clock.monotonic())
        broker.store_message("orders")
        clock.advance(10)
    broker.broker.stats.sample(clock.monotonic())
    data = BrokerStatsData.from_json(view(broker, "TOPIC_PUT_NUMS", "orders").body)
    assert data.stats_minute.sum == 6
    assert data.stats_minute.tps == pytest.approx(0.1)
    assert data.stats_hour.sum == data.stats_day.sum == 12


@pytest.mark.parametrize("name", ["BROKER_PUT_NUMS", "BROKER_GET_NUMS"])
def test_the_brokers_own_statistics_are_keyed_by_the_clusters_name(
    broker: BrokerUnderTest, clock: ManualClock, name: str
) -> None:
    broker.broker.stats.sample(clock.monotonic())
    assert view(broker, name, "DefaultCluster").code == ResponseCode.SUCCESS
    assert view(broker, name, "OtherCluster").code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(("name", "key"), [("TOPIC_PUT_NUMS", "none"), ("NONSENSE", "orders")])
def test_an_unknown_statistic_answers_1(broker: BrokerUnderTest, clock: ManualClock, name: str, key: str) -> None:
    broker.broker.stats.sample(clock.monotonic())
    assert view(broker, name, key).code == ResponseCode.SYSTEM_ERROR


def test_the_totals_of_the_last_midnights_are_remembered() -> None:
    days = [datetime.date(2024, 5, 1)] * 2 + [datetime.date(2024, 5, 2)] + [datetime.date(2024, 5, 3)]
    history = StatsHistory(today=lambda: days.pop(0))
    for put in (10, 30, 70):
        history.sample(0.0, {}, put, 0)
    totals = history.day_totals()
    assert (totals.put_yesterday_morning, totals.put_today_morning) == (30, 70)


# --- all codes ---


def test_every_served_code_has_one_handler_and_the_later_ones_none() -> None:
    later = {
        RequestCode.END_TRANSACTION,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.RECALL_MESSAGE,
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
    }
    assert not later & set(HANDLERS)


@pytest.mark.parametrize("code", [37, 200050, 54, 9999, -1])
def test_a_code_that_is_not_served_is_answered_so(broker: BrokerUnderTest, code: int) -> None:
    assert broker.ask(code).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b"\xff\x00" * 50])
def test_garbage_is_answered_with_a_reason_whatever_the_code(broker: BrokerUnderTest, body: bytes) -> None:
    fields = {"topic": "\x00", "queueId": "-7", "timestamp": "x", "offset": "-9"}
    unforeseen = []
    for code in HANDLERS:
        reply = broker.ask(code, body=body, ext_fields=fields)
        if "its log" in (reply.remark or ""):  # what the dispatcher says of a failure that no one foresaw
            unforeseen.append(code)
    assert unforeseen == []


def test_cleaning_unused_topics_forgets_those_without_configuration_and_none_of_the_brokers_own(
    broker: BrokerUnderTest,
) -> None:
    broker.create_topic("orders")
    for topic in ("orders", "left-over", RMQ_SYS_METADATA, RMQ_SYS_EPOCH):
        broker.store_message(topic)
    assert broker.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    assert broker.store.topics().keys() == {"orders", RMQ_SYS_METADATA, RMQ_SYS_EPOCH}


def test_unused_topics_are_cleaned_on_all_replicas_and_by_the_master_alone(make_broker: MakeBroker) -> None:
    """A slave that could not read its tables, say, does not know which topics are in use."""
    leader, follower = pair(make_broker)
    leader.create_topic("orders")
    for topic in ("orders", "left-over"):
        leader.store_message(topic)
    replicate(leader, follower)
    follower.broker.topic_configs._table.pop("orders")
    assert follower.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    assert {"orders", "left-over"} <= follower.store.topics().keys()
    assert leader.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    replicate(leader, follower)
    assert leader.store.topics().keys() == follower.store.topics().keys()
    assert "left-over" not in follower.store.topics()


def test_a_master_that_cannot_read_its_tables_cleans_no_topics(broker: BrokerUnderTest) -> None:
    broker.store_message("orders")
    broker.broker.metadata_log._is_stale = True
    assert broker.ask(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "orders" in broker.store.topics()
