"""The process dies, the power fails, the disk errs: at each call that the store makes, and again while it recovers."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from brokerd.store import (
    AppendFailedError,
    DiskFullError,
    FlushFailedError,
    MessageStore,
    StoreError,
    StoreState,
    TailDoubt,
)
from tests.sim.memory_disk import Died, MemoryDisk
from tests.sim.store_harness import (
    COMMIT_LOG,
    FILE_BYTES,
    ROOT,
    ManualClock,
    bodies,
    eio_at,
    fill,
    message,
    new_store,
    open_store,
    read_all,
)

HOUR_MS = 3_600_000


@dataclass
class Run:
    """A scripted life of a store, and what it was promised."""

    sent: list[bytes] = field(default_factory=list)  # all that was ever given to append, in order
    appended: int = 0  # of these: append returned
    durable: int = 0  # of these: a later flush returned

    def live(self, disk: MemoryDisk) -> None:
        store = new_store(disk)
        store.open()
        for number in range(9):
            batch = [b"%d-%d " % (number, i) + b"." * (150 * (i % 3)) for i in range(4)]
            self.sent += batch
            store.append([message(body, queue_id=i % 2, tag="t") for i, body in enumerate(batch)])
            self.appended = len(self.sent)
            if number % 2:
                store.flush()
                self.durable = self.appended
            if number % 4 == 3:
                store.flush_consume_queues()
                self.durable = self.appended
        store.close()
        self.durable = self.appended


def live_until(die_at: int | None) -> tuple[MemoryDisk, Run]:
    disk, run = MemoryDisk(), Run()
    disk.die_at = die_at
    with contextlib.suppress(Died):
        run.live(disk)
    return disk, run


CALLS = live_until(None)[0].calls


def check(disk: MemoryDisk, run: Run, least: int, note: object) -> None:
    """What recovery finds must be a prefix of what was sent, with at least `least` messages; and the store works on."""
    store = new_store(disk)
    report = store.open()
    assert not report.damage, (note, report)
    found = bodies(store)
    assert found == run.sent[: len(found)], note
    assert len(found) >= least, note
    store.append([message(b"after", queue_id=0)])
    store.flush()
    store.close(clean=False)
    again = open_store(disk)
    assert bodies(again) == [*found, b"after"], note
    again.close()
    assert bodies(open_store(disk)) == [*found, b"after"], note


def test_the_script_makes_every_kind_of_call() -> None:
    disk, _ = live_until(None)
    kinds = {call.split()[0] for call in disk.log}
    assert kinds >= {
        "create",
        "pwrite",
        "sync",
        "ftruncate",
        "fallocate",
        "sync_directory",
        "rename",
        "unlink",
        "mkdir",
    }
    assert len(disk.content(COMMIT_LOG)) >= 3


def test_a_kill_at_any_call_loses_nothing_that_append_returned() -> None:
    for die_at in range(CALLS):
        disk, run = live_until(die_at)
        check(disk.after_kill(), run, run.appended, f"die_at={die_at}")


@pytest.mark.parametrize("part", range(4))
def test_a_power_cut_at_any_call_loses_nothing_that_flush_returned(part: int) -> None:
    for die_at in range(part, CALLS, 4):
        disk, run = live_until(die_at)
        for seed in range(12):
            check(disk.after_power_cut(seed), run, run.durable, f"die_at={die_at} seed={seed}")


def recover_until(disk: MemoryDisk, die_at: int) -> bool:
    """Whether recovery was cut short."""
    disk.die_at = die_at
    try:
        new_store(disk).open()
    except Died:
        return True
    return False


@pytest.mark.parametrize("die_at", range(3, CALLS, 13))
def test_dying_again_while_recovering_changes_nothing(die_at: int) -> None:
    for power_cut in (False, True):
        for recovery_dies_at in range(100):
            disk, run = live_until(die_at)
            disk = disk.after_power_cut(die_at) if power_cut else disk.after_kill()
            if not recover_until(disk, recovery_dies_at):
                break
            note = f"die_at={die_at} power_cut={power_cut} recovery_dies_at={recovery_dies_at}"
            check(disk.after_power_cut(recovery_dies_at), run, run.durable, note + " then power")
            check(disk.after_kill(), run, run.durable if power_cut else run.appended, note)
        else:
            pytest.fail("recovery makes more calls than this test has looked at")


def test_log_then_queues_then_checkpoint_are_synced() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4, queues=1)
    disk.log.clear()
    store.flush_consume_queues()
    steps = [
        f"sync {COMMIT_LOG}/{0:020d}",
        f"sync {ROOT}/consumequeue/orders/0/{0:020d}",
        f"sync_directory {ROOT}/consumequeue/orders/0",
        f"sync {ROOT}/checkpoint.tmp",
        f"rename {ROOT}/checkpoint.tmp {ROOT}/checkpoint",
        f"sync_directory {ROOT}",
    ]
    assert [disk.log.index(step) for step in steps] == sorted(disk.log.index(step) for step in steps)


def test_a_failed_sync_is_never_followed_by_a_success() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4)
    disk.fail = lambda number, name: errno.EIO if name == "sync" else None
    durable = store.durable_offset
    with pytest.raises(FlushFailedError):
        store.flush()
    disk.fail = lambda number, name: None  # the second fsync would say all is well
    for _ in range(2):
        with pytest.raises(FlushFailedError):
            store.flush()
    assert store.durable_offset == durable
    with pytest.raises(FlushFailedError):
        store.append([message()])
    with pytest.raises(FlushFailedError):
        store.write_consume_queues()
    assert store.state is StoreState.READ_ONLY
    assert len(bodies(store)) == 4
    store.close()
    assert disk.exists(f"{ROOT}/abort")
    store = open_store(disk)
    assert store.state is StoreState.RUNNING
    fill(store, 4, first=4)
    assert len(bodies(store)) == 8


def test_a_failed_sync_is_never_followed_by_a_success_where_a_write_had_failed_before() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4)
    durable = store.durable_offset
    disk.fail = lambda number, name: errno.EIO if name == "pwrite" else None
    with pytest.raises(AppendFailedError):
        store.append([message()])
    disk.fail = lambda number, name: errno.EIO if name == "sync" else None
    with pytest.raises(FlushFailedError):
        store.flush()
    disk.fail = lambda number, name: None
    with pytest.raises(FlushFailedError):
        store.flush()
    assert store.durable_offset == durable
    assert store.doubts == {TailDoubt.SYNC_FAILED}


def outcomes(disk: MemoryDisk, run: Run) -> list[bytes]:
    """Lives the script to its end whatever fails, and returns what was refused with the promise that nothing was kept."""
    refused: list[bytes] = []
    try:
        store = new_store(disk)
        store.open()
    except (StoreError, OSError):
        return refused
    for number in range(9):
        batch = [b"%d-%d " % (number, i) + b"." * (150 * (i % 3)) for i in range(4)]
        try:
            store.append([message(body, queue_id=i % 2, tag="t") for i, body in enumerate(batch)])
            run.sent += batch
            run.appended = len(run.sent)
        except DiskFullError:
            refused += batch
        except AppendFailedError:
            run.sent += batch  # unknown: it may be there
            break
        except FlushFailedError:
            refused += batch
        for step in (store.flush, store.flush_consume_queues):
            try:
                step()
                run.durable = run.appended
            except (StoreError, OSError):
                pass
    with contextlib.suppress(StoreError, OSError):
        store.close()
    return refused


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("lasting", [False, True])
def test_an_error_of_any_call_costs_no_acknowledged_message(error: int, lasting: bool) -> None:
    for at in range(CALLS + 40):
        disk, run = MemoryDisk(), Run()

        def fail(number: int, name: str, at: int = at) -> int | None:
            return error if (number >= at if lasting else number == at) else None

        disk.fail = fail
        refused = outcomes(disk, run)
        disk.fail = lambda number, name: None
        disk = disk.after_kill()
        store = new_store(disk)
        report = store.open()
        assert not report.damage, (at, report)
        found = bodies(store)
        assert found == run.sent[: len(found)], at
        assert len(found) >= run.appended, at
        assert not set(found) & set(refused), at


def test_a_new_store_takes_nothing_before_its_first_checkpoint_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one a write that a power cut has torn is damage."""
    disk = MemoryDisk()

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "rename", no_room)
        with pytest.raises(OSError, match="No space left"):
            open_store(disk)
    disk = disk.after_kill()
    assert open_store(disk).end_offset == 0


