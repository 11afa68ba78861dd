"""Reading many clusters at once: where it goes on, what it reads again, and that one cluster's trouble is its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pyarrow as pa
import pytest

from highwater import MessageQueue, NoRouteError
from mqwire.metering import MeteringRecord, encode_metering_record
from mqwire.names import RMQ_SYS_METERING
from spark_etl.jobs import metering_reader
from spark_etl.jobs.metering_reader import OVERLAP_MESSAGES, PULL_MESSAGES, Place, Task, read_tasks
from spark_etl.transforms.time import to_ms
from tests.spark_etl.metering import BROKER, NAME, NOW, Stored, record, sent

QUEUE = MessageQueue(RMQ_SYS_METERING, BROKER, 0)


@dataclass
class Log:
    """One broker's metering queue."""

    records: list[MeteringRecord]
    first: int = 0
    pulls: list[int] = field(default_factory=list)


LOGS: dict[str, Log] = {}


class FakeAdmin:
    """Answers from LOGS, by the name server's address."""

    def __init__(self, namesrv: str, *_: Any, **__: Any) -> None:
        self._log = LOGS.get(namesrv)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def topic_route(self, topic: str) -> Any:
        if self._log is None:
            raise NoRouteError("no name server answers")
        return SimpleNamespace(subscribe_queues=[QUEUE])

    async def pull(self, queue: MessageQueue, offset: int, count: int) -> list[Stored]:
        assert self._log is not None
        log = self._log
        log.pulls.append(offset)
        # As the broker does: from the nearest offset that it has.
        begin = min(max(offset, log.first), log.first + len(log.records))
        found = log.records[begin - log.first :][:count]
        return [Stored(encode_metering_record(one), queue, begin + index, 0) for index, one in enumerate(found)]

    async def min_offset(self, queue: MessageQueue) -> int:
        assert self._log is not None
        return self._log.first

    async def max_offset(self, queue: MessageQueue) -> int:
        assert self._log is not None
        return self._log.first + len(self._log.records)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(metering_reader, "AsyncAdmin", FakeAdmin)
    monkeypatch.setattr(metering_reader, "PAUSE_S", 0.0)
    yield
    LOGS.clear()


def records(count: int, *, begin: int = 1, **given: Any) -> list[MeteringRecord]:
    return [record("2026-11-21 13:00", sequence, **given) for sequence in range(begin, begin + count)]


def place(one: MeteringRecord, offset: int) -> Place:
    """Where reading goes on after this record, which lay at the offset."""
    return Place(BROKER, 0, offset + 1, one.epoch, one.sequence, one.end_offset, one.end_ms, False)


def read(*places: Place, address: str = "here") -> tuple[list[tuple[int, int]], list[str]]:
    """(epoch, sequence) of the records, in order, and the errors."""
    rows = read_rows(task(address, *places))
    found = [(row["record"]["epoch"], row["record"]["sequence"]) for row in rows if row["record"]]
    return found, [row["error"] for row in rows if row["error"]]


def task(address: str, *places: Place, cluster: str = "c") -> Task:
    return Task(cluster, NAME, address, "", "", False, "", to_ms(NOW), tuple(places))


def read_rows(*tasks: Task) -> list[dict[str, Any]]:
    batch = pa.RecordBatch.from_pydict({"task": [msgspec.json.encode(one) for one in tasks]})
    return [row for found in read_tasks([batch]) for row in found.to_pylist()]


def test_a_new_cluster_is_read_from_its_first_record() -> None:
    LOGS["here"] = Log(records(100), first=7)
    assert read() == ([(1, sequence) for sequence in range(1, 101)], [])


def test_what_was_read_is_asked_for_with_one_pull_and_not_given_again() -> None:
    all_records = records(10)
    log = LOGS["here"] = Log(all_records)
    assert read(place(all_records[9], 9)) == ([], [])
    assert log.pulls == [9]
    log.records += records(3, begin=11)
    assert read(place(all_records[9], 9)) == ([(1, 11), (1, 12), (1, 13)], [])


