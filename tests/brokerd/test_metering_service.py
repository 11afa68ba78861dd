"""Metering in a whole broker: who is counted for what, when it is recorded, and where a restart goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from brokerd.metering import meter
from mqwire.acl import SessionCredentials, Signer
from mqwire.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from mqwire.codes import RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_send import ConsumerSendMsgBackRequestHeader
from mqwire.headers_topic import DeleteTopicRequestHeader
from mqwire.message import BatchItem, encode_batch_body
from mqwire.names import AGE_LOOK_GROUP, RMQ_SYS_METERING
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock, RecordingPeer
from tests.brokerd.metered_broker import (
    ACCOUNTS,
    ALICE,
    BILLER,
    OPERATOR,
    assert_tiled,
    commit,
    dispatch,
    look,
    next_interval,
    pull,
    pull_header,
    records,
    send,
    send_request,
    sums,
    with_accounts,
)

# --- what is recorded


def test_each_interval_says_what_was_sent_in_it(broker: BrokerUnderTest) -> None:
    send(broker, body=b"x" * 5000)
    send(broker, "payments")
    next_interval(broker)
    send(broker)
    next_interval(broker)
    first, second = records(broker)
    assert sums([first]) == {("orders", "normal"): (1, 5000, 2), ("payments", "normal"): (1, 4, 1)}
    assert sums([second]) == {("orders", "normal"): (1, 4, 1)}
    assert (first.cluster, first.broker, first.epoch, first.sequence, second.sequence) == (
        "DefaultCluster",
        "broker-a",
        1,
        1,
        2,
    )
    assert not first.recounted
    assert_tiled([first, second])


def test_intervals_end_at_full_minutes(broker: BrokerUnderTest, clock: ManualClock) -> None:
    into_the_minute = clock.wall_ms % 60_000
    assert into_the_minute
    clock.advance((60_000 - into_the_minute) / 1000 - 0.001)
    look(broker)
    assert records(broker) == []
    clock.advance(0.001)
    look(broker)
    (record,) = records(broker)
    assert record.end_ms % 60_000 == 0


def test_the_ranges_begin_at_the_logs_first_byte(broker: BrokerUnderTest) -> None:
    next_interval(broker)
    assert records(broker)[0].start_offset == 0


def test_the_record_does_not_count_itself(broker: BrokerUnderTest) -> None:
    for _ in range(3):
        next_interval(broker)
    assert sums(records(broker)) == {}
    assert_tiled(records(broker))


def test_each_message_of_a_batch_counts(broker: BrokerUnderTest) -> None:
    send(
        broker, body=encode_batch_body([BatchItem(0, b"a" * size, b"KEYS\x01k\x02") for size in (1, 2, 3)]), batch=True
    )
    next_interval(broker)
    assert sums(records(broker)) == {("orders", "normal"): (3, 6, 3)}


def test_a_delayed_message_counts_once_when_it_is_sent(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker, properties="DELAY\x012\x02")
    next_interval(broker)
    assert broker.broker.schedule.deliver_due()
    next_interval(broker)
    assert len(broker.messages("orders")) == 1
    assert sums(records(broker)) == {("orders", "delayed"): (1, 4, 1)}


def test_a_sharding_key_counts_as_ordered(broker: BrokerUnderTest) -> None:
    send(broker, properties="__SHARDINGKEY\x01customer-7\x02")
    next_interval(broker)
    assert sums(records(broker)) == {("orders", "ordered"): (1, 4, 1)}


def test_retries_and_dead_letters_count_under_their_own_names(broker: BrokerUnderTest) -> None:
    broker.create_group("g")
    send(broker)
    offset = broker.messages("orders")[0].physical_offset
    for delay_level in (0, -1):
        header = ConsumerSendMsgBackRequestHeader(offset=offset, group="g", delay_level=delay_level)
        assert broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header).code == ResponseCode.SUCCESS
    next_interval(broker)
    assert sums(records(broker)) == {
        ("orders", "normal"): (1, 4, 1),
        ("%RETRY%g", "delayed"): (1, 4, 1),
        ("%DLQ%g", "normal"): (1, 4, 1),
    }


def test_a_refused_send_does_not_count(broker: BrokerUnderTest, new_peer: type[RecordingPeer]) -> None:
    (answer,) = dispatch(broker, new_peer(), send_request(RMQ_SYS_METERING))
    assert answer.code == ResponseCode.NO_PERMISSION
    next_interval(broker)
    assert sums(records(broker)) == {}


def test_pulls_count_each_time_that_messages_are_handed_out(broker: BrokerUnderTest) -> None:
    for size in (10, 5000, 0):
        send(broker, body=b"x" * size)
    assert pull(broker).code == pull(broker, offset=1, group="h").code == pull(broker).code == ResponseCode.SUCCESS
    assert pull(broker, offset=3).code != ResponseCode.SUCCESS
    next_interval(broker)
    next_interval(broker)
    first, second = records(broker)
    assert [(row.topic, row.group, row.messages, row.bytes, row.units) for row in first.messages_out] == [
        ("orders", "g", 6, 10020, 8),
        ("orders", "h", 2, 5000, 3),
    ]
    assert second.messages_out == ()


def test_an_hours_records_have_rows_of_so_many_pairs_and_the_next_ones_of_others(
    broker: BrokerUnderTest, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "PAIRS_OF_CREDENTIAL_MAX", 2)
    send(broker)
    next_interval(broker)
    for number in range(4):
        pull(broker, group=f"g{number}")
        next_interval(broker)
    clock.advance(3600)
    look(broker)
    pull(broker, group="g3")
    next_interval(broker)
    rows = [(row.topic, row.group, row.messages) for record in records(broker) for row in record.messages_out]
    others = ("(others)", "(others)", 1)
    assert rows == [("orders", "g0", 1), ("orders", "g1", 1), others, others, ("orders", "g3", 1)]


def test_lag_is_reported_with_the_age_of_the_oldest_message_that_waits(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    for _ in range(3):
        send(broker)
        clock.advance(1)
    commit(broker, 1)
    next_interval(broker)
    ((row,),) = (record.lag for record in records(broker))
    assert (row.topic, row.group, row.queue_id) == ("orders", "g", 0)
    assert (row.consumer_offset, row.max_offset, row.lag_messages, row.lag_ms) == (1, 3, 2, 62_000)


def test_a_group_that_has_caught_up_has_no_lag(broker: BrokerUnderTest) -> None:
    send(broker)
    commit(broker, 1)
    next_interval(broker)
    ((row,),) = (record.lag for record in records(broker))
    assert (row.lag_messages, row.lag_ms) == (0, 0)


def heartbeat(message_model: str) -> HeartbeatData:
    """Of a client that sends, and consumes "orders" in group "g"."""
    consumer = ConsumerData(
        group_name="g",
        consume_type="CONSUME_PASSIVELY",
        message_model=message_model,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=[SubscriptionData(topic="orders", sub_string="*", sub_version=1)],
    )
    return HeartbeatData(client_id="c1", producer_data_set=[ProducerData(group_name="p")], consumer_data_set=[consumer])


def test_who_is_connected_is_reported_and_a_group_online_has_a_lag_before_its_first_commit(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    send(broker)
    peers = [new_peer(), new_peer()]
    for peer in peers:
        broker.request(RequestCode.HEART_BEAT, body=heartbeat("CLUSTERING").to_json(), peer=peer)
    next_interval(broker)
    (record,) = records(broker)
    assert (record.connections.producers, record.connections.consumers) == (2, 2)
    assert [(row.topic, row.group, row.consumer_offset, row.lag_messages) for row in record.lag] == [
        ("orders", "g", 0, 1)
    ]


def test_of_a_group_that_broadcasts_no_lag_is_known_whatever_it_once_committed(
    broker: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    send(broker)
    send(broker)
    commit(broker, 1)
    peer = new_peer()
    broker.request(RequestCode.HEART_BEAT, body=heartbeat("BROADCASTING").to_json(), peer=peer)
    next_interval(broker)
    (record,) = records(broker)
    assert record.lag == ()


def test_stored_bytes_are_those_of_the_topics_records(broker: BrokerUnderTest) -> None:
    send(broker, body=b"x" * 1000)
    for _ in broker.broker.metering.stored_bytes.update():
        pass
    next_interval(broker)
    (record,) = records(broker)
    stored = {row.topic: row.bytes for row in record.storage}
    assert stored["orders"] == broker.messages("orders")[0].size_bytes


def test_what_does_not_fit_one_message_is_reported_in_several(make_broker: MakeBroker) -> None:
    broker = make_broker(maxMessageSize="4096")
    for number in range(60):
        send(broker, f"topic-{number}")
    next_interval(broker)
    found = records(broker)
    assert len(found) > 1
    assert sums(found) == {(f"topic-{number}", "normal"): (1, 4, 1) for number in range(60)}
    assert_tiled(found)


# --- who


@pytest.fixture
def secured(make_broker: MakeBroker, tmp_path: Path) -> BrokerUnderTest:
    return with_accounts(make_broker, tmp_path)


def test_each_row_names_the_access_key_that_sent_or_pulled(secured: BrokerUnderTest) -> None:
    send(secured, signed_as=ALICE)
    send(secured, signed_as=OPERATOR)
    pull(secured, signed_as=ALICE)
    next_interval(secured)
    (record,) = records(secured)
    assert [(row.credential, row.messages) for row in record.messages_in] == [("alice-app", 1), ("operator", 1)]
    assert [(row.credential, row.messages) for row in record.messages_out] == [("alice-app", 2)]


def test_a_look_of_the_control_plane_at_a_messages_age_is_no_delivery(make_broker: MakeBroker, tmp_path: Path) -> None:
    control = SessionCredentials("control", "control-secret")
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(f"{ACCOUNTS}  - {{accessKey: control, secretKey: control-secret, infrastructure: true}}\n")
    broker = make_broker(aclEnable="true", aclConfigFile=str(accounts))
    send(broker, signed_as=ALICE)
    for credentials, group in ((control, AGE_LOOK_GROUP), (ALICE, AGE_LOOK_GROUP), (control, "g")):
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull_header(group=group))
        Signer(credentials, broker.clock.time_ms).sign(request)
        (answer,) = dispatch(broker, RecordingPeer(), request)
        assert answer.code == ResponseCode.SUCCESS
    next_interval(broker)
    (record,) = records(broker)
    assert [(row.credential, row.group, row.messages) for row in record.messages_out] == [
        ("alice-app", AGE_LOOK_GROUP, 1),
        ("control", "g", 1),
    ]


def test_accounts_that_share_a_connection_are_distinguished(
    secured: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    signers = [ALICE, ALICE, OPERATOR, ALICE, OPERATOR]
    requests = [send_request(body=b"%d" % number, signed_as=signer) for number, signer in enumerate(signers)]
    wrong = send_request(signed_as=SessionCredentials("operator", "a guess"))
    answers = dispatch(secured, new_peer(), *requests[:3], wrong, *requests[3:])
    assert {answer.opaque: answer.code for answer in answers} == {
        **{request.opaque: ResponseCode.SUCCESS for request in requests},
        wrong.opaque: ResponseCode.NO_PERMISSION,
    }
    assert [message.body for message in secured.messages("orders")] == [b"%d" % number for number in range(5)]
    next_interval(secured)
    (record,) = records(secured)
    assert [(row.credential, row.messages) for row in record.messages_in] == [("alice-app", 3), ("operator", 2)]


def test_without_access_control_no_one_can_write_on_anothers_bill(broker: BrokerUnderTest) -> None:
    send(broker, signed_as=ALICE)
    next_interval(broker)
    assert [row.credential for row in records(broker)[0].messages_in] == [""]


def test_the_topic_is_read_by_admins_and_whom_they_name_and_written_and_deleted_by_no_one(
    secured: BrokerUnderTest, new_peer: type[RecordingPeer]
) -> None:
    next_interval(secured)
    assert pull(secured, RMQ_SYS_METERING, signed_as=OPERATOR).code == ResponseCode.SUCCESS
    assert pull(secured, RMQ_SYS_METERING, signed_as=BILLER).code == ResponseCode.SUCCESS
    assert pull(secured, RMQ_SYS_METERING, signed_as=ALICE).code == ResponseCode.NO_PERMISSION
    for signer in (ALICE, BILLER, OPERATOR):
        (answer,) = dispatch(secured, new_peer(), send_request(RMQ_SYS_METERING, signed_as=signer))
        assert answer.code == ResponseCode.NO_PERMISSION
        delete = DeleteTopicRequestHeader(topic=RMQ_SYS_METERING)
        assert secured.ask(RequestCode.DELETE_TOPIC_IN_BROKER, delete, signed_as=signer).code != ResponseCode.SUCCESS
    assert len(records(secured)) == 1


# --- when


def test_only_what_is_confirmed_is_recorded(make_broker: MakeBroker, new_peer: type[RecordingPeer]) -> None:
    broker = make_broker(flushDiskType="SYNC_FLUSH")
    broker.store.flush()
    look(broker)
    peer = new_peer()
    assert dispatch(broker, peer, send_request()) == []
    next_interval(broker)
    assert records(broker) == []
    broker.store.flush()
    look(broker)
    broker.store.flush()
    broker.broker.held_changed()
    assert sums(records(broker)) == {("orders", "normal"): (1, 4, 1)}
    assert [answer.code for answer in peer.take()] == [ResponseCode.SUCCESS]


def test_while_sends_are_refused_nothing_is_recorded_and_nothing_is_lost(
    broker: BrokerUnderTest, clock: ManualClock
) -> None:
    send(broker)
    look(broker)
    broker.broker.replica.freeze_sends(1, clock.monotonic() + 150)
    next_interval(broker)
    next_interval(broker)
    assert records(broker) == []
    next_interval(broker)
    assert sums(records(broker)) == {("orders", "normal"): (1, 4, 1)}
    assert_tiled(records(broker))
    assert len(records(broker)) == 3


def test_a_clean_stop_records_the_open_interval(broker: BrokerUnderTest) -> None:
    send(broker)
    pull(broker)
    look(broker)
    trio.run(broker.broker.metering.finish)
    (record,) = records(broker)
    assert sums([record]) == {("orders", "normal"): (1, 4, 1)}
    assert [row.messages for row in record.messages_out] == [1]


def test_an_interval_of_0_switches_metering_off(make_broker: MakeBroker) -> None:
    broker = make_broker(meteringIntervalMs="0")
    send(broker)
    pull(broker)
    trio.run(broker.broker.metering.run)
    trio.run(broker.broker.metering.finish)
    assert records(broker) == []


# --- restarts


def test_a_crash_loses_and_doubles_nothing(broker: BrokerUnderTest) -> None:
    send(broker)
    next_interval(broker)
    send(broker, body=b"x" * 5000)
    send(broker, properties="DELAY\x011\x02")
    broker.crash()
    look(broker)
    send(broker, "payments")
    next_interval(broker)
    found = records(broker)
    assert [(record.epoch, record.sequence, record.recounted) for record in found] == [
        (1, 1, False),
        (2, 1, True),
        (2, 2, False),
    ]
    assert sums(found) == {
        ("orders", "normal"): (2, 5004, 3),
        ("orders", "delayed"): (1, 4, 1),
        ("payments", "normal"): (1, 4, 1),
    }
    assert_tiled(found)


def test_a_recounted_record_lies_at_its_messages_times(broker: BrokerUnderTest, clock: ManualClock) -> None:
    clock.advance(10)
    send(broker)
    first_ms = clock.time_ms()
    clock.advance(5)
    send(broker)
    last_ms = clock.time_ms()
    clock.advance(7200)
    broker.crash()
    look(broker)
    (record,) = records(broker)
    assert (record.start_ms, record.end_ms, record.recounted) == (first_ms, last_ms, True)
    assert [row.credential for row in record.messages_in] == [""]


def test_an_idle_restart_adds_no_record_of_its_own(broker: BrokerUnderTest) -> None:
    next_interval(broker)
    broker.restart()
    look(broker)
    assert len(records(broker)) == 1
    next_interval(broker)
    assert_tiled(records(broker))
    assert not records(broker)[-1].recounted


def test_many_crashes_at_any_moment_lose_and_double_nothing(broker: BrokerUnderTest, clock: ManualClock) -> None:
    for number in range(30):
        send(broker, body=b"x" * (number * 400), properties="__SHARDINGKEY\x01k\x02" if number % 5 == 0 else "")
        clock.advance(7)
        if number % 3 == 0:
            look(broker)
        if number % 4 == 0:
            broker.crash()
    broker.crash()
    look(broker)
    found = records(broker)
    assert sum(messages for messages, _, _ in sums(found).values()) == 30
    assert sums(found)["orders", "ordered"] == (6, sum(400 * n for n in range(0, 30, 5)), sum(
        -(-400 * n // 4096) or 1 for n in range(0, 30, 5)
    ))  # fmt: skip
    assert_tiled(found)


def test_what_was_sent_while_metering_was_off_is_counted_when_it_is_on_again(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(meteringIntervalMs="0")
    send(broker)
    conf = broker.folder / "broker.conf"
    conf.write_text(conf.read_text().replace("meteringIntervalMs=0", "meteringIntervalMs=60000"))
    broker.restart()
    look(broker)
    assert sums(records(broker)) == {("orders", "normal"): (1, 4, 1)}


def test_a_leadership_that_no_one_reported_is_counted_from_the_log(broker: BrokerUnderTest) -> None:
    broker.broker.replica.promote(1, 5, broker.clock.monotonic(), broker.clock.time_ms())
    send(broker)
    next_interval(broker)
    next_interval(broker)
    found = records(broker)
    assert {record.epoch for record in found} == {5}
    assert sums(found) == {("orders", "normal"): (1, 4, 1)}
    assert_tiled(found)


def test_a_replica_that_follows_counts_and_records_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker(brokerRole="SLAVE", brokerId="1")
    assert broker.broker.metering.meter is None
    next_interval(broker)
    assert records(broker) == []