def test_the_names_of_a_queues_files_that_a_killed_process_made_are_synced_with_the_next_checkpoint() -> None:
    """A power cut took them, and all was rebuilt. Where retention had deleted the log's first file meanwhile the queue began at 0
    again, and its followers refused that.
    """
    disk = MemoryDisk()
    fill(open_store(disk, unwritten_entries_max=1), 8, queues=1)  # written, and not synced
    killed = disk.after_kill()
    store = open_store(killed)
    store.flush()
    store.flush_consume_queues()
    disk = killed.after_losing_all_unsynced()
    store = new_store(disk)
    report = store.open()
    assert (report.consume_queue_rebuilt, store.queue_end_offset("orders", 0)) == (False, 8)


def test_a_full_disk_refuses_sends_serves_reads_and_forgets_nothing() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 10)
    disk.capacity_bytes = 700
    with pytest.raises(DiskFullError):
        fill(store, 100, first=10)
    kept = len(bodies(store))
    assert 10 <= kept < 110
    with pytest.raises(DiskFullError):
        store.append([message()])
    assert store.disk_full
    disk.capacity_bytes = None
    store = open_store(disk.after_kill())
    assert len(bodies(store)) == kept


def test_a_disk_that_was_full_has_room_once_that_for_many_records_is_reserved() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    disk.fail = lambda number, name: errno.ENOSPC if name == "fallocate" else None
    with pytest.raises(DiskFullError):
        fill(store, 100)
    clock.time_ms += 1000
    assert store.lacks_room()
    disk.fail = lambda number, name: None
    clock.time_ms += 1000
    assert not store.lacks_room()
    disk.fail = lambda number, name: errno.ENOSPC if name in ("create", "fallocate") else None
    fill(store, 3)
    assert len(bodies(store)) == 3


