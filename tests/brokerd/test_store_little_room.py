"""A disk with less room than a log takes ahead: what must be written has place as long as there is any."""

from __future__ import annotations

import pytest

from brokerd.store import DiskFullError, MessageStore
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import message, open_store

AHEAD_BYTES = 8_192


def restarted_with_room_for(room_bytes: int) -> MessageStore:
    """A store that was opened again after a kill, where so many bytes are left; recovery takes some four thousand."""
    disk = MemoryDisk()
    store = open_store(disk, allocate_ahead_bytes=AHEAD_BYTES)
    store.append([message(b"x" * 1_000)])
    store.flush()
    disk = disk.after_kill()
    disk.capacity_bytes = room_bytes
    return open_store(disk, allocate_ahead_bytes=AHEAD_BYTES)


def test_a_small_record_is_written_where_the_log_can_take_no_room_ahead() -> None:
    store = restarted_with_room_for(5_000)
    end_offset = store.end_offset
    store.append_needed(message(b"leads"))
    store.flush()
    assert store.durable_offset == store.end_offset > end_offset


def test_where_not_even_a_small_record_has_room_nothing_is_stored() -> None:
    store = restarted_with_room_for(4_150)
    end_offset = store.end_offset
    with pytest.raises(DiskFullError):
        store.append_needed(message(b"leads"))
    assert store.end_offset == end_offset
