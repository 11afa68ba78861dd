"""Days of metering with known content in a broker's own log, and what they cost, worked out apart from the jobs.

A record a minute (or another interval), of eight rows whose figures go up and down. They are appended as the broker's leader
appends its own, before the broker starts.
"""

from __future__ import annotations

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import NamedTuple

from brokerd.metering.records import message_of
from brokerd.store import MessageStore, MessageToStore, OsDisk, StoreConfig, SystemClock
from mqwire.message import pack_host
from mqwire.metering import ConnectionCounts, InRow, LagRow, MessageKind, MeteringRecord, OutRow, StorageRow
from tests.daemons import BROKER_DEFAULTS

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ROWS_PER_RECORD = 8
APPENDED_AT_ONCE = 100
DIGIT = Decimal("0.0000000001")
GIB = 2**30
MULTIPLIERS = {"normal": "1", "ordered": "1.5", "delayed": "2", "transactional": "2.25"}


class Rates(NamedTuple):
    """What a million units sent and delivered and a GiB-month cost."""

    sent: Decimal
    delivered: Decimal
    stored: Decimal


class Key(NamedTuple):
    """What makes a row of billing_usage one of a kind, within a cluster."""

    hour: datetime
    direction: str
    topic: str
    consumer_group: str
    credential: str
    kind: str


class Figures(NamedTuple):
    """The rest of such a row."""

    messages: int
    bytes: int
    units: int
    billed_units: Decimal
    amount: Decimal


@dataclass(frozen=True)
class MeteredDays:
    """[begin, end) of one cluster, a record `every` so often; `seed` makes it differ from the others."""

    cluster: str
    seed: int
    begin: datetime
    end: datetime
    every: timedelta = MINUTE

    @property
    def record_count(self) -> int:
        return (self.end - self.begin) // self.every

    def records(self) -> Iterator[MeteringRecord]:
        for number in range(self.record_count):
            yield self._record(number)

    def _record(self, number: int) -> MeteringRecord:
        start_ms = int((self.begin + number * self.every).timestamp()) * 1000
        turn = (number * 7919 + self.seed * 104_729) % 997

        def sent(topic: str, key: str, kind: MessageKind, messages: int) -> InRow:
            return InRow(
                topic=topic, credential=key, kind=kind, messages=messages, bytes=messages * 5000, units=messages * 2
            )

        def delivered(group: str, messages: int) -> OutRow:
            size, units = messages * 5000, messages * 2
            return OutRow(topic="orders", group=group, credential="key-2", messages=messages, bytes=size, units=units)

        return MeteringRecord(
            version=1,
            cluster=self.cluster,
            broker="broker-a",
            epoch=1,
            sequence=number + 1,
            start_ms=start_ms,
            end_ms=start_ms + self.every // timedelta(milliseconds=1),
            start_offset=number * 1000,
            end_offset=number * 1000 + 1000,
            recounted=False,
            messages_in=(
                sent("orders", "key-1", "normal", turn),
                sent("orders", "key-1", "delayed", turn % 5),
                sent("payments", "key-3", "ordered", turn % 11 + 1),
            ),
            messages_out=(delivered("workers", turn), delivered("audit", turn // 2)),
            lag=(
                LagRow(
                    topic="orders",
                    group="workers",
                    queue_id=0,
                    consumer_offset=number,
                    max_offset=number + 3,
                    lag_messages=3,
                    lag_ms=500,
                ),
            ),
            storage=(
                StorageRow(topic="orders", bytes=10**9 + turn * 1_000_003),
                StorageRow(topic="payments", bytes=10**7 + turn),
            ),
            connections=ConnectionCounts(producers=2, consumers=3),
        )

    def append_to(self, store_dir: Path) -> None:
        """Fills the store of a broker that does not run."""
        host = pack_host("127.0.0.1", 10911)
        append(store_dir, (message_of(record, host) for record in self.records()))

    def usage(self, rates: Rates) -> dict[Key, Figures]:
        """All rows of billing_usage that these minutes make."""
        sums: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
        for number, record in enumerate(self.records()):
            hour = (self.begin + number * self.every).replace(minute=0)
            for row in record.messages_in:
                _add(sums[Key(hour, "in", row.topic, "", row.credential, row.kind)], row.messages, row.bytes, row.units)
            for out in record.messages_out:
                key = Key(hour, "out", out.topic, out.group, out.credential, "")
                _add(sums[key], out.messages, out.bytes, out.units)
            for stored in record.storage:
                _add(sums[Key(hour, "storage", stored.topic, "", "", "")], 0, stored.bytes, 0)
        return {key: _priced(key, counts, rates, self.every) for key, counts in sums.items()}


def append(store_dir: Path, messages: Iterable[MessageToStore]) -> None:
    """Appends to the log of a broker that does not run, and has the sizes of files that DaemonCluster gives it."""
    config = StoreConfig(
        root_dir=str(store_dir),
        mapped_file_size_commit_log_bytes=int(BROKER_DEFAULTS["mappedFileSizeCommitLog"]),
        mapped_file_size_consume_queue_bytes=int(BROKER_DEFAULTS["mappedFileSizeConsumeQueue"]),
        disk_space_warning_level_ratio=1.0,
    )
    store = MessageStore(config, disk=OsDisk(), clock=SystemClock(), store_host=pack_host("127.0.0.1", 10911))
    store.open()
    waiting = []
    for message in messages:
        waiting.append(message)
        if len(waiting) == APPENDED_AT_ONCE:
            store.append(waiting)
            waiting = []
    if waiting:
        store.append(waiting)
    store.close()


def _add(sums: list[int], messages: int, size: int, units: int) -> None:
    sums[0] += messages
    sums[1] += size
    sums[2] += units


def _priced(key: Key, sums: Sequence[int], rates: Rates, every: timedelta) -> Figures:
    messages, size, units = sums
    if key.direction == "storage":
        # A sample stands for its interval.
        byte_hours = int((Decimal(size) / (HOUR // every)).quantize(Decimal(1), ROUND_HALF_UP))
        hours = 24 * monthrange(key.hour.year, key.hour.month)[1]
        cost = byte_hours * rates.stored / (hours * GIB)
        return Figures(0, byte_hours, 0, Decimal(0), cost.quantize(DIGIT, ROUND_HALF_UP))
    billed = units * Decimal(MULTIPLIERS.get(key.kind, "1"))
    rate = rates.sent if key.direction == "in" else rates.delivered
    return Figures(messages, size, units, billed, (billed * rate / 10**6).quantize(DIGIT, ROUND_HALF_UP))


def last_days(days: int, now: datetime | None = None) -> tuple[datetime, datetime]:
    """[begin, end) of so many whole days that end with the last full hour."""
    end = (now or datetime.now(UTC)).replace(minute=0, second=0, microsecond=0)
    return end - timedelta(days=days), end