def test_a_disk_that_was_full_takes_messages_again_also_when_the_clock_was_set_back() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    disk.fail = lambda number, name: errno.ENOSPC if name == "fallocate" else None
    with pytest.raises(DiskFullError):
        fill(store, 100)
    disk.fail = lambda number, name: None
    clock.time_ms -= 3_600_000
    assert fill(store, 3)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_lack_of_descriptors_passes_without_a_restart(error: int) -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    fill(store, 3)
    disk.fail = lambda number, name: error if name == "create" else None
    with pytest.raises(DiskFullError):
        fill(store, 100, first=3)
    kept = len(bodies(store))
    assert store.refusal is None
    disk.fail = lambda number, name: None
    clock.time_ms += 1000
    fill(store, 100, first=103)
    assert len(bodies(store)) == kept + 100


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("after", range(1, 6))
def test_a_truncation_that_finds_no_descriptor_goes_on_without_a_restart(error: int, after: int) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    results = fill(store, 60)
    store.flush_consume_queues()
    store.confirm_offset = results[30].physical_offset
    end_offset = results[9].physical_offset + results[9].size_bytes
    fail_from(disk, after, error)
    with pytest.raises(DiskFullError):
        store.truncate(end_offset)
    assert store.wants_reopening
    with pytest.raises(DiskFullError):
        store.reopen()
    disk.fail = lambda number, name: None
    assert not store.reopen().damage
    assert not store.wants_reopening
    assert store.refusal is None
    assert store.doubts == frozenset()
    assert store.confirm_offset <= results[30].physical_offset
    assert not store.truncate(end_offset).damage
    store.confirm_offset = None
    assert len(bodies(store)) == 10
    fill(store, 3)
    assert len(bodies(store)) == 13


def fail_from(disk: MemoryDisk, after: int, error: int) -> None:
    """No directory can be opened any more, after so many."""
    left = after

    def fail(number: int, name: str) -> int | None:
        nonlocal left
        if name != "sync_directory":
            return None
        left -= 1
        return error if left < 0 else None

    disk.fail = fail


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_a_start_that_finds_no_descriptor_doubts_nothing(error: int) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 30)
    disk = disk.after_kill()
    disk.fail = lambda number, name: error if name == "sync_directory" and disk.log[-1].endswith(COMMIT_LOG) else None
    store = new_store(disk)
    with pytest.raises(OSError, match=os.strerror(error)):
        store.open()
    disk.fail = lambda number, name: None
    assert not store.open().damage
    assert store.doubts == frozenset()
    assert len(bodies(store)) == 30


def test_a_disk_that_fails_while_room_is_looked_for_takes_no_more_messages() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    disk.fail = lambda number, name: errno.ENOSPC if name == "fallocate" else None
    with pytest.raises(DiskFullError):
        fill(store, 100)
    disk.fail = lambda number, name: errno.EIO if name == "fallocate" else None
    clock.time_ms += 1000
    assert store.lacks_room()
    assert isinstance(store.refusal, AppendFailedError)


