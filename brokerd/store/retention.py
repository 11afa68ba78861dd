"""Which CommitLog files may go: decided from times and disk usage only (CleanCommitLogService)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from brokerd.store.commit_log import CommitLog
from brokerd.store.config import StoreConfig
from brokerd.store.get_message import MessageReader


@dataclass(frozen=True, slots=True)
class LogFile:
    """A CommitLog file that is not the active one."""

    base_offset: int
    end_offset: int
    newest_ms: int  # no record of it is younger: the store timestamp of the record after it


def expirable_files(
    config: StoreConfig, log: CommitLog, reader: MessageReader, may_go_below: int, keep_from_offset: int | None
) -> list[LogFile]:
    """The oldest files that may be looked at for deletion, deleteFileBatchMax at most.

    None that reaches into [keep_from_offset, ...), however old it is, nor into [may_go_below, ...). That is where the log is
    synced to; where the ConsumeQueues' entries are, for a queue whose last message is deleted before its entry is written gives
    that offset to another message; and confirmOffset, for a leader must be able to give its followers all that becomes confirmed
    while it leads.
    """
    files = []
    for base in log.bases[: config.delete_file_batch_max]:
        end = base + log.file_bytes
        if end > may_go_below or base == log.bases[-1]:  # the active file stays, be it full and synced
            break
        if keep_from_offset is not None and end > keep_from_offset:
            break
        newest_ms = reader.store_timestamp_at(end)
        if newest_ms < 0:
            break
        files.append(LogFile(base, end, newest_ms))
    return files


def expired_files(
    config: StoreConfig, files: list[LogFile], now_ms: int, used_ratio: float, waiting_from: int | None = None
) -> list[LogFile]:
    """The files to delete now, oldest first: always a run from the oldest on, so that the log has no hole.

    Expired ones go in the hours of deleteWhen, and at any hour when the disk is fuller than diskMaxUsedSpaceRatio. With
    cleanFileForciblyEnable, unexpired ones go too while it is fuller than diskSpaceCleanForciblyRatio, one each time.

    What reaches into [waiting_from, ...) has not expired: messages there wait for their time, and count as stored when they come.
    """
    by_time = time.localtime(now_ms / 1000).tm_hour in config.delete_when
    if not by_time and used_ratio <= config.disk_max_used_space_ratio:
        return []
    reserved_ms = config.file_reserved_hours * 3_600_000
    chosen = []
    for file in files[: config.delete_file_batch_max]:
        if file.newest_ms + reserved_ms > now_ms or (waiting_from is not None and file.end_offset > waiting_from):
            break
        chosen.append(file)
    forcibly = config.clean_file_forcibly and used_ratio > config.disk_space_clean_forcibly_ratio
    if not chosen and forcibly and files:
        chosen.append(files[0])
    return chosen
