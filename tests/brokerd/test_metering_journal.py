"""Pulls that no record has when the broker is killed: they are known again, once, and what may be missing is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from brokerd.metering.journal import NAME, Journal, JournalFile, JournalInterval
from brokerd.store import OsDisk
from mqwire.codes import HighwaterRequestCode, ResponseCode
from mqwire.metering import MeteringRecord, OutRow
from mqwire.names import RMQ_SYS_METERING
from tests.brokerd.broker_under_test import BrokerUnderTest, MakeBroker, ManualClock, RecordingPeer
from tests.brokerd.metered_broker import (
    ALICE,
    OPERATOR,
    dispatch,
    look,
    next_interval,
    pull,
    records,
    send,
    send_request,
    sums,
    with_accounts,
)
from tests.sim.memory_disk import MemoryDisk

ROW = OutRow(topic="orders", group="g", credential="", messages=3, bytes=30, units=3)


def note(broker: BrokerUnderTest) -> None:
    """What the broker does each second."""
    metering = broker.broker.metering
    metering._journal.store(metering.journal())


def pulled(found: list[MeteringRecord]) -> int:
    return sum(row.messages for record in found for row in record.messages_out if row.topic == "orders")


def test_a_kill_loses_no_pulls_that_were_noted(broker: BrokerUnderTest) -> None:
    send(broker)
    for _ in range(5):
        pull(broker)
    note(broker)
    broker.crash()
    next_interval(broker)
    next_interval(broker)
    assert (pulled(records(broker)), sums(records(broker))) == (5, {("orders", "normal"): (1, 4, 1)})


def test_pulls_that_a_record_has_are_not_counted_again(broker: BrokerUnderTest) -> None:
    send(broker)
    pull(broker)
    note(broker)
    next_interval(broker)  # recorded; the journal still says what it said
    pull(broker)
    broker.crash()
    next_interval(broker)
    assert pulled(records(broker)) == 1  # the second pull was not noted


def test_many_kills_at_any_moment_count_each_noted_pull_once(broker: BrokerUnderTest, clock: ManualClock) -> None:
    send(broker)
    for turn in range(30):
        pull(broker)
        note(broker)
        if turn % 3:
            clock.advance(37)
            look(broker)
        if turn % 4 == 1:
            note(broker)
        broker.crash()
        look(broker)
    next_interval(broker)
    assert pulled(records(broker)) == 30


def test_the_next_record_says_for_how_long_pulls_may_be_missing(broker: BrokerUnderTest) -> None:
    send(broker)
    pull(broker)
    note(broker)
    broker.crash()
    next_interval(broker)
    next_interval(broker)
    assert [record.pulls_lost_ms for record in records(broker)][:2] == [1000, 0]


def test_after_a_clean_stop_nothing_is_missing(broker: BrokerUnderTest) -> None:
    send(broker)
    pull(broker)
    look(broker)
    trio.run(broker.broker.metering.finish)
    broker.restart()
    next_interval(broker)
    assert {record.pulls_lost_ms for record in records(broker)} == {0}
    assert pulled(records(broker)) == 1


def test_a_power_cut_bounds_the_loss_by_an_interval(broker: BrokerUnderTest) -> None:
    send(broker)
    next_interval(broker)
    note(broker)
    journal = broker.broker.metering._journal
    journal.store(Journal("another boot"))
    broker.crash()
    next_interval(broker)
    assert records(broker)[-1].pulls_lost_ms == 60_000


def test_so_does_a_start_that_cannot_tell_whether_the_power_was_cut(
    broker: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(broker.broker.disk), "boot_id", lambda self: "")
    send(broker)
    next_interval(broker)
    note(broker)
    broker.crash()
    next_interval(broker)
    assert records(broker)[-1].pulls_lost_ms == 60_000


@pytest.mark.parametrize("content", [b"", b"{", b'{"boot_id": 3}', b"\xff"])
def test_a_journal_that_cannot_be_read_stops_nothing(broker: BrokerUnderTest, content: bytes) -> None:
    send(broker)
    next_interval(broker)
    broker.broker.persist()  # which makes the folder
    (Path(broker.config.config_folder) / NAME).write_bytes(content)
    broker.crash()
    next_interval(broker)
    assert records(broker)[-1].pulls_lost_ms == 60_000


def test_what_a_follower_has_not_reported_is_known_after_a_kill(make_broker: MakeBroker) -> None:
    follower = make_broker(brokerRole="SLAVE", brokerId="1")
    follower.broker.metering._reporter.meter.add_out([ROW])
    assert follower.broker.metering._reporter.prepare()  # a report that the leader may have had, or not
    note(follower)
    follower.crash()
    (row,) = follower.broker.metering._reporter.unreported()
    assert (row.messages, row.origin.startswith("report-1-")) == (3, True)


def test_a_journal_gives_the_rows_of_the_intervals_that_have_no_record() -> None:
    first, second = (JournalInterval(4, start_ms, (ROW,)) for start_ms in (0, 900))
    assert Journal("b", (first, second), (ROW,)).unrecorded({(4, 0)}) == [ROW, ROW]


def test_a_killed_writer_leaves_the_journal_before(tmp_path: Path) -> None:
    class Broken(OsDisk):
        def rename(self, source: str, target: str) -> None:
            raise OSError("killed")

    JournalFile(OsDisk(), str(tmp_path)).store(Journal("b", kept=(ROW,)))
    with pytest.raises(OSError, match="killed"):
        JournalFile(Broken(), str(tmp_path)).store(Journal("b"))
    assert JournalFile(OsDisk(), str(tmp_path)).load() == Journal("b", kept=(ROW,))


def test_a_journal_is_written_whole_though_the_disk_takes_it_in_parts() -> None:
    disk = MemoryDisk()
    disk.short_writes = True
    journal = Journal("boot", (JournalInterval(1, 0, (ROW, ROW)),))
    JournalFile(disk, "/store/config").store(journal)
    assert JournalFile(disk, "/store/config").load() == journal


def test_nothing_is_written_after_the_last_word_of_a_clean_stop(tmp_path: Path) -> None:
    file = JournalFile(OsDisk(), str(tmp_path))
    file.store(Journal("b", closed=True))
    file.store(Journal("b", kept=(ROW,)))
    assert file.load() == Journal("b", closed=True)


# --- the cluster is deleted


def closed(broker: BrokerUnderTest) -> str:
    answer = broker.ask(HighwaterRequestCode.METERING_CLOSE)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.ext_fields["recorded"]


def test_closing_serves_no_client_and_records_everything(broker: BrokerUnderTest) -> None:
    send(broker)
    pull(broker)
    look(broker)
    assert closed(broker) == "false"
    (refused,) = dispatch(broker, RecordingPeer(), send_request())
    assert (refused.code, "is being deleted" in (refused.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    assert pull(broker).code == ResponseCode.NO_PERMISSION
    look(broker)
    assert closed(broker) == "true"
    assert (sums(records(broker)), pulled(records(broker))) == ({("orders", "normal"): (1, 4, 1)}, 1)
    assert pull(broker, RMQ_SYS_METERING).code == ResponseCode.SUCCESS


def test_closing_again_is_harmless_and_a_restart_has_to_be_closed_again(broker: BrokerUnderTest) -> None:
    send(broker)
    closed(broker)
    look(broker)
    assert [closed(broker), closed(broker)] == ["true", "true"]
    broker.restart()
    send(broker)
    closed(broker)
    look(broker)
    assert closed(broker) == "true"
    assert sums(records(broker)) == {("orders", "normal"): (2, 8, 2)}


def test_only_operators_close(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = with_accounts(make_broker, tmp_path)
    assert broker.ask(HighwaterRequestCode.METERING_CLOSE, signed_as=ALICE).code == ResponseCode.NO_PERMISSION
    assert broker.ask(HighwaterRequestCode.METERING_CLOSE, signed_as=OPERATOR).code == ResponseCode.SUCCESS


def test_without_metering_there_is_nothing_to_record(make_broker: MakeBroker) -> None:
    assert closed(make_broker(meteringIntervalMs="0")) == "true"
