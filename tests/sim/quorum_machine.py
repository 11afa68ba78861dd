"""A machine of a group that may elect its leader: what the world knows of its disk and of the voters, also while it is down."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brokerd.replica.epoch_map import EpochMap
from brokerd.replica.voters import Members
from tests.sim.broker_process import BLANK_MAGIC, BrokerProcess
from tests.sim.changing_process import ChangingProcess
from tests.sim.history import Copy, is_in_log
from tests.sim.machine import Machine, is_there, place_in_log
from tests.sim.memory_disk import MemoryDisk
from tests.sim.quorum_process import QuorumProcess
from tests.sim.sim_disk import COMMIT_LOG
from tests.sim.sim_environment import FILE_BYTES


class QuorumMachine(Machine):
    """See the module."""

    process_type: type[BrokerProcess] = QuorumProcess

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.boots_unknown = 0.0  # it would wait half a minute after each kill with ASYNC_FLUSH, as after a power cut
        self.others: list[QuorumMachine] = []
        self.members: Members = self.settings.members  # as its log had them when it was looked at last
        self.joined = False
        self.blank = False  # its disk was replaced, and the group has not adopted the new one since
        self._lost_logs: list[
            tuple[EpochMap, int]
        ] = []  # the logs, each to its end, of disks that it had before this blank one
        # A sync of its log failed, or a spoiled record was truncated with all after it, or a power cut left of what was not
        # synced a later record whole and an earlier one not, and it has not caught up since: its vote alone makes no majority
        # (voters.py).
        self.in_doubt = False
        self._lost_to_rot = False  # its log is uncertain for the second of these reasons
        self._failed_in_run = 0

    def replace_disk(self) -> None:
        self.kill()
        gone = self._lost_logs if self.blank else []
        self._lost_logs = [*gone, *([] if self._left is None else [self._left[:2]])]
        super().replace_disk()
        self.members, self.joined, self.blank = self.settings.members, False, True
        self.in_doubt = self._lost_to_rot = False

    def had(self, copy: Copy) -> bool:
        """Whether a disk had the record that was replaced by the blank one: what it reported of that still counts."""
        return self.blank and any(is_in_log(copy, epochs, end) for epochs, end in self._lost_logs)

    def start(self) -> None:
        if self.disk.failing != COMMIT_LOG:
            # What was to fail the sync of a vote is over with its process: it is no failed sync of the log.
            self.disk.failing, self.disk.fail_syncs = COMMIT_LOG, 0
        super().start()

    def power_cut(self) -> None:
        written = list(self._unsynced_records())
        super().power_cut()
        left = [is_there(record, begin, self.disk.page_cache) for begin, record in written]
        if left != sorted(left, reverse=True):
            # Recovery truncates them from the first that is not whole on, and can't know that none had been synced.
            self.loop.note(f"{self.name} has lost unsynced records in front of others")
            self.in_doubt, self._failed_in_run = True, 0

    def _after_power_cut(self, seed: int) -> MemoryDisk:
        """Beside an empty disk nothing unsynced is left with SYNC_FLUSH: a log in doubt has no full vote either, and the two could
        be a majority. Only a recovery by hand would help then.
        """
        if self.settings.durable_counts and any(machine.blank for machine in self.others):
            return self.disk.after_losing_all_unsynced()
        return super()._after_power_cut(seed)

    def _unsynced_records(self) -> Iterator[tuple[int, bytes]]:
        """Records of its log that a power cut may take, as they are in the page cache, each with where it begins."""
        begin = self._left[2] if self._left is not None else 0
        if self.process is not None:
            begin = self.process.store.durable_offset
        while True:
            path, position = place_in_log(begin)
            data = self.disk.page_cache(path, position, FILE_BYTES)
            size = int.from_bytes(data[:4], "big")
            if data[4:8] == BLANK_MAGIC:
                yield begin, data[:8]
                begin += FILE_BYTES - position
            elif 0 < size <= len(data):
                yield begin, data[:size]
                begin += size
            else:
                return

    def rot_truncated(self) -> None:
        # What was truncated may have been acknowledged. The process that did it may fetch it again, and then holds all.
        self.in_doubt = self._lost_to_rot = True
        self._failed_in_run = 0

    def holds_all(self) -> None:
        """Its process says that its log lacks nothing: believed of one that was started after the failed sync."""
        self.in_doubt &= self.runs == self._failed_in_run
        self._lost_to_rot &= self.in_doubt

    @property
    def has_lost_to_rot(self) -> bool:
        """Whether it truncated a spoiled record with what it had reported after it, and has not caught up since."""
        return self.rot is None and self._lost_to_rot  # `rot` looks at the disk

    @property
    def has_full_vote(self) -> bool:
        """Whether the disk is one that the group knows, and all that it was to sync is there, as it was written."""
        return not self.blank and not self.in_doubt and not self.may_rot

    def wants_restart(self, process: BrokerProcess) -> bool:
        if super().wants_restart(process) or process.follower.halted:
            if process.follower._halted is not None and self._failed_in != self.runs:
                self.violation(f"{self.name} follows no more, and its disk is well: {process.follower._halted}")
            return True
        elections = process.replica.elections
        return self.joined and elections is not None and elections.why_not_electable() is not None

    def _call_failed(self, name: str, detail: str) -> None:
        """Of its log: a sync, or whatever recovery or a truncation was to make durable."""
        super()._call_failed(name, detail)
        is_opening = self.process is None or self.process.reopening
        if name != "sync" and not is_opening:
            return
        if COMMIT_LOG.rstrip("/") in detail:
            self.in_doubt, self._failed_in_run = True, self.runs


class ChangingMachine(QuorumMachine):
    """Of a group whose mode changes."""

    process_type = ChangingProcess
