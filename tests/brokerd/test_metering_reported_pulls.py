"""What a leader records of the pulls that others report to it: once, whichever reports them again and leads by then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.command import RemotingCommand
from mqwire.headers_replica import ReplicaPullResponseHeader
from mqwire.metering import OutRow, PullReport, encode_pull_report
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker
from tests.brokerd.metered_broker import (
    ALICE,
    MINUTE_S,
    OPERATOR,
    assert_tiled,
    look,
    next_interval,
    pull,
    records,
    send,
    sums,
    with_accounts,
)

ELSEWHERE = "192.0.2.1:1"


def row(messages: int = 3, *, group: str = "g", origin: str = "") -> OutRow:
    return OutRow(
        topic="orders",
        group=group,
        credential="AK",
        messages=messages,
        bytes=messages * 4,
        units=messages,
        origin=origin,
    )


def report(
    broker: BrokerUnderTest, number: int = 1, *rows: OutRow, replica: int = 1, **keywords: Any
) -> RemotingCommand:
    body = encode_pull_report(PullReport(replica_id=replica, number=number, messages_out=rows or (row(),)))
    return broker.ask(HighwaterRequestCode.METERING_REPORT, body=body, **keywords)


def pulled(broker: BrokerUnderTest) -> int:
    return sum(row.messages for record in records(broker) for row in record.messages_out)


def lose_leadership(broker: BrokerUnderTest) -> None:
    """Another replica leads in the next epoch."""
    broker.broker.replica.step_down(broker.broker.replica.epoch + 1, ELSEWHERE)
    broker.broker.metering.role_changed()


def lead_again(broker: BrokerUnderTest) -> None:
    replica, clock = broker.broker.replica, broker.clock
    replica.promote(replica.epoch, replica.epoch + 1, clock.monotonic(), clock.time_ms())
    broker.broker.metering.role_changed()


def truncate_log(broker: BrokerUnderTest, offset: int) -> None:
    """The new leader answers that it has this replica's epoch up to there only."""
    header = ReplicaPullResponseHeader(
        answer="diverged", epoch=broker.broker.replica.epoch, diverged_epoch=1, diverged_end_offset=offset
    )
    trio.run(broker.broker.follower._truncate_to, header)
    assert broker.store.end_offset == offset


# --- from slaves


def test_what_a_slave_handed_out_is_recorded_once_however_often_it_says_so(broker: BrokerUnderTest) -> None:
    for number in (7, 7, 8, 8):
        assert report(broker, number).code == ResponseCode.SUCCESS
    next_interval(broker)
    assert pulled(broker) == 6


def test_equal_numbers_of_two_slaves_are_two_reports(broker: BrokerUnderTest) -> None:
    for replica in (1, 2):
        report(broker, 7, replica=replica)
    next_interval(broker)
    assert pulled(broker) == 6


def test_a_slave_takes_no_report(make_broker: MakeBroker) -> None:
    broker = make_broker(brokerRole="SLAVE", brokerId="1")
    assert report(broker).code == ResponseCode.ILLEGAL_OPERATION


def test_a_report_that_is_none_is_refused_with_its_cause(broker: BrokerUnderTest) -> None:
    answer = broker.ask(HighwaterRequestCode.METERING_REPORT, body=b'{"replica_id": 1}')
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "number" in (answer.remark or "")


def test_only_replicas_and_operators_may_report(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = with_accounts(make_broker, tmp_path)
    assert report(broker, signed_as=ALICE).code == ResponseCode.NO_PERMISSION
    assert report(broker, signed_as=OPERATOR).code == ResponseCode.SUCCESS


# --- over a change of leaders


def test_what_a_master_handed_out_and_did_not_record_it_records_when_it_leads_again(broker: BrokerUnderTest) -> None:
    send(broker)
    look(broker)
    pull(broker)
    lose_leadership(broker)
    broker.clock.advance(MINUTE_S)
    lead_again(broker)
    next_interval(broker)
    assert pulled(broker) == 1
    assert sums(records(broker)) == {("orders", "normal"): (1, 4, 1)}
    assert_tiled(records(broker))


def test_a_report_that_a_former_leader_recorded_is_not_taken_again(broker: BrokerUnderTest) -> None:
    report(broker, 7)
    next_interval(broker)
    broker.crash()
    look(broker)
    assert report(broker, 7).code == ResponseCode.SUCCESS, "a slave that missed the answer need not say it once more"
    report(broker, 8)
    next_interval(broker)
    assert pulled(broker) == 6


def test_a_report_that_a_crashed_leader_did_not_record_is_taken(broker: BrokerUnderTest) -> None:
    report(broker, 7)
    broker.crash()
    look(broker)
    report(broker, 7)
    next_interval(broker)
    assert pulled(broker) == 3


def test_a_report_that_came_by_its_slave_and_by_the_former_leader_counts_once(broker: BrokerUnderTest) -> None:
    report(broker, 7)  # the answer is lost
    report(broker, 5, row(3, origin="report-1-7"), row(2), replica=2)
    next_interval(broker)
    assert pulled(broker) == 5


def test_a_leader_keeps_whose_reports_it_took_when_its_leadership_ends(broker: BrokerUnderTest) -> None:
    report(broker, 7)
    lose_leadership(broker)
    lead_again(broker)
    report(broker, 7)
    next_interval(broker)
    assert pulled(broker) == 3
    assert [row.origin for record in records(broker) for row in record.messages_out] == ["report-1-7"]


# --- a log that loses its end


def test_pulls_recorded_in_what_is_truncated_are_reported_again_once(broker: BrokerUnderTest) -> None:
    send(broker)
    next_interval(broker)
    level = broker.store.end_offset
    pull(broker)
    report(broker, 7)
    next_interval(broker)
    assert pulled(broker) == 4
    lose_leadership(broker)
    truncate_log(broker, level)
    assert pulled(broker) == 0
    lead_again(broker)
    report(broker, 7)
    for _ in range(2):
        next_interval(broker)
    assert pulled(broker) == 4
    assert {row.origin for record in records(broker) for row in record.messages_out} == {"record-1-2", "report-1-7"}


def test_a_restart_before_the_cut_loses_no_pulls(broker: BrokerUnderTest) -> None:
    send(broker)
    next_interval(broker)
    level = broker.store.end_offset
    pull(broker)
    next_interval(broker)
    broker.crash()
    lose_leadership(broker)
    truncate_log(broker, level)
    lead_again(broker)
    next_interval(broker)
    assert pulled(broker) == 1


def test_pulls_recorded_before_the_truncated_tail_are_not_reported_again(broker: BrokerUnderTest) -> None:
    send(broker)
    pull(broker)
    next_interval(broker)
    level = broker.store.end_offset
    send(broker)
    next_interval(broker)
    lose_leadership(broker)
    truncate_log(broker, level)
    lead_again(broker)
    next_interval(broker)
    assert pulled(broker) == 1
