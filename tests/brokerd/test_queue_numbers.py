"""A queue whose numbers do not begin at 0, or went back: its files say what is so, whatever a later start reads of the log."""

from __future__ import annotations

import datetime
import errno
from collections.abc import Callable

import pytest

from brokerd.store import MessageIllegalError, MessageStore, recovery
from tests.sim.memory_disk import Died, MemoryDisk
from tests.sim.store_harness import (
    COMMIT_LOG,
    FILE_BYTES,
    ROOT,
    ManualClock,
    message,
    new_store,
    open_store,
    read_queue,
)

FOUR_IN_THE_MORNING = int(datetime.datetime(2026, 3, 10, 4, 30).timestamp() * 1000)  # local time, as deleteWhen
HOURS_100_MS = 100 * 3_600_000


def send(store: MessageStore, *bodies: bytes) -> None:
    store.append([message(body) for body in bodies])


def send_much(store: MessageStore, count: int = 8) -> None:
    """No recovery reads back over so much; nor does it lie in one file."""
    store.append([message(bytes(1000), "others") for _ in range(count)])


def bodies(store: MessageStore) -> list[bytes]:
    return [found.body for found in read_queue(store, "orders", 0)]


def fetch(store: MessageStore, leader: MessageStore, until: int | None = None) -> None:
    leader.flush()
    while store.end_offset < (leader.end_offset if until is None else until):
        store.append_raw(leader.read_raw(store.end_offset, 1), store.end_offset)
    store.flush()


def leader_with_old_messages(count: int) -> tuple[MessageStore, Callable[[], None]]:
    """So many messages are due to be deleted; and what deletes them."""
    clock = ManualClock(FOUR_IN_THE_MORNING - HOURS_100_MS)
    leader = open_store(MemoryDisk(), clock)
    send(leader, *(b"old %d" % number for number in range(count)))
    send_much(leader)
    clock.time_ms = FOUR_IN_THE_MORNING
    send_much(leader, 4)

    def expire() -> None:
        leader.flush_consume_queues()
        assert leader.delete_expired(FOUR_IN_THE_MORNING).deleted_commit_log_files

    return leader, expire


def follower_of(leader: MessageStore) -> tuple[MemoryDisk, MessageStore]:
    """It lacked what the leader's retention has deleted."""
    disk = MemoryDisk()
    store = open_store(disk)
    store.start_over(leader.min_physical_offset, leader.queues_without_messages())
    return disk, store


def test_a_queue_whose_first_file_a_full_disk_left_empty_keeps_its_messages() -> None:
    """There were no blanks in front of its first entry: a truncation later, it was an empty queue that began at 0."""
    leader, expire = leader_with_old_messages(3)
    send(leader, b"three")
    expire()
    disk, store = follower_of(leader)
    fetch(store, leader)
    path = f"{ROOT}/consumequeue/orders/0/{0:020d}"
    disk.fail = lambda _, name: errno.ENOSPC if name == "pwrite" and path in disk.log[-1] else None
    with pytest.raises(Exception, match="no room"):
        store.write_consume_queues()
    disk = disk.after_kill()
    assert path in disk.names
    store = open_store(disk)
    send_much(store)
    store.flush()
    end_offset = store.end_offset
    send(store, b"truncated")
    store.flush()
    store.truncate(end_offset)
    assert bodies(store) == [b"three"]
    assert store.append([message(b"next")])[0].queue_offset == 4


def test_a_queue_that_went_back_shows_nothing_of_before_after_a_truncation() -> None:
    """Entries behind its end were counted: consumers met records that are other queues' there."""
    leader, expire = leader_with_old_messages(5)
    send(leader, b"5")
    send_much(leader)
    common_end = leader.end_offset
    send(leader, b"6", b"7", b"8", b"9")
    leader.flush_consume_queues()
    leader.delete_topic("orders")
    with pytest.raises(MessageIllegalError):
        leader.append([message(bytes(FILE_BYTES))])  # so the queue is there again, and has no message
    expire()
    disk, store = follower_of(leader)
    assert store.queue_end_offset("orders", 0) == 10
    fetch(store, leader, common_end + 1)
    store.confirm_offset = None
    store.flush_consume_queues()
    assert bodies(store) == [b"5", b"6"]
    store.truncate(common_end)
    store.confirm_offset = None
    assert (bodies(store), store.max_offset("orders", 0)) == ([b"5"], 6)
    store.close()
    assert bodies(open_store(disk)) == [b"5"]


class Damaged:
    """A follower whose disk has spoiled message 1 of a queue, which its leader's retention has deleted with the first file."""

    def __init__(self, before: int, spoiled: int) -> None:
        self.leader = open_store(MemoryDisk())
        self.disk = MemoryDisk()
        store = open_store(self.disk)
        self.count = before + spoiled
        send(self.leader, *[b"whole"] * before)
        fetch(store, self.leader)
        store.flush_consume_queues()
        spots = [one.physical_offset for one in self.leader.append([message(b"spoiled") for _ in range(spoiled)])]
        send_much(self.leader, 4)
        assert self.leader.end_offset > FILE_BYTES
        fetch(store, self.leader)
        store.close(clean=False)
        self.disk.flip_bit(f"{COMMIT_LOG}/{0:020d}", spots[0] + 95)
        self.store = new_store(self.disk)
        assert self.store.open().damage

    def delete(self) -> None:
        self.store.delete_damaged(FILE_BYTES, [("orders", 0, self.count)])

    def crash(self) -> None:
        self.disk = self.disk.after_kill()
        self.store = open_store(self.disk)

    def goes_on(self) -> bool:
        send(self.leader, b"next")
        fetch(self.store, self.leader)
        return bodies(self.store)[-1:] == [b"next"]


@pytest.mark.parametrize("before", [0, 1])
def test_where_a_queue_goes_on_is_known_after_a_crash_once_its_damage_is_deleted(before: int) -> None:
    """No leader says it again; elected, this replica would have given a number twice."""
    damaged = Damaged(before, 1)
    damaged.delete()
    damaged.crash()
    assert damaged.store.queue_end_offset("orders", 0) == before + 1
    assert damaged.goes_on()


def test_a_follower_goes_on_that_was_killed_between_deleting_damage_and_knowing_where_its_queues_go_on() -> None:
    """It refused the next message of the queue, at each start."""
    damaged = Damaged(1, 1)
    damaged.disk.die_at = None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(damaged.store, "_reopen", lambda _: (_ for _ in ()).throw(Died()))
        with pytest.raises(Died):
            damaged.delete()
    damaged.crash()
    assert damaged.goes_on()


def test_a_queue_may_begin_far_away_where_all_in_front_of_it_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages were left out of the queue at each start: so far a number was taken for nonsense."""
    monkeypatch.setattr(recovery, "_GAP_MAX", 5)
    damaged = Damaged(1, 8)
    send(damaged.leader, b"far")
    end = damaged.store.end_offset
    damaged.store.close(clean=False)
    damaged.leader.flush()
    data = damaged.leader.read_raw(end, 1 << 20)
    fresh = Damaged(1, 8)
    fresh.store.delete_damaged(FILE_BYTES, [])
    fresh.store.append_raw(data, fresh.store.end_offset)
    fresh.store.flush()
    fresh.disk.names.pop(f"{ROOT}/checkpoint")
    fresh.crash()
    assert bodies(fresh.store) == [b"far"]
