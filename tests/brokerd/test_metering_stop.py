"""A broker that stops hands nothing out and takes no report after its last record: what it serves is billed, once."""

from __future__ import annotations

import pytest
import trio

from mqwire.codes import HighwaterRequestCode, PullSysFlag, RequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.metering import MeteringRecord, OutRow, PullReport, encode_pull_report
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, RecordingPeer
from tests.brokerd.metered_broker import dispatch, look, next_interval, pull, records, send, sums

ROW = OutRow(topic="orders", group="g", credential="", messages=3, bytes=12, units=3)
REPORTED = OutRow(topic="orders", group="g", credential="", messages=3, bytes=12, units=3, origin="broker-a-1-7")


@pytest.fixture
def serving(broker: BrokerUnderTest) -> BrokerUnderTest:
    """One message, and one record that has it; it was pulled once since."""
    send(broker)
    next_interval(broker)
    assert pull(broker).code == ResponseCode.SUCCESS
    return broker


def finish(broker: BrokerUnderTest) -> None:
    """The first step of a stop; seconds of others may follow."""
    trio.run(broker.broker.metering.finish)


def pulled(found: list[MeteringRecord]) -> int:
    return sum(row.messages for record in found for row in record.messages_out if row.topic == "orders")


def hold(broker: BrokerUnderTest, offset: int) -> RecordingPeer:
    request = RemotingCommand.request(
        RequestCode.PULL_MESSAGE,
        ext_fields={
            "consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
            "sysFlag": str(int(PullSysFlag.SUBSCRIPTION | PullSysFlag.SUSPEND)), "commitOffset": "0",
            "suspendTimeoutMillis": "60000", "subscription": "*", "subVersion": "0",
        },
    )  # fmt: skip
    peer = RecordingPeer()
    assert dispatch(broker, peer, request) == []
    return peer


def report(broker: BrokerUnderTest) -> int:
    body = encode_pull_report(PullReport(replica_id=1, number=1, messages_out=(ROW,)))
    return broker.ask(HighwaterRequestCode.METERING_REPORT, body=body).code


def test_a_pull_after_the_last_record_is_told_to_come_again(serving: BrokerUnderTest) -> None:
    finish(serving)
    answer = pull(serving)
    assert (answer.code, bytes(answer.body)) == (ResponseCode.FLOW_CONTROL, b"")
    assert answer.remark == "the broker is stopping; pull from another broker or again in a moment"


def test_a_held_pull_that_is_woken_after_the_last_record_is_told_to_come_again(serving: BrokerUnderTest) -> None:
    peer = hold(serving, 1)
    finish(serving)
    send(serving)
    (answer,) = peer.take()
    assert (answer.code, bytes(answer.body)) == (ResponseCode.FLOW_CONTROL, b"")


def test_a_pull_that_finds_nothing_is_held_by_a_broker_that_stops(serving: BrokerUnderTest) -> None:
    finish(serving)
    hold(serving, 1)
    assert len(serving.broker.held_pulls) == 1


def test_a_follower_that_stops_hands_out_nothing_that_it_could_not_report(make_broker: MakeBroker) -> None:
    broker = make_broker()
    send(broker)
    broker.broker.replica.step_down(broker.broker.replica.epoch + 1, "192.0.2.1:1")
    broker.broker.metering.role_changed()
    assert pull(broker).code == ResponseCode.SUCCESS
    finish(broker)
    assert pull(broker).code == ResponseCode.FLOW_CONTROL


def handed_out_in_all(broker: BrokerUnderTest) -> int:
    """With one more pull."""
    return 1 + (pull(broker).code == ResponseCode.SUCCESS)


def test_all_that_was_handed_out_by_a_stop_is_in_its_last_record(serving: BrokerUnderTest) -> None:
    finish(serving)
    expected = handed_out_in_all(serving)
    assert pulled(records(serving)) == expected


def test_the_start_after_a_stop_repeats_no_pull_and_misses_none(serving: BrokerUnderTest) -> None:
    finish(serving)
    expected = handed_out_in_all(serving)
    serving.restart()
    next_interval(serving)
    next_interval(serving)
    assert (pulled(records(serving)), sums(records(serving))) == (expected, {("orders", "normal"): (1, 4, 1)})
    assert {record.pulls_lost_ms for record in records(serving)} == {0}


def test_a_kill_in_the_middle_of_a_stop_repeats_no_pull_and_misses_none(serving: BrokerUnderTest) -> None:
    finish(serving)
    expected = handed_out_in_all(serving)
    serving.crash()
    next_interval(serving)
    next_interval(serving)
    assert (pulled(records(serving)), {record.pulls_lost_ms for record in records(serving)}) == (expected, {0})


def test_a_leader_that_stops_takes_no_report_which_no_record_would_have(serving: BrokerUnderTest) -> None:
    finish(serving)
    assert report(serving) == ResponseCode.ILLEGAL_OPERATION
    serving.restart()
    look(serving)
    assert report(serving) == ResponseCode.SUCCESS
    next_interval(serving)
    assert pulled(records(serving)) == 1 + ROW.messages


def test_what_a_leader_loses_of_its_log_after_it_handed_over_is_noted_though_it_stops(serving: BrokerUnderTest) -> None:
    finish(serving)
    serving.broker.metering.log_was_truncated([REPORTED])
    serving.crash()
    next_interval(serving)
    assert pulled(records(serving)) == 1 + REPORTED.messages


def test_without_metering_a_broker_that_stops_hands_out_messages_to_the_end(make_broker: MakeBroker) -> None:
    broker = make_broker(meteringIntervalMs="0")
    send(broker)
    finish(broker)
    assert pull(broker).code == ResponseCode.SUCCESS
