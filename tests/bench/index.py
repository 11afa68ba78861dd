"""What the message index costs a broker: microseconds of its processor time per message, beside the sends.

    PYTHONPATH=.:platform python -m tests.bench.index [--messages 100000] [--rounds 5]

A log is filled without the index, then indexed as the broker does it, in slices. Processor time, because other processes on a
small machine would drown the rest. A slice's time is what a request may have to wait for it.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from brokerd.store import MessageStore, MessageToStore, OsDisk, StoreConfig, SystemClock
from mqwire.message import pack_host
from mqwire.unique_key import UniqueKeyGenerator

TOPIC, QUEUES, TOGETHER = "BenchmarkTest", 16, 64
SLICE_RECORDS = 256
HOST = pack_host("127.0.0.1", 10911)


@dataclass(frozen=True)
class Case:
    name: str
    body_bytes: int
    keys: int  # besides UNIQ_KEY
    clients: int = 8


CASES = [
    Case("1 KiB, a UNIQ_KEY as every client sends", 1024, 0),
    Case("1 KiB, and one key", 1024, 1),
    Case("1 KiB, and three keys", 1024, 3),
    Case("128 B, a UNIQ_KEY", 128, 0),
]


def messages(case: Case, count: int) -> Iterator[list[MessageToStore]]:
    clients = [UniqueKeyGenerator(f"10.0.0.{number}") for number in range(case.clients)]
    body = bytes(case.body_bytes)
    for first in range(0, count, TOGETHER):
        together = []
        for number in range(first, first + TOGETHER):
            keys = " ".join(f"order-{number}-{key}" for key in range(case.keys))
            properties = f"UNIQ_KEY\x01{clients[number % case.clients].next_key()}\x02WAIT\x01true\x02"
            if keys:
                properties += f"KEYS\x01{keys}\x02"
            now_ms = time.time_ns() // 1_000_000
            together.append(
                MessageToStore(TOPIC, number % QUEUES, 0, 0, now_ms, HOST, 0, 0, body, properties.encode(), 0)
            )
        yield together


def measure(case: Case, count: int) -> tuple[float, float, float]:
    """(microseconds per message, milliseconds of the longest slice of a hundred, milliseconds of a flush of it all)."""
    with tempfile.TemporaryDirectory() as folder:
        config = StoreConfig(root_dir=folder, disk_space_warning_level_ratio=1.0)
        store = MessageStore(config, disk=OsDisk(), clock=SystemClock(), store_host=HOST)
        store.open()
        for together in messages(case, count):
            store.append(together)
        gc.collect()
        slices = []
        began = time.process_time()
        before = began
        while store.index.build(store.end_offset, SLICE_RECORDS):
            now = time.process_time()
            slices.append(now - before)
            before = now
        spent = time.process_time() - began
        began = time.process_time()
        for _ in store.index.flush_steps():
            pass
        flush = time.process_time() - began
        store.close()
        return spent / count * 1e6, sorted(slices)[len(slices) * 99 // 100] * 1e3, flush * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print("us/message  slice p99 ms  flush ms")
    for case in CASES:
        figures = [measure(case, arguments.messages) for _ in range(arguments.rounds)]
        per_message, longest, flush = (median(column) for column in zip(*figures, strict=True))
        print(f"{per_message:10.2f}  {longest:12.2f}  {flush:8.1f}  {case.name}", flush=True)


if __name__ == "__main__":
    main()
