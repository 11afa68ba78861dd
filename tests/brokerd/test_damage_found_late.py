"""Damage in the log that appears while the broker runs: no one ships it, another replica's records put it right, and
meanwhile a replica that has them leads."""

from __future__ import annotations

import pytest

from brokerd.replica.quorum_state import State
from brokerd.store import LogDamagedError, MessageStore, RecordDamagedError, StoreDamagedError, StoreState
from tests.brokerd.quorum_group import Node, QuorumGroup
from tests.sim.memory_disk import Died, MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, bodies, fill, message, new_store, open_store, read_queue


def damage(disk: MemoryDisk, offset: int) -> None:
    disk.flip_bit(f"{COMMIT_LOG}/{offset - offset % FILE_BYTES:020d}", offset % FILE_BYTES)


def damaged_leader() -> tuple[QuorumGroup, int]:
    """Replica 2 was away when a message was stored that is damaged at the leader, 0, now. Replica 1 has it whole."""
    group = QuorumGroup.led()
    group.isolate(2)
    spots = []
    for number in range(3):
        spots.append(group[0].store.end_offset)
        group[0].append(b"m%d" % number + b"." * 100)
        group[0].flush()
        group[1].pull()
        group[1].pull()
    damage(group[0].disk, spots[1] + 100)
    group.rejoin(2)
    return group, spots[1]


def hand_over(node: Node) -> None:
    """As the broker does half a second after a reader met it."""
    offset = node.store.damage_seen
    assert offset is not None, "a reader has met it"
    begin = node.store.locate_damage(offset)
    assert begin is not None
    assert node.replica.is_repairable(begin)
    node.store.declare_damaged(begin)


def repair(node: Node, other: Node) -> None:
    """With what the leader answers to its next pull."""
    pull = node.replica.next_pull(max_bytes=1 << 20, max_wait_ms=0)
    assert pull.end_offset == node.store.damaged_from
    node.replica.repair(other.store.read_raw(pull.end_offset, pull.max_bytes, check=True), of_leader=True)


def test_what_a_follower_asks_for_again_is_checked_and_not_sent_damaged() -> None:
    group, spot = damaged_leader()
    with pytest.raises(LogDamagedError) as raised:
        group[0].store.read_raw(spot, 1 << 20, check=True)
    assert raised.value.physical_offset == group[0].store.damage_seen == spot


def test_no_empty_answer_is_given_for_a_damaged_record() -> None:
    """It would be asked for again at once."""
    group, spot = damaged_leader()
    with pytest.raises(LogDamagedError):
        group[0].store.read_raw(spot, 150)


def test_an_elected_leader_that_cannot_read_its_log_hands_over_to_one_that_has_it() -> None:
    group, spot = damaged_leader()
    with pytest.raises(LogDamagedError):
        group[0].store.read_raw(spot, 1 << 20, check=True)
    hand_over(group[0])
    group[0].tick()
    assert group[0].state is not State.LEADER
    group.deliver()
    assert group.leaders == [1]
    group[1].flush()
    repair(group[0], group[1])
    group.level()
    assert [body for body in bodies(group[0].store) if body.startswith(b"m")] == [
        b"m%d" % n + b"." * 100 for n in range(3)
    ]
    assert {node.log for node in group.nodes.values()} == {group[1].log}
    assert group[0].elections.why_not_electable() is None


def test_a_follower_that_puts_damage_right_gives_up_nothing_that_others_count_on() -> None:
    group, spot = damaged_leader()
    damage(group[1].disk, spot + 101)
    end = group[1].store.end_offset
    group[1].store.declare_damaged(spot)
    assert group[1].elections.why_not_electable() is not None
    damage(group[0].disk, spot + 100)  # the same bit again: the leader is sound
    repair(group[1], group[0])
    assert group[1].store.end_offset == end
    assert group[1].replica.saved.joined
    assert group[1].elections.why_not_electable() is None


def test_an_epoch_record_that_was_damaged_is_known_again_after_the_repair() -> None:
    group = QuorumGroup.led()
    group.level()
    epochs = group[1].replica.epochs.entries
    group[1].store.flush_consume_queues()
    group[1].restart_with_rot(60)
    repair(group[1], group[0])
    assert group[1].replica.epochs.entries == epochs


def test_a_replica_whose_first_epoch_record_has_rotted_starts_and_fetches_it_again() -> None:
    """No recovery reads so far back: it came to its end at each start."""
    group = QuorumGroup.led()
    while group[0].store.end_offset < 2 * FILE_BYTES:
        group[0].append(b"." * 400)
    group[0].flush()
    group.level()
    follower, epochs = group[1], group[1].replica.epochs.entries
    follower.store.close()
    damage(follower.disk, 60)
    follower.disk = follower.disk.after_kill()
    follower.open()
    assert follower.store.damaged_from == 0
    assert follower.replica.epochs.entries == epochs
    assert follower.elections.why_not_electable() is not None
    repair(follower, group[0])
    assert follower.store.damaged_from is None
    assert follower.replica.epochs.entries == epochs