def test_entries_that_cannot_be_written_refuse_messages_before_they_are_stored() -> None:
    disk = MemoryDisk()
    store = open_store(disk, unwritten_entries_max=10)
    disk.fail = lambda number, name: errno.ENOSPC if name == "mkdir" else None  # no queue gets its directory
    stored: list[bytes] = []
    for number in range(8):
        try:
            fill(store, 4, queues=1, first=number * 4)
        except DiskFullError:
            break
        stored += [b"%06d" % i + b"." * 194 for i in range(number * 4, number * 4 + 4)]
    assert 10 < len(stored) < 32
    assert bodies(store) == stored
    disk.fail = lambda number, name: None
    assert bodies(open_store(disk.after_kill())) == stored


def test_an_unreadable_disk_is_reported_as_the_stores_own_error() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4, queues=1)
    disk.fail_reads = errno.EIO
    with pytest.raises(StoreError, match="reading orders, queue 0 failed"):
        store.get_messages("orders", 0, 0, 32, 100_000)
    disk.fail_reads = None
    assert len(bodies(store)) == 4


def test_a_disk_on_which_the_end_of_a_queue_cannot_be_read_is_reported_as_the_stores_own_error() -> None:
    """The delivery of delayed messages took it for a fault of its own, and rested for ten seconds."""
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4, queues=1)
    store.flush_consume_queues()
    store.confirm_offset = store.end_offset - 1
    disk.fail_reads = errno.EIO
    with pytest.raises(StoreError, match="reading orders, queue 0 failed"):
        store.max_offset("orders", 0)


def test_above_the_watermark_appends_are_refused_until_there_is_room_again() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    store.append([message()])
    disk.used_ratio = 0.91
    clock.time_ms += 1000
    with pytest.raises(DiskFullError):
        store.append([message()])
    assert len(bodies(store)) == 1
    store.flush_consume_queues()
    disk.used_ratio = 0.5
    clock.time_ms += 1000
    store.append([message()])
    assert len(bodies(store)) == 2


