"""A topic is deleted by the main thread while a worker syncs the ConsumeQueues: each waits for the other's checkpoint."""

from __future__ import annotations

import errno
import threading

import pytest

from brokerd.store import MessageStore
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import ROOT, fill, message, open_store

LONG_ENOUGH_S = 0.3  # for a deletion that does not wait
AT_MOST_S = 20.0


def with_two_topics() -> tuple[MemoryDisk, MessageStore]:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 8)
    store.append([message(topic="gone")])
    return disk, store


def queue_files_are_synced(disk: MemoryDisk) -> bool:
    return all(
        disk.on_platter(path, 0, len(content)) == content
        for path, content in disk.content(f"{ROOT}/consumequeue").items()
    )


def test_the_checkpoint_is_written_by_one_thread_at_a_time() -> None:
    """Both wrote the same file beside it, and the second one to rename that failed; a torn one would have been worse."""
    disk, store = with_two_topics()
    written = store.write_consume_queues()
    reached, goes_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def wait_at_the_rename(number: int, name: str) -> int | None:
        if name == "rename" and threading.current_thread() is worker:
            reached.set()
            goes_on.wait(AT_MOST_S)
        return None

    def sync() -> None:
        try:
            store.sync_consume_queues(written)
        except OSError as error:
            errors.append(error)

    worker, deletion = threading.Thread(target=sync), threading.Thread(target=store.delete_topic, args=("gone",))
    disk.fail = wait_at_the_rename
    worker.start()
    assert reached.wait(AT_MOST_S)
    deletion.start()
    deletion.join(LONG_ENOUGH_S)
    goes_on.set()
    worker.join(AT_MOST_S)
    deletion.join(AT_MOST_S)
    assert not errors
    assert store.topics() == {"orders": [0, 1, 2]}


def test_a_deletion_that_goes_ahead_of_the_worker_syncs_what_it_was_to_sync() -> None:
    """The checkpoint said that entries were on the disk which only the worker was about to sync."""
    disk, store = with_two_topics()
    written = store.write_consume_queues()
    store.delete_topic("gone")
    assert queue_files_are_synced(disk)
    store.sync_consume_queues(written)
    assert queue_files_are_synced(disk)


def test_nothing_is_called_durable_that_another_sync_failed_to_make_so_meanwhile() -> None:
    disk, store = with_two_topics()
    earlier = store.write_consume_queues()
    later: list[object] = []

    def write_meanwhile(number: int, name: str) -> int | None:
        if name != "sync" or "consumequeue" not in disk.log[-1]:
            return None
        disk.fail = lambda number, name: None
        fill(store, 1, queues=1)
        later.append(store.write_consume_queues())
        return errno.EIO

    store.flush()
    disk.fail = write_meanwhile
    with pytest.raises(OSError, match="Input/output error"):
        store.sync_consume_queues(earlier)
    store.sync_consume_queues(later[0])  # type: ignore[arg-type] # what was written
    before = disk.content(f"{ROOT}/checkpoint")
    assert not queue_files_are_synced(disk)
    store.flush_consume_queues()
    assert queue_files_are_synced(disk)
    assert disk.content(f"{ROOT}/checkpoint") != before
