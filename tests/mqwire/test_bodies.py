"""JSON bodies: what Java's fastjson and Go's client write is read, what we write they can read."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib

import pytest

from mqwire import bodies
from mqwire.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    ConsumerRunningInfo,
    ConsumeStats,
    DataVersion,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    OffsetWrapper,
    ProducerData,
    QueueData,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicQueueMappingInfo,
    TopicRouteData,
    TopicStatsTable,
)
from mqwire.bodies.base import Body
from mqwire.bodies.register_broker import MAX_INFLATION
from mqwire.errors import RemoteProtocolError

MEBIBYTE = 1024 * 1024
QUEUE = MessageQueue(topic="orders", broker_name="broker-a", queue_id=3)

# (body, our bytes, the same as other programs write it)
CASES = [
    pytest.param(
        TopicRouteData(
            queue_datas=[QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=4, perm=6)],
            broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1", 1: "h:2"})],
        ),
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":4,"writeQueueNums":4,"perm":6,"topicSysFlag":0}],'
        b'"brokerDatas":[{"cluster":"c","brokerName":"a","brokerAddrs":{"0":"h:1","1":"h:2"},'
        b'"enableActingMaster":false}],"filterServerTable":{}}',
        b'{"brokerDatas":[{"brokerAddrs":{0:"h:1",1:"h:2"},"brokerName":"a","cluster":"c","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSynFlag":0,'
        b'"topicSysFlag":0,"writeQueueNums":4}]}',
        id="TopicRouteData of an old Java name server",
    ),
    pytest.param(
        ClusterInfo(
            broker_addr_table={"a": BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1"})},
            cluster_addr_table={"c": ["a"]},
        ),
        b'{"brokerAddrTable":{"a":{"cluster":"c","brokerName":"a","brokerAddrs":{"0":"h:1"},'
        b'"enableActingMaster":false}},"clusterAddrTable":{"c":["a"]}}',
        b'{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1"},"brokerName":"a","cluster":"c"}},"clusterAddrTable":{"c":["a"]}}',
        id="ClusterInfo of a Java name server",
    ),
    pytest.param(
        ConsumeStats(offset_table={QUEUE: OffsetWrapper(broker_offset=9, consumer_offset=5)}, consume_tps=1.5),
        b'{"offsetTable":{{"topic":"orders","brokerName":"broker-a","queueId":3}:'
        b'{"brokerOffset":9,"consumerOffset":5,"pullOffset":0,"lastTimestamp":0}},"consumeTps":1.5}',
        b'{"consumeTps":1.5,"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:'
        b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":0,"pullOffset":0}}}',
        id="ConsumeStats of a Java broker",
    ),
    pytest.param(
        TopicStatsTable(offset_table={QUEUE: TopicOffset(min_offset=0, max_offset=7, last_update_timestamp=1)}),
        b'{"topicPutTps":0.0,"offsetTable":{{"topic":"orders","brokerName":"broker-a","queueId":3}:'
        b'{"minOffset":0,"maxOffset":7,"lastUpdateTimestamp":1}}}',
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:'
        b'{"lastUpdateTimestamp":1,"maxOffset":7,"minOffset":0}}}',
        id="TopicStatsTable of a Java broker",
    ),
    pytest.param(
        ResetOffsetBody(offset_table={QUEUE: 12}),
        b'{"offsetTable":{{"topic":"orders","brokerName":"broker-a","queueId":3}:12}}',
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"orders"}:12}}',
        id="ResetOffsetBody of a Java broker",
    ),
    pytest.param(
        ConsumerOffsetSerializeWrapper(offset_table={"orders@g": {0: 5, 1: 6}}),
        b'{"offsetTable":{"orders@g":{"0":5,"1":6}}}',
        b'{"dataVersion":null,"offsetTable":{"orders@g":{0:5,1:6}}}',
        id="consumer offsets of a Java broker",
    ),
    pytest.param(
        LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=[QUEUE]),
        b'{"consumerGroup":"g","clientId":"c","onlyThisBroker":false,'
        b'"mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":3}]}',
        b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"orders","brokerName":"broker-a","queueId":3}]}',
        id="LockBatchRequestBody of a Go consumer",
    ),
    pytest.param(
        LockBatchResponseBody(lock_ok_mq_set=[QUEUE]),
        b'{"lockOKMQSet":[{"topic":"orders","brokerName":"broker-a","queueId":3}]}',
        b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":3,"topic":"orders"}]}',
        id="LockBatchResponseBody of a Java broker",
    ),
    pytest.param(
        HeartbeatData(
            client_id="10.0.0.1@1",
            producer_data_set=[ProducerData(group_name="p")],
            consumer_data_set=[
                ConsumerData(
                    group_name="g",
                    consume_type="CONSUME_PASSIVELY",
                    message_model="Clustering",
                    consume_from_where="CONSUME_FROM_LAST_OFFSET",
                    subscription_data_set=[
                        SubscriptionData(topic="orders", sub_string="a", tags_set=["a"], code_set=[97], sub_version=1)
                    ],
                )
            ],
        ),
        b'{"clientID":"10.0.0.1@1","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"Clustering","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"orders","subString":"a","tagsSet":["a"],'
        b'"codeSet":[97],"subVersion":1,"expressionType":"TAG"}],"unitMode":false}],"heartbeatFingerprint":0,'
        b'"withoutSub":false}',
        b'{"clientID":"10.0.0.1@1","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g",'
        b'"consumeType":"CONSUME_PASSIVELY","messageModel":"Clustering","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"subscriptionDataSet":[{"classFilterMode":false,"topic":"orders","subString":"a","tagsSet":["a"],'
        b'"codeSet":["97"],"subVersion":1,"expressionType":"TAG"}],"unitMode":false}]}',
        id="HeartbeatData of a Go client, with hashes as text",
    ),
    pytest.param(
        SubscriptionGroupConfig(group_name="g"),
        b'{"groupName":"g","consumeEnable":true,"consumeFromMinEnable":true,"consumeBroadcastEnable":true,'
        b'"consumeMessageOrderly":false,"retryQueueNums":1,"retryMaxTimes":16,"groupRetryPolicy":{"type":"CUSTOMIZED"},'
        b'"brokerId":0,"whichBrokerWhenConsumeSlowly":1,"notifyConsumerIdsChangedEnable":true,"groupSysFlag":0,'
        b'"consumeTimeoutMinute":15,"attributes":{}}',
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"g",'
        b'"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}',
        id="SubscriptionGroupConfig of a 4.x tool",
    ),
    pytest.param(
        KVTable(table={"a": "1"}), b'{"table":{"a":"1"}}', b'{"table":{"a":"1","gone":null}}', id="KVTable with a null"
    ),
    pytest.param(
        TopicList(topic_list=["a"]), b'{"topicList":["a"]}', b'{"brokerAddr":null,"topicList":["a"]}', id="TopicList"
    ),
    pytest.param(
        DataVersion(counter=3, timestamp=5),
        b'{"stateVersion":0,"timestamp":5,"counter":3}',
        b'{"counter":3,"timestamp":5}',
        id="DataVersion of a 4.x broker",
    ),
]


@pytest.mark.parametrize(("body", "ours", "theirs"), CASES)
def test_a_body_is_written_as_exactly_these_bytes(body: Body, ours: bytes, theirs: bytes) -> None:
    assert body.to_json() == ours


@pytest.mark.parametrize(("body", "ours", "theirs"), CASES)
def test_our_own_bytes_are_read_as_the_body(body: Body, ours: bytes, theirs: bytes) -> None:
    assert type(body).from_json(ours) == body


@pytest.mark.parametrize(("body", "ours", "theirs"), CASES)
def test_other_programs_bytes_are_read_as_the_body(body: Body, ours: bytes, theirs: bytes) -> None:
    assert type(body).from_json(memoryview(theirs)) == body


def test_broker_addresses_can_be_taken_apart_as_gos_client_does() -> None:
    # route.go: the text between the braces, split at commas, then at the first colon; quotes are removed.
    data = BrokerData(cluster="c", broker_name="a", broker_addrs={0: "10.0.0.1:10911", 2: "[fe80::1]:10921"})
    text = json.dumps(json.loads(data.to_json())["brokerAddrs"], separators=(",", ":"))
    assert text.encode() in data.to_json()
    pairs = (part.partition(":") for part in text[1:-1].split(","))
    assert {int(name.replace('"', "")): value.replace('"', "") for name, _, value in pairs} == data.broker_addrs


def test_reset_offsets_can_be_taken_apart_as_gos_client_does() -> None:
    # model.go: without the braces, split at ",{" and at "}:", for a body that is not valid JSON.
    queues = {QUEUE: 12, MessageQueue(topic="orders", broker_name="broker-b", queue_id=0): 7}
    data = ResetOffsetBody(offset_table=queues).to_json().decode()
    table = data.removeprefix('{"offsetTable":').removesuffix("}")
    found = {}
    for part in table[2:-1].split(",{"):
        queue, _, offset = part.partition("}:")
        found[MessageQueue.from_json(("{" + queue + "}").encode())] = int(offset)
    assert found == queues


def test_a_go_clients_running_information_is_read() -> None:
    info = ConsumerRunningInfo.from_json(
        b'{"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"},"statusTable":{"orders":{"pullRT":1,"pullTPS":2.5,'
        b'"consumeRT":0,"consumeOKTPS":3,"consumeFailedTPS":0,"consumeFailedMsgs":0}},"subscriptionSet":[],'
        b'"mqTable":{{"topic":"orders","brokerName":"broker-a","queueId":3}:{"commitOffset":4,"locked":true,'
        b'"cachedMsgSizeInMiB":1,"dropped":false}}, "jstack":"goroutine 1" }'
    )
    assert info.mq_table[QUEUE].commit_offset == 4
    assert info.mq_table[QUEUE].cached_msg_size_in_mib == 1
    assert info.status_table["orders"].consume_ok_tps == 3


def test_a_javas_group_table_is_read() -> None:
    wrapper = SubscriptionGroupWrapper.from_json(
        b'{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":1},"forbiddenTable":{},"subscriptionGroupTable":'
        b'{"g":{"attributes":{},"brokerId":0,"groupName":"g","groupRetryPolicy":{"type":"EXPONENTIAL",'
        b'"exponentialRetryPolicy":{"initial":1,"max":2,"multiplier":3}},"subscriptionDataSet":[{"topic":"t"}]}}}'
    )
    group = wrapper.subscription_group_table["g"]
    assert group.group_retry_policy.exponential_retry_policy is not None
    assert group.group_retry_policy.exponential_retry_policy.multiplier == 3
    assert group.subscription_data_set is not None


REFUSED = [
    pytest.param(TopicRouteData, b"", "TopicRouteData", id="nothing"),
    pytest.param(TopicRouteData, b"[]", "TopicRouteData", id="an array"),
    pytest.param(TopicRouteData, b'{"queueDatas":{}}', "queueDatas", id="an object for an array"),
    pytest.param(TopicRouteData, b'{"queueDatas":[{"brokerName":"a"}]}', "readQueueNums", id="a missing member"),
    pytest.param(
        TopicRouteData,
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":4294967296,"writeQueueNums":1,"perm":6}]}',
        "readQueueNums",
        id="a number of 33 bits",
    ),
    pytest.param(
        BrokerData, b'{"cluster":"c","brokerName":"a","brokerAddrs":{"x":"y"}}', "brokerAddrs", id="a name that is no number"
    ),
    pytest.param(ConsumeStats, b'{"offsetTable":{{"topic":"t"}:{}}}', "brokerName", id="half a queue as name"),
    pytest.param(ConsumeStats, b'{"offsetTable":{"text":{}}}', "offsetTable", id="text for a queue as name"),
    pytest.param(KVTable, b'{"table":{"a":"\xff"}}', "UTF-8", id="not utf-8"),
    pytest.param(KVTable, b"[" * 100_000, "nested|KVTable", id="too deep"),
    pytest.param(KVTable, b'{"table":{"a":' * 50_000, "nested|KVTable", id="objects too deep"),
    pytest.param(DataVersion, b'{"counter":' + b"9" * 5000 + b"}", "DataVersion", id="a number of 5000 digits"),
]  # fmt: skip


@pytest.mark.parametrize(("body_type", "data", "message"), REFUSED)
def test_what_cannot_be_read_is_refused_with_its_reason(body_type: type[Body], data: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        body_type.from_json(data)


def test_every_body_that_needs_nothing_comes_back() -> None:
    for name in bodies.__all__:
        body_type = getattr(bodies, name)
        try:
            body = body_type()
        except TypeError:
            continue  # has required members; the tables above have examples
        assert body_type.from_json(body.to_json()) == body


def test_defaults_are_not_shared_between_bodies() -> None:
    TopicList().topic_list.append("mine")
    assert TopicList().topic_list == []


def test_the_next_version_counts_one_change() -> None:
    assert DataVersion(counter=4, timestamp=1).next_version(9) == DataVersion(counter=5, timestamp=9)


# --- RegisterBrokerBody --------------------------------------------------------------------------------------------


def registration(topic_count: int = 3, *, mapped: bool = False) -> RegisterBrokerBody:
    topics = {
        f"topic-{number}": TopicConfig(topic_name=f"topic-{number}", read_queue_nums=number, attributes={"+a": "b"})
        for number in range(topic_count)
    }
    mappings = {"static": TopicQueueMappingInfo(topic="static", bname="a", curr_id_map={0: 1})} if mapped else {}
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table=topics,
            data_version=DataVersion(counter=3, timestamp=1),
            topic_queue_mapping_info_map=mappings,
        )
    )


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("topic_count", [0, 1, 2000])
def test_a_registration_comes_back(compressed: bool, mapped: bool, topic_count: int) -> None:
    body = registration(topic_count, mapped=mapped)
    assert RegisterBrokerBody.decode(body.encode(compress=compressed), compressed=compressed) == body


def packed(*pieces: bytes | int) -> bytes:
    content = b"".join(
        struct.pack(">I", piece) if isinstance(piece, int) else struct.pack(">I", len(piece)) + piece
        for piece in pieces
    )
    return zlib.compress(content)


VERSION_JSON = b'{"counter":1,"stateVersion":0,"timestamp":2}'


def test_a_compressed_registration_is_rocketmqs() -> None:
    data = packed(VERSION_JSON, 2, b"orders 4 5 6 SINGLE_TAG {}", b"paid 1 1 4 SINGLE_TAG ", b"[]", 0)
    wrapper = RegisterBrokerBody.decode(data, compressed=True).topic_config_serialize_wrapper
    assert wrapper.data_version == DataVersion(counter=1, timestamp=2)
    assert wrapper.topic_config_table == {
        "orders": TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=5, perm=6),
        "paid": TopicConfig(topic_name="paid", read_queue_nums=1, write_queue_nums=1, perm=4),
    }


def test_a_4x_brokers_compressed_registration_ends_before_the_static_topics() -> None:
    body = RegisterBrokerBody.decode(packed(VERSION_JSON, 0, b'["h:1"]'), compressed=True)
    assert body.filter_server_list == ["h:1"]


def test_a_compressed_registration_that_is_not_said_to_be_one_is_read() -> None:
    # Apache's 5.x brokers with compressedRegister=true send such.
    assert RegisterBrokerBody.decode(registration().encode(compress=True), compressed=False) == registration()


BROKEN_REGISTRATIONS = [
    pytest.param(b"", "ends too early", id="nothing"),
    pytest.param(b"not deflate", "incorrect header", id="not deflate"),
    pytest.param(registration().encode(compress=True)[:-5], "ends too early", id="cut"),
    pytest.param(zlib.compress(b""), "inside a number", id="empty stream"),
    pytest.param(packed(2**31), "claimed", id="version of 2 GiB"),
    pytest.param(packed(VERSION_JSON, 2**32 - 1), "claimed", id="four billion topics"),
    pytest.param(packed(VERSION_JSON, 1), "claimed", id="a topic that is not there"),
    pytest.param(packed(VERSION_JSON, 1, b"orders 4 4", b"[]"), "fewer than five", id="a topic with three values"),
    pytest.param(packed(VERSION_JSON, 1, b"orders x 4 6 SINGLE_TAG", b"[]"), "readQueueNums", id="queues that are no number"),
    pytest.param(packed(VERSION_JSON, 1, b"orders 4 4 6 SINGLE_TAG {", b"[]"), "TopicConfig", id="broken attributes"),
    pytest.param(packed(VERSION_JSON, 1, b"\xff 4 4 6 SINGLE_TAG", b"[]"), "UTF-8", id="a topic not utf-8"),
    pytest.param(packed(VERSION_JSON, 0, b"{}"), "filter servers", id="filter servers that are no array"),
    pytest.param(packed(b"[]", 0, b"[]"), "DataVersion", id="a version that is no object"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BROKEN_REGISTRATIONS)
def test_a_broken_compressed_registration_is_refused_with_its_reason(data: bytes, message: str) -> None:
    with pytest.raises(RemoteProtocolError, match=message):
        RegisterBrokerBody.decode(data, compressed=True)


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    bomb = zlib.compress(b"\x00" * (64 * MEBIBYTE), 9)
    assert len(bomb) < MEBIBYTE
    small_bomb = bomb[: 20 * 1024]
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="unfold to more than"):
            RegisterBrokerBody.decode(small_bomb, compressed=True)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * MAX_INFLATION * len(small_bomb)


def test_the_limit_of_a_registration_is_a_parameter() -> None:
    data = registration(2000).encode(compress=True)
    with pytest.raises(RemoteProtocolError, match="more than 50000"):
        RegisterBrokerBody.decode(data, compressed=True, max_inflated_bytes=50_000)
