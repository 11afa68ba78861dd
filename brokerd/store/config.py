"""The store's settings. Names and defaults are MessageStoreConfig's, with units added."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from brokerd.store.index_format import file_bytes as index_file_bytes

CONSUME_QUEUE_ENTRY_BYTES = 20
END_FILE_MIN_BLANK_BYTES = 8
MAX_RECORD_HEAD_BYTES = 128  # the fixed part of a record with two IPv6 hosts is 112
MAX_TOPIC_BYTES = 255  # a topic is the name of a directory

_DEFAULT_DELAY_LEVELS_MS = tuple(
    seconds * 1000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Raises ValueError that names RocketMQ's key when a value cannot work."""

    root_dir: str  # storePathRootDir
    commit_log_dir: str = ""  # storePathCommitLog; default: <root_dir>/commitlog
    mapped_file_size_commit_log_bytes: int = 1024 * 1024 * 1024  # mappedFileSizeCommitLog
    mapped_file_size_consume_queue_bytes: int = 300_000 * CONSUME_QUEUE_ENTRY_BYTES  # mappedFileSizeConsumeQueue
    max_message_size_bytes: int = 4 * 1024 * 1024  # maxMessageSize: of the body
    append_record_crc: bool = True  # enabledAppendPropCRC (Apache's default is false)
    delay_levels_ms: tuple[int, ...] = _DEFAULT_DELAY_LEVELS_MS  # messageDelayLevel, level 1 first

    # retention
    file_reserved_hours: int = 72  # fileReservedTime
    delete_when: tuple[int, ...] = (4,)  # deleteWhen: hours of the day, local time
    disk_max_used_space_ratio: float = 0.75  # diskMaxUsedSpaceRatio: above it, expired files go at any hour
    disk_space_clean_forcibly_ratio: float = 0.85  # diskSpaceCleanForciblyRatio
    disk_space_warning_level_ratio: float = 0.90  # diskSpaceWarningLevelRatio: above it, appends are refused
    clean_file_forcibly: bool = False  # cleanFileForciblyEnable (Apache's default is true: it deletes unexpired files)
    delete_file_batch_max: int = 10  # deleteFileBatchMax

    # the message index
    message_index_enable: bool = True  # messageIndexEnable
    max_hash_slot_num: int = 5_000_000  # maxHashSlotNum: of one IndexFile
    max_index_num: int = 20_000_000  # maxIndexNum: of one IndexFile
    max_msgs_num_batch: int = 64  # maxMsgsNumBatch: messages that one query is answered with

    # pulling
    max_filter_scan_entries: int = 800  # maxFilterMessageSize / 20: entries looked at for one filtered pull

    # recovery
    truncate_unproven_tail: Literal["after_power_loss", "always", "never"] = "after_power_loss"
    """A bad record beyond the durable mark with good ones after it is what a power cut leaves of writes that
    were never synced, and bit rot can look like that. It is truncated (saved aside, and the replica has no full vote
    until it has caught up) only when the machine has been restarted since, or a sync had failed, and a piece of the
    record has only zeros ("after_power_loss"), always, or never: then it is damage, repaired from another replica."""

    # memory and preparation
    allocate_ahead_bytes: int = 64 * 1024 * 1024
    zero_ahead_bytes: int = 0
    """How far in front of the log's end its file is filled with zeros. A sync into blocks that were written before
    changes no metadata of the file system: it took 190 instead of 325 us (median, ext4). For SYNC_FLUSH; 0 is off."""
    unwritten_entries_max: int = 2_000_000  # ConsumeQueue entries held in memory: 20 bytes each
    read_cache_blocks_max: int = 512  # of 64 KiB
    open_files_max: int = 512  # of CommitLog and of ConsumeQueue each

    def __post_init__(self) -> None:
        if not self.commit_log_dir:
            object.__setattr__(self, "commit_log_dir", os.path.join(self.root_dir, "commitlog"))
        if "," in self.commit_log_dir:
            raise ValueError("storePathCommitLog: several paths are not supported, give one")
        if self.mapped_file_size_commit_log_bytes < 4096 or self.mapped_file_size_commit_log_bytes >= 2**31:
            raise ValueError("mappedFileSizeCommitLog: must be at least 4096 and below 2147483648")
        size = self.mapped_file_size_consume_queue_bytes
        if size < CONSUME_QUEUE_ENTRY_BYTES or size % CONSUME_QUEUE_ENTRY_BYTES or size >= 2**31:
            raise ValueError("mappedFileSizeConsumeQueue: must be a multiple of 20 below 2147483648")
        if self.max_hash_slot_num < 1:
            raise ValueError("maxHashSlotNum: must be at least 1")
        if self.max_index_num < 2:
            raise ValueError("maxIndexNum: must be at least 2, for the first entry of a file is never used")
        if index_file_bytes(self.max_hash_slot_num, self.max_index_num) >= 2**31:
            raise ValueError("maxHashSlotNum * 4 + maxIndexNum * 20: an IndexFile must be smaller than 2 GiB")
        if self.max_message_size_bytes < 1:
            raise ValueError("maxMessageSize: must be at least 1")

    @property
    def index_dir(self) -> str:
        return os.path.join(self.root_dir, "index")

    @property
    def consume_queue_dir(self) -> str:
        return os.path.join(self.root_dir, "consumequeue")

    def path(self, name: str) -> str:
        """A file directly below storePathRootDir: checkpoint, abort, lock."""
        return os.path.join(self.root_dir, name)