def test_after_an_unclean_promotion_what_lies_before_the_place_is_read_again() -> None:
    old = records(200)
    LOGS["here"] = Log([*old[:150], *records(100, epoch=2)])
    found, _ = read(place(old[199], 199))
    assert found == [(1, sequence) for sequence in range(80, 151)] + [(2, sequence) for sequence in range(1, 101)]
    assert found[0][1] == 199 - OVERLAP_MESSAGES + 1


@pytest.mark.parametrize("written_since", [1, 300])
def test_a_replica_that_was_stale_for_long_is_read_from_the_begin_of_its_leadership(written_since: int) -> None:
    """What it lacked is more than the overlap: many topics take many records a minute."""
    old = records(400)
    LOGS["here"] = Log([*old[:150], *records(written_since, epoch=2)])
    found, _ = read(place(old[399], 399))
    assert [one for one in found if one[0] == 2] == [(2, sequence) for sequence in range(1, written_since + 1)]


def test_a_log_that_ends_before_the_place_is_read_again_from_before_its_end() -> None:
    old = records(200)
    LOGS["here"] = Log(old[:180])
    found, _ = read(place(old[199], 199))
    assert found == [(1, sequence) for sequence in range(61, 181)]


def test_a_key_that_was_used_again_after_a_power_cut_is_noticed() -> None:
    old = records(40)
    again = record("2026-11-21 13:00", 40, recounted=True, start_offset=40_000, end_offset=50_000)
    LOGS["here"] = Log([*old[:39], again, *records(1, begin=41)])
    found, _ = read(place(old[39], 39))
    assert found[-2:] == [(1, 40), (1, 41)]


def test_only_records_in_the_order_in_which_they_were_written_are_said_to_be_distinct() -> None:
    LOGS["ordered"] = Log([*records(40), *records(3, epoch=2)])
    LOGS["repeated"] = Log([*records(40), *records(3, begin=38)])
    rows = read_rows(task("ordered", cluster="ordered"), task("repeated", cluster="repeated"))
    ends = {row["cluster"]: row["out_of_order"] for row in rows if row["messages"] is not None}
    assert ends == {"ordered": 0, "repeated": 3}


def test_what_retention_took_is_passed_over() -> None:
    old = records(10)
    LOGS["here"] = Log(records(5, begin=31), first=30)
    assert read(place(old[9], 9)) == ([(1, sequence) for sequence in range(31, 36)], [])


def test_someone_may_ask_for_everything_again() -> None:
    old = records(10)
    LOGS["here"] = Log(old)
    again = msgspec.structs.replace(place(old[9], 9), from_start=True)
    assert len(read(again)[0]) == 10


def test_everything_is_more_than_a_run_reads_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run goes on where the newest record is: what was left out would never be read."""
    monkeypatch.setattr(metering_reader, "MESSAGES_PER_RUN", 50)
    old = records(200)
    LOGS["here"] = Log(old)
    assert len(read()[0]) < 200
    again = msgspec.structs.replace(place(old[199], 199), from_start=True)
    assert read(again) == ([(1, sequence) for sequence in range(1, 201)], [])


def test_a_cluster_that_can_not_be_read_stops_no_other() -> None:
    LOGS["here"] = Log(records(2))
    rows = read_rows(task("away", cluster="a"), task("here", cluster="b"))
    assert [row["cluster"] for row in rows if row["record"]] == ["b", "b"]
    assert [(row["cluster"], row["error"]) for row in rows if row["error"]] == [
        ("a", "its metering can't be read from away: no name server answers")
    ]


def test_a_long_backlog_is_read_in_pieces_that_fit_a_workers_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering_reader, "BYTES_AT_ONCE", 20_000)
    LOGS["here"] = Log(records(PULL_MESSAGES * 10, messages_in=[sent()] * 5))
    rows = read_rows(task("here"))
    assert [row["record"]["sequence"] for row in rows if row["record"]] == list(range(1, PULL_MESSAGES * 10 + 1))
    assert [row["messages"] for row in rows if row["messages"] is not None] == [PULL_MESSAGES * 10]