def test_messages_in_front_of_a_damaged_one_are_given_first() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 6, queues=1)
    store.close()
    store = open_store(disk)
    damage(disk, results[3].physical_offset + 100)
    assert store.get_messages("orders", 0, 0, 32, 100_000).count == 3
    with pytest.raises(RecordDamagedError):
        store.get_messages("orders", 0, 3, 32, 100_000)
    assert store.locate_damage(store.damage_seen or 0) == results[3].physical_offset


def test_what_is_no_damage_of_the_log_is_not_located() -> None:
    store = open_store(MemoryDisk())
    results = fill(store, 30)
    assert all(store.locate_damage(result.physical_offset) is None for result in results)
    assert store.locate_damage(store.end_offset) is None


def pulled(store: MessageStore) -> bytes:
    """What a consumer is given, which is not looked at here."""
    return b"".join(store.get_messages("orders", 0, 0, 32, 100_000).chunks)


def pair() -> tuple[MemoryDisk, MemoryDisk, list[int]]:
    """Two disks with one log of several files."""
    disks = MemoryDisk(), MemoryDisk()
    store, other = map(open_store, disks)
    results = fill(store, 60)
    other_end = 0
    while other_end < store.end_offset:
        other_end = other.append_raw(store.read_raw(other_end, 3000), other_end)
    for each in (store, other):
        each.close()
    return *disks, [result.physical_offset for result in results]


@pytest.mark.parametrize("declared", [False, True])
def test_every_damaged_record_is_put_right_in_place(declared: bool) -> None:
    """Found by recovery, or declared while the store runs."""
    disk, other_disk, spots = pair()
    other = open_store(other_disk)
    damaged = (3, 4, 20, 41)
    for number in damaged:
        damage(disk, spots[number] + 90)
    if not declared:
        del disk.names["/store/checkpoint"]
    store = new_store(disk)
    report = store.open()
    assert bool(report.damage) is not declared
    for number in damaged:
        if declared:
            store.declare_damaged(spots[number])
        if store.damaged_from is not None:
            store.repair(other.read_raw(store.damaged_from, 1000), needs_proof=False)
    assert store.state is StoreState.RUNNING
    assert store.read_raw(0, 1 << 20, check=True) == other.read_raw(0, 1 << 20, check=True)
    assert bodies(store) == bodies(other)


def test_a_kill_at_any_call_of_a_repair_leaves_a_log_that_can_be_repaired() -> None:
    for die_at in range(100):
        disk, other_disk, spots = pair()
        other = open_store(other_disk)
        damage(disk, spots[20] + 90)
        store = open_store(disk)
        store.declare_damaged(spots[20])
        disk.die_at = disk.calls + die_at
        try:
            store.repair(other.read_raw(spots[20], 1000), needs_proof=False)
        except Died:
            disk = disk.after_power_cut(die_at) if die_at % 2 else disk.after_kill()
            store = open_store(disk)
            if store.locate_damage(spots[20]) is not None:
                store.declare_damaged(spots[20])
                store.repair(other.read_raw(spots[20], 1000), needs_proof=False)
            assert bodies(store) == bodies(other), die_at
        else:
            break
    else:
        pytest.fail("a repair makes more calls than this test has looked at")


def test_records_that_do_not_fit_leave_the_log_as_it_was() -> None:
    disk, _, spots = pair()
    store = open_store(disk)
    before = disk.content(COMMIT_LOG)
    store.declare_damaged(spots[20])
    with pytest.raises(ValueError, match="no record"):
        store.repair(b"\xff" * 300, needs_proof=False)
    assert disk.content(COMMIT_LOG) == before
    assert store.damaged_from == spots[20]


def test_a_damaged_store_takes_nothing() -> None:
    store = open_store(MemoryDisk())
    (first, *_) = fill(store, 3)
    store.declare_damaged(first.physical_offset)
    with pytest.raises(StoreDamagedError):
        store.append([message(b"refused")])
    assert len(read_queue(store, "orders", 0)) == 1


def test_the_only_replica_of_its_group_goes_on() -> None:
    """There is none to hand over to: one message is lost, and the others need not be."""
    group = QuorumGroup.led(1)
    assert not group[0].replica.is_repairable(0)


def parted_with_rot() -> QuorumGroup:
    """Replica 0 was elected again and wrote what no one else has; 1 leads now. 0 comes back with its epoch's record damaged."""
    group = QuorumGroup.led()
    spot = group[0].store.end_offset
    group[0].restart()
    group.elect(0)
    group[0].append(b"a" * 100, b"b" * 100)
    group[0].flush()
    group.isolate(0)
    group.elect(1)
    assert group[1].replica.epochs.entries[-1].start_offset == spot == group[0].replica.epochs.entries[-1].start_offset
    group[1].append(b"c" * 100, b"d" * 100)
    group[1].flush()
    group[0].restart_with_rot(spot + 60)
    assert group[0].store.damaged_from == spot
    group.rejoin(0)
    group[0].replica.saw_epoch(group[1].replica.epoch, "r1")
    return group


