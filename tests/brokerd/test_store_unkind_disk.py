"""A store on a disk that fails any call, writes short, is full, loses its power and drops its cache: in any order.

Judged by the platter: what a flush or an opening called durable is there, byte for byte, and is found ever after.
"""

from __future__ import annotations

import contextlib
import errno
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from brokerd.store import AppendFailedError, DiskFullError, FlushFailedError, MessageStore, RecoveryReport, StoreError
from brokerd.store.commit_log import CommitLog
from mqwire.message import StoredMessage
from tests.sim.memory_disk import MemoryDisk
from tests.sim.store_harness import COMMIT_LOG, FILE_BYTES, message, new_store, read_all

CALLS = ("pwrite", "sync", "ftruncate", "fallocate", "rename", "create", "sync_directory", "unlink", "truncate")
MESSAGES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 600)), min_size=1, max_size=4)  # (how many, size)
ENDS = st.sampled_from(("stop", "kill", "kill", "drop", "power", "power", "twice"))


class StoreOnAnUnkindDisk(RuleBasedStateMachine):
    """Invariant: `bodies` is what was appended, in the log's order; the first `durable` of them must never be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.store: MessageStore = new_store(self.disk)
        self.bodies: list[bytes] = []
        self.ends: list[int] = []
        self.durable = 0
        self.present = 0  # of them: in the page cache at least, so that a kill alone keeps them
        self.sent = 0

    @initialize()
    def open_first(self) -> None:
        assert not self.store.open().damage

    # --- what the broker does

    @rule(messages=MESSAGES)
    def send(self, messages: list[tuple[int, int]]) -> None:
        for count, size in messages:
            self.append(count, size)

    def append(self, count: int, size: int) -> None:
        sent = [b"%06d" % (self.sent + number) + b"." * size for number in range(count)]
        self.sent += count
        whole = self.present == len(self.bodies)
        try:
            results = self.store.append([message(body, queue_id=number % 2) for number, body in enumerate(sent)])
        except DiskFullError:
            return  # nothing of it may ever be found
        except AppendFailedError:
            self.bodies += sent  # unknown, as its sender's answer says; nothing follows it
            return
        except StoreError:
            return
        assert whole, "a store that took something it is not sure of takes nothing more"
        self.bodies += sent
        self.ends += [result.physical_offset + result.size_bytes for result in results]
        self.present = len(self.bodies)

    @rule()
    def flush(self) -> None:
        count = self.present
        try:
            durable_offset = self.store.flush()
        except (StoreError, OSError):
            return
        assert durable_offset == self.store.end_offset
        self.durable = count
        self.judge_by_the_platter()

    @rule()
    def write_queues(self) -> None:
        count = self.present
        try:
            self.store.flush_consume_queues()
        except (StoreError, OSError):
            return
        self.durable = count
        self.judge_by_the_platter()

    @precondition(lambda self: self.ends and self.store.refusal is None)
    @rule(data=st.data())
    def truncate(self, data: Any) -> None:
        kept = data.draw(st.integers(0, len(self.ends)), label="kept")
        self.durable = min(self.durable, kept)
        try:
            report = self.store.truncate(self.ends[kept - 1] if kept else self.store.min_physical_offset)
        except (StoreError, OSError):
            self.present = min(self.present, kept)
            if self.store.wants_reopening:
                self.disk.fail = lambda number, name: None
                self.judge_reopened(self.store.reopen())
            else:
                self.reopen(self.disk.after_kill())
            return
        assert not report.damage
        self.bodies, self.ends = self.bodies[:kept], self.ends[:kept]
        self.durable = self.present = kept
        self.judge_by_the_platter()

    def close(self) -> None:
        try:
            self.store.close()
        except (StoreError, OSError):
            pass
        else:
            if self.store.refusal is None:
                self.durable = self.present
        self.reopen(self.disk.after_kill())

    # --- what the machine does

    @rule(call=st.sampled_from(CALLS), after=st.integers(0, 12), error=st.sampled_from((errno.EIO, errno.ENOSPC)))
    def fail_once(self, call: str, after: int, error: int) -> None:
        left = after

        def fail(number: int, name: str) -> int | None:
            nonlocal left
            if name != call:
                return None
            left -= 1
            return error if left == -1 else None

        self.disk.fail = fail

    @rule(call=st.sampled_from(("create", "sync_directory")), after=st.integers(0, 12))
    def lack_a_descriptor(self, call: str, after: int) -> None:
        self.fail_once(call, after, errno.EMFILE)

    @rule(messages=MESSAGES, unwritten=st.booleans(), how=ENDS, seed=st.integers(0, 1 << 30))
    def fail_to_sync(self, messages: list[tuple[int, int]], unwritten: bool, how: str, seed: int) -> None:
        """The CommitLog's sync fails, after a write that failed or without one; the next would succeed; the process ends."""
        self.send(messages)
        if unwritten:
            self.disk.fail = lambda number, name: errno.EIO if name == "pwrite" else None
            self.append(1, 0)
        self.disk.fail = lambda number, name: errno.EIO if name == "sync" and COMMIT_LOG in self.disk.log[-1] else None
        self.flush()
        self.disk.fail = lambda number, name: None
        self.flush()
        self.end(how, seed)

    @rule(short=st.booleans(), room=st.sampled_from((None, None, None, 500, FILE_BYTES, 3 * FILE_BYTES)))
    def disturb(self, short: bool, room: int | None) -> None:
        """Writes are short, or the disk fills."""
        self.disk.short_writes = short
        self.disk.capacity_bytes = room

    @rule(how=ENDS, seed=st.integers(0, 1 << 30))
    def end(self, how: str, seed: int) -> None:
        """The process ends, and the next one begins."""
        if how == "stop":
            self.close()
        elif how == "kill":
            self.reopen(self.disk.after_kill())
        elif how == "drop":  # only pages that a failed sync has left behind are other ones on the platter
            self.present = self.durable
            disk = self.disk.after_kill()
            for inode in disk.names.values():
                inode.drop_clean_pages()
            self.reopen(disk)
        elif how == "power":
            self.present = self.durable
            self.reopen(self.disk.after_power_cut(seed))
        else:
            self.die_while_opening(seed)

    def die_while_opening(self, seed: int) -> None:
        disk = self.disk.after_power_cut(seed) if seed % 2 else self.disk.after_kill()
        after = seed % 31
        disk.fail = lambda number, name: errno.EIO if number >= after else None
        with contextlib.suppress(StoreError, OSError):
            new_store(disk).open()
        self.present = self.durable  # its syncs have failed
        self.reopen(disk.after_kill())

    # --- judging

    def reopen(self, disk: MemoryDisk) -> None:
        """As a supervisor does, until it opens."""
        disk.short_writes, disk.capacity_bytes = self.disk.short_writes, self.disk.capacity_bytes
        self.disk = disk
        self.store = new_store(disk)
        self.judge_reopened(self.store.open())

    def judge_reopened(self, report: RecoveryReport) -> None:
        assert not report.damage, report
        assert self.store.durable_offset == self.store.end_offset
        found = self.found()
        bodies = [each.body for each in found]
        assert bodies == self.bodies[: len(bodies)], (bodies, self.bodies)
        assert len(bodies) >= max(self.durable, self.present), (bodies, self.bodies, self.durable, self.present)
        self.bodies = bodies
        self.ends = [each.physical_offset + each.size_bytes for each in found]
        self.durable = self.present = len(bodies)
        self.judge_by_the_platter()

    def found(self) -> list[StoredMessage]:
        every = [each for messages in read_all(self.store).values() for each in messages]
        return sorted(every, key=lambda each: each.physical_offset)

    def judge_by_the_platter(self) -> None:
        end = self.store.durable_offset
        for base in range(0, end, FILE_BYTES):
            path = f"{COMMIT_LOG}/{base:020d}"
            size = min(FILE_BYTES, end - base)
            assert self.disk.on_platter(path, 0, size) == bytes(self.disk.names[path].data[:size]), (path, end)

    @invariant()
    def what_was_appended_is_read(self) -> None:
        if self.store.refusal is None or isinstance(self.store.refusal, FlushFailedError):
            assert [each.body for each in self.found()] == self.bodies[: self.present]


TestStoreOnAnUnkindDisk = StoreOnAnUnkindDisk.TestCase
TestStoreOnAnUnkindDisk.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def _takes_recovered_pages_for_durable(log: CommitLog, begin: int) -> None:
    log.durable_offset = log.end_offset


_flush = CommitLog.flush


def _syncs_again(log: CommitLog) -> int:
    log._sync_failure = log._status.refusal = None
    return _flush(log)


def _asks_the_latch_alone(log: CommitLog) -> int:
    log._sync_failure = None
    return _flush(log)


PLANTED_BUGS = {
    "recovered pages are synced and not written again": (CommitLog, "_write_again", lambda *_: None),
    "recovered pages are taken for durable": (CommitLog, "make_recovered_durable", _takes_recovered_pages_for_durable),
    "a failed sync is tried again": (CommitLog, "flush", _syncs_again),
    "a sync that failed after a write had failed is tried again": (CommitLog, "flush", _asks_the_latch_alone),
}


@pytest.mark.parametrize("name", PLANTED_BUGS)
def test_a_bug_planted_in_the_store_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED_BUGS[name])
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            StoreOnAnUnkindDisk, settings=settings(TestStoreOnAnUnkindDisk.settings, phases=[Phase.generate])
        )
