"""Administration of real clusters, Apache's and ours."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from highwater import (
    Admin,
    ConfigurationError,
    ConnectError,
    ConsumerOfflineError,
    MemberSubscription,
    Message,
    MessageQueue,
    NoRouteError,
    Producer,
    ReceivedMessage,
    TopicNotFoundError,
    _admin_messages,
    is_system_topic,
)
from tests.highwater.cluster import Cluster
from tests.highwater.collector import Collector, wait_until

CLUSTER = "DefaultCluster"


def routed(admin: Admin, topic: str) -> bool:
    try:
        admin.topic_route(topic)
    except NoRouteError:
        return False
    return True


def wait_for_member(admin: Admin, group: str, client_id: str) -> None:
    def is_there() -> bool:
        return client_id in {member.client_id for member in admin.consumer_connections(group).connections}

    wait_until(is_there, "the broker knows the member")


def send_many(producer: Producer, topic: str, count: int) -> MessageQueue:
    queue = producer.publish_queues(topic)[0]
    for number in range(count):
        producer.send(Message(topic, b"m%d" % number, keys=[f"k{number}"]), queue=queue)
    return queue


def test_the_cluster_is_reported_with_its_brokers(cluster: Cluster, admin: Admin) -> None:
    info = admin.cluster_info()
    assert info.master_addresses(CLUSTER) == (cluster.broker_address,)
    assert [(broker.broker_name, dict(broker.broker_addrs)) for broker in info.brokers(CLUSTER)] == [
        (cluster.broker_name, {0: cluster.broker_address})
    ]
    assert info.brokers("nowhere") == ()


def test_a_topic_is_made_changed_and_deleted(cluster: Cluster, admin: Admin, unique: str) -> None:
    assert admin.create_topic(unique, cluster=CLUSTER, read_queue_nums=2, write_queue_nums=2) == (
        cluster.broker_address,
    )
    wait_until(lambda: routed(admin, unique), "the topic has a route")
    assert len(admin.topic_route(unique).publish_queues) == 2
    assert unique in admin.topic_list()
    assert unique in admin.topic_list(cluster=CLUSTER)
    admin.create_topic(
        unique, address=cluster.broker_address, read_queue_nums=4, write_queue_nums=3, perm=4, attributes={}
    )
    config = admin.topic_config(unique, cluster.broker_address)
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 3, 4)
    admin.delete_topic(unique, cluster=CLUSTER)
    wait_until(lambda: not routed(admin, unique), "the topic's route is gone")
    with pytest.raises(TopicNotFoundError):
        admin.topic_config(unique, cluster.broker_address)


def test_deleting_a_topic_that_is_not_there_is_no_error(admin: Admin, unique: str) -> None:
    admin.delete_topic(unique, cluster=CLUSTER)


def test_a_topics_attributes_are_kept(cluster: Cluster, admin: Admin, unique: str) -> None:
    admin.create_topic(unique, cluster=CLUSTER, attributes={"message.type": "FIFO"})
    assert admin.topic_config(unique, cluster.broker_address).attributes["message.type"] == "FIFO"


def test_an_attribute_is_removed(cluster: Cluster, admin: Admin, unique: str) -> None:
    admin.create_topic(unique, cluster=CLUSTER, attributes={"message.type": "FIFO"})
    admin.create_topic(unique, cluster=CLUSTER, attributes={"message.type": None})
    assert "message.type" not in admin.topic_config(unique, cluster.broker_address).attributes


def test_an_attribute_of_a_group_is_removed(cluster: Cluster, admin: Admin, unique: str) -> None:
    admin.create_group(unique, cluster=CLUSTER, attributes={"priority.factor": "2"})
    assert admin.group_configs(cluster.broker_address)[unique].attributes == {"priority.factor": "2"}
    admin.create_group(unique, cluster=CLUSTER, attributes={"priority.factor": None})
    assert admin.group_configs(cluster.broker_address)[unique].attributes == {}


def test_an_unknown_cluster_is_refused_with_those_that_are_known(admin: Admin, unique: str) -> None:
    with pytest.raises(NoRouteError, match=CLUSTER):
        admin.create_topic(unique, cluster="nowhere")


def test_a_change_needs_a_cluster_or_an_address(admin: Admin, unique: str) -> None:
    with pytest.raises(ConfigurationError, match="either a cluster or the address"):
        admin.create_topic(unique)


def test_a_topics_statistics_count_its_messages(admin: Admin, producer: Producer, topic: str) -> None:
    queue = send_many(producer, topic, 5)
    stats = admin.topic_stats(topic)
    assert stats.message_count == 5
    assert [one.queue.queue_id for one in stats.queues] == [0, 1, 2, 3]
    filled = next(one for one in stats.queues if one.queue == queue)
    assert (filled.min_offset, filled.max_offset) == (0, 5)
    assert filled.last_update_timestamp_ms is not None
    assert {one.last_update_timestamp_ms for one in stats.queues if one.queue != queue} == {None}


def test_a_queues_offsets_are_reported(admin: Admin, producer: Producer, topic: str) -> None:
    before_ms = int(time.time() * 1000) - 60_000
    queue = send_many(producer, topic, 5)
    assert (admin.min_offset(queue), admin.max_offset(queue), admin.search_offset(queue, before_ms)) == (0, 5, 0)
    earliest_ms = admin.earliest_store_time_ms(queue)
    assert earliest_ms is not None
    assert earliest_ms > before_ms
    assert admin.search_offset(queue, int(time.time() * 1000) + 60_000) == 5


def test_messages_are_looked_at_without_consuming_them(admin: Admin, producer: Producer, topic: str) -> None:
    queue = send_many(producer, topic, 5)
    assert [message.body for message in admin.pull(queue, 2)] == [b"m2", b"m3", b"m4"]
    assert [message.body for message in admin.pull(queue, 0, 2)] == [b"m0", b"m1"]
    assert admin.pull(queue, 5) == []
    assert admin.consumer_offset("TOOLS_CONSUMER", queue) in (None, 0)


def test_a_pull_and_a_search_unfold_no_more_than_enough(
    producer: Producer, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_admin_messages, "_ENOUGH_BYTES", 20_000)
    queue = producer.publish_queues(topic)[0]
    for _ in range(3):
        producer.send(Message(topic, bytes(10_000), keys=[f"k-{topic}"]), queue=queue)
    assert [len(message.body) for message in admin.pull(queue, 0)] == [10_000, 10_000]
    wait_until(lambda: len(admin.messages_by_key(topic, f"k-{topic}")) == 3, "all are indexed")
    found = admin.messages_by_key(topic, f"k-{topic}")
    assert sorted(len(message.body) == 10_000 for message in found) == [False, True, True]


def test_the_newest_messages_come_first(admin: Admin, producer: Producer, topic: str) -> None:
    for number in range(50):
        producer.send(Message(topic, b"m%d" % number))
        if number >= 46:
            time.sleep(0.002)  # so that their times differ
    newest = admin.newest_messages(topic, limit=40)
    assert len(newest) == 40
    assert [message.body for message in newest[:3]] == [b"m49", b"m48", b"m47"]
    times = [message.store_timestamp_ms for message in newest]
    assert times == sorted(times, reverse=True)


def test_more_messages_than_one_answer_holds_are_found_whole(admin: Admin, producer: Producer, topic: str) -> None:
    queue = producer.publish_queues(topic)[0]
    sent = [bytes([number]) * 60_000 for number in range(12)]
    for body in sent:
        producer.send(Message(topic, body), queue=queue)
    assert sorted(message.body for message in admin.newest_messages(topic, limit=12)) == sent


def test_a_topic_without_messages_has_no_newest(admin: Admin, topic: str) -> None:
    assert admin.newest_messages(topic) == []


def test_a_message_is_found_by_the_brokers_id(admin: Admin, producer: Producer, topic: str) -> None:
    result = producer.send(Message(topic, b"here", keys=["k"]))
    message = admin.message_by_id(result.offset_message_id)
    assert (message.body, message.topic, message.message_id) == (b"here", topic, result.message_id)


def test_text_that_is_no_id_is_refused(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="not a message id"):
        admin.message_by_id("hello")


def test_a_message_is_found_by_its_key_and_by_the_clients_id(admin: Admin, producer: Producer, topic: str) -> None:
    send_many(producer, topic, 3)
    sent = producer.send(Message(topic, b"wanted", keys=["order-1"]))
    wait_until(lambda: bool(admin.messages_by_key(topic, "order-1")), "the index has the key")
    assert [message.body for message in admin.messages_by_key(topic, "order-1")] == [b"wanted"]
    assert admin.messages_by_key(topic, "order-2") == []
    found = admin.message_by_unique_key(topic, sent.message_id)
    assert found is not None
    assert found.body == b"wanted"
    either = admin.query_messages(topic, sent.message_id)
    assert [message.body for message in either.messages] == [b"wanted"]


def test_messages_of_a_key_are_found_by_time_newest_first(admin: Admin, producer: Producer, topic: str) -> None:
    queue = producer.publish_queues(topic)[0]
    for number in range(3):
        producer.send(Message(topic, b"m%d" % number, keys=["k", f"only-{number}"]), queue=queue)
        time.sleep(0.005)  # so that their times differ
    wait_until(lambda: len(admin.messages_by_key(topic, "k")) == 3, "the index has them all")
    found = admin.messages_by_key(topic, "k")
    assert [message.body for message in found] == [b"m2", b"m1", b"m0"]
    assert [message.body for message in admin.messages_by_key(topic, "k", limit=1)] == [b"m2"]
    minute_before_ms = found[2].store_timestamp_ms - 60_000  # Apache's broker is exact to the second only
    assert len(admin.messages_by_key(topic, "k", begin_ms=minute_before_ms)) == 3
    assert admin.messages_by_key(topic, "k", end_ms=minute_before_ms) == []


def test_a_broker_that_finds_nothing_says_why(cluster: Cluster, admin: Admin, topic: str) -> None:
    result = admin.query_messages(topic, "nobody")
    assert result.messages == ()
    assert ["can not find message" in remark for remark in result.remarks.values()] == [True]


def test_a_group_is_made_changed_and_deleted(cluster: Cluster, admin: Admin, unique: str) -> None:
    admin.create_group(unique, cluster=CLUSTER, retry_max_times=3, consume_broadcast_enable=False)
    config = admin.group_configs(cluster.broker_address)[unique]
    assert (config.retry_max_times, config.consume_broadcast_enable, config.consume_enable) == (3, False, True)
    assert unique in admin.group_list()
    admin.create_group(unique, address=cluster.broker_address, retry_max_times=5)
    assert admin.group_configs(cluster.broker_address)[unique].retry_max_times == 5
    admin.delete_group(unique, cluster=CLUSTER)
    assert unique not in admin.group_list(cluster=CLUSTER)


def test_a_groups_progress_and_members_are_reported(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str
) -> None:
    group = f"g-{topic}"
    queue = send_many(producer, topic, 5)
    collector = Collector()
    consumer = cluster.consumer(group, collector, topic)
    with consumer:
        collector.wait(5)
        members = admin.consumer_connections(group)
        assert [member.client_id for member in members.connections] == [consumer.client_id]
        assert members.connections[0].language == "PYTHON"
        assert members.subscriptions[topic] == "*"
        if cluster.brand == "highwater":  # RocketMQ's brokers don't report it
            assert MemberSubscription(topic, "*", "TAG") in members.member_subscriptions[consumer.client_id]
        assert (members.message_model, members.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
    send_many(producer, topic, 2)
    progress = admin.consumer_progress(group, topic=topic)
    mine = next(one for one in progress.queues if one.queue == queue)
    assert (mine.broker_offset, mine.consumer_offset, mine.lag) == (7, 5, 2)
    assert progress.lag == 2
    assert admin.consumer_offset(group, queue) == 5
    assert group in admin.topic_groups(topic)


def test_a_member_reports_how_it_is_doing(cluster: Cluster, admin: Admin, producer: Producer, topic: str) -> None:
    group = f"g-{topic}"
    queue = send_many(producer, topic, 5)
    collector = Collector()
    consumer = cluster.consumer(group, collector, topic)
    with consumer:
        collector.wait(5)
        wait_for_member(admin, group, consumer.client_id)
        info = admin.consumer_running_info(group, consumer.client_id, stack=True)
    assert MemberSubscription(topic, "*", "TAG") in info.subscriptions
    (mine,) = [one for one in info.queues if one.queue == queue]
    assert (mine.commit_offset, mine.cached_messages, mine.dropped) == (5, 0, False)
    assert mine.last_consume_timestamp_ms is not None
    assert "MainThread" in str(info.stack)


def test_a_member_handles_one_message_again(cluster: Cluster, admin: Admin, producer: Producer, topic: str) -> None:
    group = f"g-{topic}"
    sent = producer.send(Message(topic, b"again"))
    collector = Collector()
    consumer = cluster.consumer(group, collector, topic)
    with consumer:
        collector.wait(1)
        wait_for_member(admin, group, consumer.client_id)
        result = admin.consume_message_directly(group, consumer.client_id, sent.offset_message_id)
        collector.wait(2)
    assert (result.consume_result, result.order) == ("CR_SUCCESS", False)
    assert collector.bodies == [b"again", b"again"]


def test_a_handler_that_fails_on_request_says_why(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str
) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise ValueError("out of stock")

    group = f"g-{topic}"
    sent = producer.send(Message(topic, b"x"))
    consumer = cluster.consumer(group, Collector(fail), topic)
    with consumer:
        wait_for_member(admin, group, consumer.client_id)
        result = admin.consume_message_directly(group, consumer.client_id, sent.offset_message_id)
    assert result.consume_result == "CR_LATER"
    assert "out of stock" in str(result.remark)


def test_a_member_that_is_not_connected_is_offline(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str
) -> None:
    group = f"g-{topic}"
    sent = producer.send(Message(topic, b"x"))
    consumer = cluster.consumer(group, Collector(), topic)
    with consumer:
        wait_for_member(admin, group, consumer.client_id)
        with pytest.raises(ConsumerOfflineError):
            admin.consumer_running_info(group, "nobody@1")
        with pytest.raises(ConsumerOfflineError):
            admin.consume_message_directly(group, "nobody@1", sent.offset_message_id)


def test_another_broker_than_the_one_in_the_id_can_be_asked(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str, free_port: Callable[[], int]
) -> None:
    sent = producer.send(Message(topic, b"x"))
    with pytest.raises(ConnectError):
        admin.consume_message_directly("g", "c@1", sent.offset_message_id, address=f"127.0.0.1:{free_port()}")


def test_a_member_handles_no_text_that_is_no_id(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="not a message id"):
        admin.consume_message_directly("g", "c@1", "hello")


def test_a_group_without_members_has_no_connections(admin: Admin, unique: str) -> None:
    admin.create_group(unique, cluster=CLUSTER)
    assert admin.consumer_connections(unique).connections == ()


def test_producers_are_reported(admin: Admin, producer: Producer, topic: str) -> None:
    producer.send(Message(topic, b"hello"))
    wait_until(lambda: bool(admin.producer_connections("producers", topic)), "the broker knows the producer")
    assert admin.producer_connections("nobody", topic) == ()


def test_a_group_that_is_offline_is_reset_to_a_time(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str
) -> None:
    group = f"g-{topic}"
    queue = send_many(producer, topic, 5)
    for expected in (5, 10):
        collector = Collector()
        consumer = cluster.consumer(group, collector, topic)
        with consumer:
            collector.wait(5)
        offsets = admin.reset_offset_by_time(group, topic, 0)
        assert offsets[queue] == 0
        assert expected


def test_a_consumer_that_runs_while_its_group_is_reset_reads_again_and_commits_again(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str
) -> None:
    group = f"g-{topic}"
    queue = send_many(producer, topic, 5)
    collector = Collector()
    with cluster.consumer(group, collector, topic):
        collector.wait(5)
        wait_until(lambda: admin.consumer_offset(group, queue) == 5, "all are committed")
        admin.reset_offset(group, queue, 2)
        assert [message.queue_offset for message in collector.wait(8)] == [0, 1, 2, 3, 4, 2, 3, 4]
        wait_until(lambda: admin.consumer_offset(group, queue) == 5, "they are committed again")


def test_a_reset_to_the_end_leaves_nothing_to_consume(
    cluster: Cluster, admin: Admin, producer: Producer, topic: str
) -> None:
    group = f"g-{topic}"
    collector = Collector()
    consumer = cluster.consumer(group, collector, topic)
    with consumer:
        wait_until(lambda: len(consumer.assigned_queues()) >= 4, "the group has its queues")
    queue = send_many(producer, topic, 5)
    assert admin.reset_offset_by_time(group, topic, -1)[queue] == 5


def test_a_broker_reports_its_state_and_configuration(cluster: Cluster, admin: Admin) -> None:
    assert {"bootTimestamp", "brokerVersionDesc", "putTps"} <= set(admin.broker_runtime_info(cluster.broker_address))
    config = admin.broker_config(cluster.broker_address)
    assert (config["brokerName"], config["brokerClusterName"]) == (cluster.broker_name, CLUSTER)


def test_name_servers_keep_values(admin: Admin, unique: str) -> None:
    assert admin.get_kv_config(unique, "k") is None
    assert admin.kv_list(unique) == {}
    admin.put_kv_config(unique, "k", "v")
    admin.put_kv_config(unique, "l", "w")
    assert admin.get_kv_config(unique, "k") == "v"
    assert admin.kv_list(unique) == {"k": "v", "l": "w"}
    admin.delete_kv_config(unique, "k")
    assert admin.get_kv_config(unique, "k") is None


def test_a_broker_is_taken_out_of_writing_and_put_back(cluster: Cluster, admin: Admin, topic: str) -> None:
    assert admin.wipe_write_perm(cluster.broker_name) > 0
    try:
        assert admin.topic_route(topic).publish_queues == ()
        assert len(admin.topic_route(topic).subscribe_queues) == 4
    finally:
        admin.add_write_perm(cluster.broker_name)
    assert len(admin.topic_route(topic).publish_queues) == 4


def test_system_topics_can_be_distinguished_from_a_users(admin: Admin, topic: str) -> None:
    assert not is_system_topic(topic)
    for system in ("%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "TBW102", "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC"):
        assert is_system_topic(system), system
