"""What the store's tests share: small files, messages, and reading everything back."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from brokerd.store import AppendResult, GetMessageStatus, MessageStore, MessageToStore, StoreConfig
from mqwire.message import StoredMessage, decode_records, pack_host, tags_code
from tests.sim.memory_disk import MemoryDisk

HOST = pack_host("192.0.2.7", 10911)
CLIENT = pack_host("192.0.2.8", 40000)
CLIENT_V6 = pack_host("2001:db8::8", 40000)
FILE_BYTES = 4096
QUEUE_FILE_BYTES = 20 * 16
ROOT = "/store"
COMMIT_LOG = f"{ROOT}/commitlog"


class ManualClock:
    """Time stands until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms


def config(**changes: Any) -> StoreConfig:
    values: dict[str, Any] = {
        "root_dir": ROOT,
        "mapped_file_size_commit_log_bytes": FILE_BYTES,
        "mapped_file_size_consume_queue_bytes": QUEUE_FILE_BYTES,
        "allocate_ahead_bytes": 1024,
    }
    return StoreConfig(**(values | changes))


def new_store(
    disk: MemoryDisk, clock: ManualClock | None = None, store_host: bytes = HOST, **changes: Any
) -> MessageStore:
    return MessageStore(config(**changes), disk=disk, clock=clock or ManualClock(), store_host=store_host)


def open_store(
    disk: MemoryDisk, clock: ManualClock | None = None, store_host: bytes = HOST, **changes: Any
) -> MessageStore:
    """An open store; recovery must have found no damage."""
    store = new_store(disk, clock, store_host, **changes)
    report = store.open()
    assert not report.damage, report
    return store


def message(
    body: bytes = b"body",
    topic: str = "orders",
    queue_id: int = 0,
    tag: str = "",
    properties: bytes = b"",
    **changes: Any,
) -> MessageToStore:
    if tag:
        properties = properties + b"TAGS\x01" + tag.encode() + b"\x02"
    values: dict[str, Any] = {
        "topic": topic,
        "queue_id": queue_id,
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 1_600_000_000_000,
        "born_host": CLIENT,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": body,
        "properties": properties,
        "tags_code": tags_code(tag),
    }
    return MessageToStore(**(values | changes))


def fill(store: MessageStore, count: int, size_bytes: int = 200, queues: int = 3, first: int = 0) -> list[AppendResult]:
    """Append messages that all differ, a few with each call."""
    messages = [
        message(b"%06d" % number + b"." * (size_bytes - 6), queue_id=number % queues, tag=f"tag{number % 2}")
        for number in range(first, first + count)
    ]
    results: list[AppendResult] = []
    for position in range(0, len(messages), 4):
        results += store.append(messages[position : position + 4])
    return results


def eio_at(call: int) -> Callable[[int, str], int | None]:
    """For MemoryDisk.fail: the call of that number ends with EIO."""
    return lambda number, name: errno.EIO if number == call else None


def read_queue(store: MessageStore, topic: str, queue_id: int) -> list[StoredMessage]:
    """All visible messages of a queue; each must have the offset that it was found at."""
    messages: list[StoredMessage] = []
    offset = store.min_offset(topic, queue_id)
    while True:
        result = store.get_messages(topic, queue_id, offset, 5, 100_000)
        if result.status is not GetMessageStatus.FOUND:
            break
        found = decode_records(b"".join(result.chunks))
        assert [each.queue_offset for each in found] == list(range(offset, offset + result.count))
        assert all((each.topic, each.queue_id) == (topic, queue_id) for each in found)
        messages += found
        offset = result.next_begin_offset
    assert offset == store.max_offset(topic, queue_id)
    return messages


def read_all(store: MessageStore) -> dict[tuple[str, int], list[StoredMessage]]:
    return {
        (topic, queue_id): read_queue(store, topic, queue_id)
        for topic, queue_ids in store.topics().items()
        for queue_id in queue_ids
    }


def bodies(store: MessageStore) -> list[bytes]:
    """The bodies of all visible messages, in the order of the log."""
    every = [each for messages in read_all(store).values() for each in messages]
    return [each.body for each in sorted(every, key=lambda each: each.physical_offset)]