def test_a_look_at_the_room_that_fails_leaves_the_answer_to_sends_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A send was answered with an error of the disk, and the delivery of delayed messages rested for ten seconds."""
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    store.append([message()])
    with monkeypatch.context() as patched:
        patched.setattr(disk, "usage", fails)
        clock.time_ms += 1000
        store.append([message()])
    disk.used_ratio = 0.91
    clock.time_ms += 1000
    with pytest.raises(DiskFullError):
        store.append([message()])
    monkeypatch.setattr(disk, "usage", fails)
    clock.time_ms += 1000
    with pytest.raises(DiskFullError):
        store.append([message()])


def fails(path: str) -> NoReturn:
    raise OSError(errno.EIO, "Input/output error", path)


def test_a_lock_that_cannot_be_asked_for_is_not_taken_for_another_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    with monkeypatch.context() as patched:
        patched.setattr(disk, "lock", fails)
        with pytest.raises(OSError, match="Input/output error"):
            open_store(disk)
    open_store(disk)


def test_what_a_failed_write_left_is_zeroed_before_anything_else_is_appended() -> None:
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock)
    fill(store, 3, queues=1)
    end = store.end_offset
    writes = iter([None, errno.ENOSPC])  # the first file takes its part, the second doesn't
    disk.fail = lambda number, name: next(writes, None) if name == "pwrite" else None
    with pytest.raises(DiskFullError):
        store.append([message(bytes(1500)) for _ in range(4)])
    disk.fail = lambda number, name: None
    assert store.end_offset == end
    assert b"".join(disk.content(COMMIT_LOG).values())[end:].strip(b"\0") == b""
    clock.time_ms += 1000
    fill(store, 1, queues=1, first=3)
    assert len(bodies(open_store(disk.after_kill()))) == 4


@pytest.mark.parametrize("action", ["delete topic", "retention"])
def test_dying_while_deleting_leaves_whole_messages_only(action: str) -> None:
    def live(disk: MemoryDisk) -> None:
        clock = ManualClock()
        store = open_store(disk, clock)
        fill(store, 60, queues=2)
        store.append([message(b"kept", topic="other")])
        store.flush_consume_queues()
        disk.die_at = disk.calls + die_at
        clock.time_ms += 1000 * HOUR_MS
        if action == "delete topic":
            store.delete_topic("orders")
        else:
            store.delete_expired(clock.time_ms)
            store.flush_consume_queues()

    for die_at in range(200):
        disk = MemoryDisk()
        try:
            live(disk)
        except Died:
            pass
        else:
            return
        for power_cut in (False, True):
            left = disk.after_power_cut(die_at) if power_cut else disk.after_kill()
            store = new_store(left)
            assert not store.open().damage, (die_at, power_cut)
            found = bodies(store)
            assert found[-1] == b"kept", (die_at, power_cut)
            every = [b"%06d" % number + b"." * 194 for number in range(60)]
            assert found[:-1] in [every[first:] for first in range(61)], (die_at, power_cut)
            store.close(clean=False)
            if power_cut:
                break
    pytest.fail("deleting makes more calls than this test has looked at")


@pytest.mark.parametrize("power_cut", [False, True])
def test_records_of_a_write_that_failed_half_way_do_not_reappear(power_cut: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    fill(store, 4)
    store.flush()
    kept = bodies(store)
    writes = 0

    def fail(number: int, name: str) -> int | None:
        nonlocal writes
        writes += name == "pwrite"
        return errno.EIO if name == "pwrite" and writes == 2 else None

    disk.short_writes = True
    disk.fail = fail
    with pytest.raises(AppendFailedError):
        store.append([message(b"refused %d" % number) for number in range(4)])
    assert writes > 2
    disk = disk.after_power_cut(1) if power_cut else disk.after_kill()
    assert bodies(open_store(disk)) == kept


def nearly_full_file() -> tuple[MemoryDisk, MessageStore]:
    disk = MemoryDisk()
    store = open_store(disk)
    while store.end_offset < FILE_BYTES * 7 // 8:
        fill(store, 1)
    return disk, store


def test_a_flush_holds_though_the_next_file_cannot_be_made_ahead() -> None:
    """That ended the broker, though nothing needed the file yet."""
    disk, store = nearly_full_file()
    calls = disk.calls
    store.flush()
    calls = disk.calls - calls
    assert len(disk.listdir(COMMIT_LOG)) == 2
    for failing in range(1, calls):  # the first is the log's sync
        disk, store = nearly_full_file()
        disk.fail = eio_at(disk.calls + failing)
        assert store.flush() == store.durable_offset == store.end_offset, failing
        assert len(disk.listdir(COMMIT_LOG)) == 1
        fill(store, 10)


def test_the_append_that_needs_a_file_which_cannot_be_made_is_the_last_one() -> None:
    disk, store = nearly_full_file()
    disk.fail = lambda number, name: errno.EIO if name == "create" else None
    store.flush()
    with pytest.raises(AppendFailedError):
        fill(store, 10)
    assert store.state is StoreState.READ_ONLY


STARTS_OVER_AT = 2 * FILE_BYTES
EMPTIED = ("emptied", 0, 40)  # a queue of the leader's that retention has emptied, and where it goes on


def before_starting_over(*, damaged: bool) -> tuple[MemoryDisk, MessageStore]:
    """A follower's log that ends in front of what its leader still has; a topic of it was deleted, and came again."""
    disk = MemoryDisk()
    store = open_store(disk)
    store.append([message(b"emptied", topic="emptied")])
    store.delete_topic("emptied")
    results = fill(store, 8, queues=1)
    store.flush()
    store.flush_consume_queues()
    if damaged:
        disk.flip_bit(f"{COMMIT_LOG}/{0:020d}", results[3].physical_offset + 100)
        store.declare_damaged(results[3].physical_offset)
    return disk, store


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_that_has_started_over_takes_its_leaders_queues_whenever_the_process_or_the_power_ends(
    damaged: bool,
) -> None:
    """A queue's old files came back: what the leader sent did not follow its entries, and the replica was stuck for ever."""
    leader = open_store(MemoryDisk())
    fill(leader, 60, queues=1)
    records = leader.read_raw(STARTS_OVER_AT, 1 << 20)
    disk, store = before_starting_over(damaged=damaged)
    calls = disk.calls
    store.start_over(STARTS_OVER_AT, [EMPTIED])
    for die_at in range(calls, disk.calls + 1):
        for loss in ("kill", "some unsynced", "all unsynced"):
            disk, store = before_starting_over(damaged=damaged)
            disk.die_at = die_at
            with contextlib.suppress(Died):
                store.start_over(STARTS_OVER_AT, [EMPTIED])
            if loss == "kill":
                disk = disk.after_kill()
            else:
                disk = disk.after_power_cut(die_at) if loss == "some unsynced" else disk.after_losing_all_unsynced()
            store = new_store(disk)
            assert bool(store.open().damage) <= damaged
            if store.end_offset < STARTS_OVER_AT:
                store.start_over(STARTS_OVER_AT, [EMPTIED])
            store.append_raw(records, STARTS_OVER_AT)
            store.confirm_offset = None
            found = store.max_offset("orders", 0), store.max_offset(*EMPTIED[:2])
            assert found == (60, 40), (die_at, loss)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_log_whose_disk_fails_while_it_starts_over_is_no_damaged_one_after_a_restart(damaged: bool) -> None:
    """A checkpoint that was written after the log's files had gone had recovery miss them."""
    disk, store = before_starting_over(damaged=damaged)
    calls = disk.calls
    store.start_over(STARTS_OVER_AT, [EMPTIED])
    failures = 0
    for fail_at in range(calls, disk.calls + 1):
        disk, store = before_starting_over(damaged=damaged)
        disk.fail = eio_at(fail_at)
        try:
            store.start_over(STARTS_OVER_AT, [EMPTIED])
        except (OSError, StoreError):
            failures += 1
            if not store.wants_reopening:  # else flushes are kept away (StoreGate)
                with contextlib.suppress(OSError, StoreError):
                    store.flush_consume_queues()
        store = new_store(disk.after_kill())
        assert bool(store.open().damage) <= damaged, fail_at
        store.start_over(STARTS_OVER_AT, [EMPTIED])
        assert (store.end_offset, store.max_offset(*EMPTIED[:2])) == (STARTS_OVER_AT, 40), fail_at
    assert failures


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_log_that_lost_its_queues_while_it_started_over_is_used_no_more(error: int) -> None:
    """It took new messages, with numbers that others had, and a checkpoint said that its queues had none."""
    disk, store = before_starting_over(damaged=False)
    before = read_all(store)
    calls = disk.calls
    store.start_over(STARTS_OVER_AT, [EMPTIED])
    for fail_at in range(calls, disk.calls):
        disk, store = before_starting_over(damaged=False)
        disk.fail = lambda number, _, fail_at=fail_at: error if number == fail_at else None  # type: ignore[misc] # bound by its default
        with contextlib.suppress(OSError, StoreError):
            store.start_over(STARTS_OVER_AT, [EMPTIED])
        if not store.wants_reopening and store.refusal is None and store.end_offset != STARTS_OVER_AT:
            assert read_all(store) == before, fail_at


