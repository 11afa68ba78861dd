"""A topic is deleted at a place of the log, on every replica at the same one, and truncated with it."""

from __future__ import annotations

import datetime
import os

import pytest

from brokerd.store import MessageIllegalError, MessageStore, topic_tombstones
from tests.brokerd.quorum_group import QuorumGroup
from tests.sim.memory_disk import Died, MemoryDisk
from tests.sim.store_harness import (
    FILE_BYTES,
    ROOT,
    ManualClock,
    bodies,
    fill,
    message,
    new_store,
    open_store,
    read_queue,
)

FOUR_IN_THE_MORNING = int(datetime.datetime(2026, 3, 10, 4, 30).timestamp() * 1000)  # local time, as deleteWhen
HOUR_MS = 3_600_000


def send(store: MessageStore, *bodies_sent: bytes) -> None:
    store.append([message(body) for body in bodies_sent])
    store.flush()


def offsets(store: MessageStore) -> list[tuple[int, bytes]]:
    return [(found.queue_offset, found.body) for found in read_queue(store, "orders", 0)]


def deleted_past_the_common_end() -> tuple[MemoryDisk, MessageStore, int]:
    """Two messages that others have; two more, a deletion, and a message of the new topic that no one else has."""
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"0", b"1")
    common_end = store.end_offset
    send(store, b"2", b"3")
    store.delete_topic("orders")
    send(store, b"of the new topic")
    return disk, store, common_end


def test_a_former_leader_follows_on_when_a_deletion_was_truncated_with_its_tail() -> None:
    """Its tombstone remembered numbers that other messages have got in the group."""
    group = QuorumGroup.led()
    leader = group[0]
    leader.append(b"0", b"1")
    leader.flush()
    group.level()
    leader.append(b"2, never confirmed", b"3, never confirmed")
    leader.flush()
    for node in group.nodes.values():
        node.store.delete_topic("orders")
    leader.up = False
    group.elect(1)
    group.level()
    group[1].append(b"first of the new topic")
    group[1].flush()
    group.level()
    leader.restart()
    leader.replica.saw_epoch(2, "r1")
    group.level()
    assert leader.log == group[1].log
    assert offsets(leader.store)[-1] == (2, b"first of the new topic")


def test_a_truncated_deletion_never_happened() -> None:
    _, store, common_end = deleted_past_the_common_end()
    store.truncate(common_end)
    assert offsets(store) == [(0, b"0"), (1, b"1")]
    (result,) = store.append([message(b"another")])
    assert result.queue_offset == 2


def test_of_two_deletions_the_one_that_is_not_truncated_counts() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"0", b"1")
    store.delete_topic("orders")
    send(store, b"2")
    kept_end = store.end_offset
    send(store, b"3")
    store.delete_topic("orders")
    store.truncate(kept_end)
    assert offsets(store) == [(2, b"2")]
    store.close()
    assert offsets(open_store(disk)) == [(2, b"2")]


def test_a_kill_at_any_call_of_a_truncation_keeps_no_part_of_the_deletion() -> None:
    disk, store, common_end = deleted_past_the_common_end()
    begin = disk.calls
    store.truncate(common_end)
    calls = disk.calls - begin
    for number in range(calls):
        for power_cut in (False, True):
            disk, store, common_end = deleted_past_the_common_end()
            disk.die_at = disk.calls + number
            with pytest.raises(Died):
                store.truncate(common_end)
            disk = disk.after_power_cut(number) if power_cut else disk.after_kill()
            store = open_store(disk)
            if store.end_offset > common_end:
                store.truncate(common_end)
            assert offsets(store) == [(0, b"0"), (1, b"1")], (number, power_cut)


def test_a_deletion_whose_place_a_power_cut_took_never_happened() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"0")
    store.append([message(b"1")])
    calls = disk.calls
    store.delete_topic("orders")
    for die_at in range(calls, disk.calls):
        disk = MemoryDisk()
        store = open_store(disk)
        send(store, b"0")
        store.append([message(b"1")])
        disk.die_at = die_at
        with pytest.raises(Died):
            store.delete_topic("orders")
        store = open_store(disk.after_losing_all_unsynced())
        assert offsets(store) in ([(0, b"0")], []), die_at


def test_a_follower_takes_the_number_with_which_its_leader_begins_a_new_topic() -> None:
    """Retention has deleted the first files there, and with them the old topic's numbers, and here not yet."""
    clock = ManualClock(FOUR_IN_THE_MORNING - 100 * HOUR_MS)
    leader, follower = open_store(MemoryDisk(), clock), open_store(MemoryDisk())
    fill(leader, 60, queues=1)
    leader.append([message(b"of another", topic="others")])
    leader.flush_consume_queues()
    while follower.end_offset < leader.end_offset:
        follower.append_raw(leader.read_raw(follower.end_offset, 1 << 20), follower.end_offset)
    for store in (leader, follower):
        store.delete_topic("orders")
    clock.time_ms = FOUR_IN_THE_MORNING
    leader.append([message(bytes(1000), topic="others") for _ in range(8)])
    leader.flush_consume_queues()
    assert leader.delete_expired(clock.time_ms).deleted_commit_log_files
    leader.append([message(b"of the new topic")])
    while follower.end_offset < leader.end_offset:
        follower.append_raw(leader.read_raw(follower.end_offset, 1 << 20), follower.end_offset)
    assert offsets(follower) == offsets(leader)
    assert bodies(follower)[-1] == b"of the new topic"