@pytest.mark.parametrize("more_follows", [True, False], ids=["more follows", "the leader has no more there"])
def test_damage_where_logs_part_does_not_join_two_logs(more_follows: bool) -> None:
    """Both epochs' records are of one size, so what follows the damage looked as if it were the leader's."""
    group = parted_with_rot()
    begin = group[0].store.damaged_from
    assert begin is not None
    data = group[1].store.read_raw(begin, 1 << 20 if more_follows else 1)
    with pytest.raises(ValueError, match="the logs part" if more_follows else "says that both"):
        group[0].replica.repair(data, of_leader=True)
    group[0].repair()
    group.level()
    assert group[0].store.read_raw(0, 1 << 20) == group[1].store.read_raw(0, 1 << 20)


def test_voters_with_damage_in_several_places_put_each_right_though_none_may_lead() -> None:
    """Each record is whole somewhere; but a damaged voter neither campaigns nor votes, and there was no leader to ask."""
    group = QuorumGroup.led()
    spots = []
    for number in range(4):
        spots.append(group[0].store.end_offset)
        group[0].append(b"m%d" % number + b"." * 100)
    group.level()
    for number in (0, 1):
        damage(group[number].disk, spots[2 * number] + 100)
        group[number].store.declare_damaged(spots[2 * number])
    group.live(10.0)
    assert group.leaders == []
    for node, other in ((group[0], group[1]), (group[1], group[0])):
        damaged_from = node.store.damaged_from
        assert damaged_from is not None
        node.replica.repair(other.store.records_and_next(damaged_from, 1), of_leader=False)
    group.live(10.0)
    assert len(group.leaders) == 1
    assert {node.log for node in group.nodes.values()} == {group[2].log}


def test_records_of_a_replica_that_does_not_lead_are_taken_with_proof_only() -> None:
    group, spot = damaged_leader()
    group[0].store.declare_damaged(spot)
    group[0].tick()
    with pytest.raises(ValueError, match="says that both logs are the same"):
        group[0].replica.repair(group[1].store.read_raw(spot, 1), of_leader=False)
    group[0].replica.repair(group[1].store.records_and_next(spot, 1), of_leader=False)
    assert group[0].store.damaged_from is None


def test_damage_is_written_over_while_the_store_goes_on() -> None:
    disk, other_disk, spots = pair()
    store, other = open_store(disk), open_store(other_disk)
    damage(disk, spots[20] + 90)
    store.write_over(spots[20], other.records_and_next(spots[20], 1))
    assert store.read_raw(0, 1 << 20, check=True) == other.read_raw(0, 1 << 20, check=True)
    assert store.state is StoreState.RUNNING
    assert store.append([message(b"and on")])


def test_what_was_written_over_is_read_from_the_disk_again() -> None:
    """A consumer that read it damaged, as no one checks what this process wrote lately, had left it in memory for all others."""
    disk, other_disk = MemoryDisk(), MemoryDisk()
    store, other = open_store(disk), open_store(other_disk)
    spots = [result.physical_offset for result in fill(store, 12, queues=1)]
    other.append_raw(store.read_raw(0, 1 << 20), 0)
    damage(disk, spots[3] + 100)
    assert pulled(store) != pulled(other)
    store.write_over(spots[3], other.records_and_next(spots[3], 1))
    assert pulled(store) == pulled(other)


def test_damage_is_written_over_with_records_of_a_log_that_is_damaged_itself_further_on() -> None:
    """The damage there had the whole answer refused, and two replicas of two waited for each other for ever."""
    disk, other_disk, spots = pair()
    store, other = open_store(disk), open_store(other_disk)
    damage(disk, spots[20] + 90)
    damage(other_disk, spots[22] + 90)
    store.write_over(spots[20], other.records_and_next(spots[20], 1 << 20))
    assert store.locate_damage(spots[20]) is None
    assert other.damage_seen == spots[22]


def test_whole_records_of_a_log_that_parts_are_never_written_over() -> None:
    """They were kept nowhere: the other log's records went over them, and its BLANK up to the end of the file."""
    disk, other = MemoryDisk(), open_store(MemoryDisk())
    store = open_store(disk)
    begin = fill(store, 8)[4].physical_offset
    fill(other, 4)
    other.append([message(b"." * 90), message(b"." * 3000)])
    assert store.end_offset < FILE_BYTES < other.end_offset
    damage(disk, begin + 90)
    store.declare_damaged(begin)
    before = disk.content(COMMIT_LOG)
    with pytest.raises(ValueError, match="past the end"):
        store.repair(other.read_raw(begin, 1 << 20), needs_proof=False)
    assert disk.content(COMMIT_LOG) == before


def test_a_damaged_log_is_truncated_in_front_of_the_damage() -> None:
    """Where it parts from the leader's there: the follower stopped for good."""
    disk, _, spots = pair()
    store = open_store(disk)
    store.declare_damaged(spots[20])
    store.truncate(spots[18])
    assert (store.state, store.end_offset) == (StoreState.RUNNING, spots[18])