@pytest.mark.parametrize("call", ["fallocate", "create"])
def test_a_log_that_finds_no_room_to_start_over_in_is_opened_again_and_starts_over_once_it_has(call: str) -> None:
    disk, store = before_starting_over(damaged=False)
    disk.fail = lambda number, name: errno.ENOSPC if name == call and "checkpoint" not in disk.log[-1] else None
    with pytest.raises(DiskFullError):
        store.start_over(STARTS_OVER_AT, [EMPTIED])
    assert store.wants_reopening
    disk.fail = lambda number, name: None
    assert store.reopen().end_offset == 0
    store.start_over(STARTS_OVER_AT, [EMPTIED])
    assert store.end_offset == STARTS_OVER_AT


def test_a_log_whose_folder_is_a_file_system_of_its_own_starts_over_beside_what_that_keeps_there() -> None:
    disk, store = before_starting_over(damaged=False)
    disk.make_directory(f"{COMMIT_LOG}/lost+found")
    store.start_over(STARTS_OVER_AT, [EMPTIED])
    assert store.end_offset == STARTS_OVER_AT
    assert "lost+found" in disk.listdir(COMMIT_LOG)


def test_a_lock_file_that_finds_no_room_locks_no_one_out() -> None:
    disk = MemoryDisk()
    open_store(disk).close()
    store = new_store(disk)
    disk.fail = lambda _number, name: (
        errno.ENOSPC if name == "pwrite" and disk.log[-1].startswith("pwrite /store/lock") else None
    )
    with pytest.raises(OSError, match="No space"):
        store.open()
    disk.fail = lambda _number, _name: None
    store.open()