def test_a_follower_whose_disk_brought_deleted_queues_back_takes_the_number_with_which_its_leader_begins() -> None:
    """Their entries are hidden, and stay on its disk, for a queue of the new topic has messages. They were taken for the queue's
    last ones.
    """
    clock = ManualClock(FOUR_IN_THE_MORNING - 100 * HOUR_MS)
    disk = MemoryDisk()
    leader, follower = open_store(MemoryDisk(), clock), open_store(disk)

    def level() -> None:
        leader.flush()
        while follower.end_offset < leader.end_offset:
            follower.append_raw(leader.read_raw(follower.end_offset, 1 << 20), follower.end_offset)
        follower.flush()

    leader.append([message(b"0", queue_id=1), message(b"1", queue_id=1)])
    level()
    follower.flush_consume_queues()
    for store in (leader, follower):
        store.delete_topic("orders")
    leader.append([message(b"of the new topic")])
    level()
    disk = disk.after_losing_all_unsynced()
    follower = open_store(disk)
    assert follower.max_offset("orders", 1) == 2, "its files are there again"
    leader.append([message(bytes(1000), topic="others") for _ in range(16)])
    clock.time_ms = FOUR_IN_THE_MORNING
    leader.append([message(bytes(1000), topic="others") for _ in range(16)])
    leader.flush_consume_queues()
    level()
    assert leader.delete_expired(clock.time_ms).deleted_commit_log_files
    leader.append([message(b"first of its queue", queue_id=1)])
    level()
    for _ in range(2):
        assert [(found.queue_offset, found.body) for found in read_queue(follower, "orders", 1)] == [
            (0, b"first of its queue")
        ]
        follower.close()
        follower = open_store(disk)


def test_a_follower_that_starts_over_takes_the_messages_of_a_topic_that_was_deleted_after_them() -> None:
    """Its leader had said where the queue goes on after the deletion; the first message was one too low, and refused for ever."""
    clock = ManualClock(FOUR_IN_THE_MORNING - 100 * HOUR_MS)
    leader, disk = open_store(MemoryDisk(), clock), MemoryDisk()
    leader.append([message(bytes(1000), topic="others") for _ in range(8)])
    leader.flush_consume_queues()
    clock.time_ms = FOUR_IN_THE_MORNING
    leader.append([message(bytes(1000), topic="others") for _ in range(8)])
    send(leader, b"of the old topic")
    deleted_at = leader.end_offset
    leader.delete_topic("orders")
    with pytest.raises(MessageIllegalError):
        leader.append([message(bytes(FILE_BYTES))])  # from now on there is a queue of the new topic
    leader.flush_consume_queues()
    assert leader.delete_expired(clock.time_ms).deleted_commit_log_files
    assert ("orders", 0, 1) in leader.queues_without_messages()
    follower = open_store(disk)
    follower.start_over(leader.min_physical_offset, leader.queues_without_messages())
    follower.close()
    follower = open_store(disk)  # what it knows of the queue is on its disk
    while follower.end_offset < deleted_at:
        follower.append_raw(leader.read_raw(follower.end_offset, 1), follower.end_offset)
    assert bodies(follower)[-1] == b"of the old topic"
    follower.delete_topic("orders")
    assert [store.append([message(b"next")])[0].queue_offset for store in (leader, follower)] == [1, 1]


@pytest.mark.parametrize("sent", [3, 20])
@pytest.mark.parametrize("entries", [0, 1])
def test_messages_of_a_topic_that_is_made_again_stay_where_a_power_cut_left_its_queues_file_empty(
    sent: int, entries: int
) -> None:
    """Numbers go on at `sent`: with nothing in the file in front of that a later start took the queue for an empty one."""
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, *(b"%d" % number for number in range(sent)))
    store.flush_consume_queues()
    path = f"{ROOT}/consumequeue/orders/0/{0:020d}"
    old = bytes(disk.names[path].data)
    store.delete_topic("orders")
    send(store, b"new")
    disk = disk.after_kill()
    disk.make_directory(f"{ROOT}/consumequeue/orders/0")
    fd = disk.open(path, os.O_RDWR | os.O_CREAT)
    disk.pwrite(fd, old[: entries * 20], 0)
    disk.close(fd)
    store = open_store(disk)
    store.append([message(bytes(1000), "payments") for _ in range(10)])  # no recovery reads back over so much
    store.flush()
    end_offset = store.end_offset
    send(store, b"truncated")
    store.truncate(end_offset)
    assert offsets(store) == [(sent, b"new")]
    send(store, b"next")
    assert offsets(store) == [(sent, b"new"), (sent + 1, b"next")]


def test_tombstones_of_an_older_version_are_read() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"0")
    store.delete_topic("orders")
    store.close()
    path = f"{ROOT}/topicTombstones.json"
    content = bytes(disk.names[path].data).replace(b"[", b"").replace(b"]", b"")
    disk.names[path].data[:] = content
    store = new_store(disk)
    store.open()
    (result,) = store.append([message(b"next")])
    assert result.queue_offset == 1


def test_a_deletion_writes_down_its_own_topic_and_takes_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever deletes topics without end must not have each deletion cost as much as all before it."""
    written: list[topic_tombstones.Tombstone] = []
    entry = topic_tombstones._entry

    def noting(tombstone: topic_tombstones.Tombstone) -> dict[str, object]:
        written.append(tombstone)
        return entry(tombstone)

    monkeypatch.setattr(topic_tombstones, "_entry", noting)
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(20):
        store.append([message(b"0", topic=f"topic-{number}")])
        store.delete_topic(f"topic-{number}")
    assert len(written) == 20
    store.close()
    store = open_store(disk)
    for number in range(20):
        (result,) = store.append([message(b"1", topic=f"topic-{number}")])
        assert result.queue_offset == 1
