"""What one append and one pull cost the store, in microseconds of processor time: the best of five runs.

Run it as a script, with `--profile` for where the time goes. Processor time, because other processes on a small machine
would drown the numbers; waiting for the disk is measured elsewhere.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
import time

from brokerd.store import MessageStore, MessageToStore, OsDisk, StoreConfig, SystemClock
from mqwire.message import pack_host

HOST = pack_host("127.0.0.1", 10911)
PROPERTIES = b"UNIQ_KEY\x017F0000010A1B2C3D4E5F60718293A4B5\x02WAIT\x01true\x02TAGS\x01TagA\x02KEYS\x01key-1\x02"


def batch(size_bytes: int, count: int, queues: int) -> list[MessageToStore]:
    return [
        MessageToStore(
            "BenchmarkTest", index % queues, 0, 0, 1700000000000, HOST, 0, 0, bytes(size_bytes), PROPERTIES, 0
        )
        for index in range(count)
    ]


def measure_append(store: MessageStore, size_bytes: int, count: int, calls: int) -> float:
    messages = batch(size_bytes, count, 16)
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        for _ in range(calls):
            store.append(messages)
        best = min(best, (time.process_time() - began) / calls / count * 1e6)
        store.flush()
        store.flush_consume_queues()
    return best


def measure_get(store: MessageStore, topic_offsets: range) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        pulls = 0
        for queue_id in range(16):
            for offset in topic_offsets:
                result = store.get_messages("Interleaved", queue_id, offset, 32, 1 << 20)
                assert result.count == 32, (result.status, offset, result.min_offset, result.max_offset)
                pulls += 1
        best = min(best, (time.process_time() - began) / pulls * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    arguments = parser.parse_args()
    scale = 20 if arguments.quick else 1
    root = tempfile.mkdtemp(prefix="store-append-")
    config = StoreConfig(root_dir=root, disk_space_warning_level_ratio=1.0)
    store = MessageStore(config, disk=OsDisk(), clock=SystemClock(), store_host=HOST)
    store.open()
    try:
        profile = cProfile.Profile()
        if arguments.profile:
            profile.enable()
        for size_bytes, count, calls in ((1024, 16, 1000), (1024, 64, 250), (128, 32, 2000), (1024, 1, 4000)):
            cost = measure_append(store, size_bytes, count, max(1, calls // scale))
            print(f"append {count:3} x {size_bytes:4} B: {cost:6.2f} us a message")
        store.append([message._replace(topic="Interleaved") for message in batch(1024, 16 * 32 * 10, 16)])
        fresh = measure_get(store, range(0, 32 * 10, 32))
        store.flush_consume_queues()
        written = measure_get(store, range(0, 32 * 10, 32))
        print(f"get 32 x 1024 B, 16 queues interleaved: {fresh:6.1f} us a pull with the index in memory")
        print(f"get 32 x 1024 B, 16 queues interleaved: {written:6.1f} us a pull with the index in its file")
        for _ in range(10):
            store.append([message._replace(topic="Single") for message in batch(1024, 32, 1)])
        began = time.process_time()
        for _ in range(1000):
            store.get_messages("Single", 0, 0, 32, 1 << 20)
        print(f"get 32 x 1024 B, adjacent: {(time.process_time() - began) * 1e3:6.1f} us a pull")
        if arguments.profile:
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(15)
    finally:
        store.close()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
