"""The `checkpoint` file: RocketMQ's five numbers, and after them what our recovery needs.

    byte 0     physicMsgTimestamp, logicsMsgTimestamp, indexMsgTimestamp, masterFlushedOffset, confirmPhyOffset: 8 each
    byte 1024  ours: | magic 8 | CRC 4 | durable mark 8 | dispatch offset 8 | queues digest 8 | record CRC from 8 |
               | last record offset 8 |
               | CommitLog file size 4 | ConsumeQueue file size 4 | boot id 64 |
    byte 4096  end

Our part is void (and recovery starts from the first record) unless its CRC agrees, and the CRC also covers RocketMQ's five
numbers: so a broker of Apache's that served the directory in between, and rewrote those, voids it by itself.

Invariant: the file never says more than is synced: log first, then ConsumeQueues, then this file (written beside, renamed).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from brokerd.store.disk import Disk
from brokerd.store.durable_file import replace_file
from mqwire.checksum import crc32

FILE_BYTES = 4096
_ROCKETMQ = struct.Struct(">qqqqq")
_OWN_POSITION = 1024
_MAGIC = b"HWSTORE1"
_OWN = struct.Struct(">qqQqqII64s")
NO_RECORD_CRC = 2**63 - 1
INDEX_AHEAD_MS = 60_000
"""indexMsgTimestamp is written so much ahead: an Apache broker that opens the directory after a kill deletes the index files
that end later, and ours, written at another moment than this file, would be among them."""


@dataclass(slots=True)
class StoreCheckpoint:
    """`own` is False when only RocketMQ's part (or nothing) is known."""

    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    own: bool = False
    durable_mark: int = -1  # every record below was synced
    dispatch_offset: int = 0  # every ConsumeQueue entry for a record below is synced
    queues_digest: int = 0  # of (topic, queue id, first file, next offset) of all queues, at dispatch_offset
    record_crc_from: int = NO_RECORD_CRC  # every record from here on carries a CRC of itself
    last_record_offset: int = 0  # where the last record in front of dispatch_offset begins
    commit_log_file_bytes: int = 0
    consume_queue_file_bytes: int = 0
    boot_id: str = ""

    @classmethod
    def load(cls, disk: Disk, path: str) -> StoreCheckpoint:
        """What the file says; an empty one when it is missing or too short."""
        if not disk.exists(path):
            return cls()
        fd = disk.open(path, os.O_RDONLY)
        try:
            data = disk.pread(fd, FILE_BYTES, 0)
        finally:
            disk.close(fd)
        if len(data) < _ROCKETMQ.size:
            return cls()
        checkpoint = cls(*_ROCKETMQ.unpack_from(data))
        own_end = _OWN_POSITION + 12 + _OWN.size
        if len(data) < own_end or data[_OWN_POSITION : _OWN_POSITION + 8] != _MAGIC:
            return checkpoint
        own = data[_OWN_POSITION + 12 : own_end]
        if int.from_bytes(data[_OWN_POSITION + 8 : _OWN_POSITION + 12], "big") != crc32(
            own, crc32(data[: _ROCKETMQ.size])
        ):
            return checkpoint
        (
            checkpoint.durable_mark,
            checkpoint.dispatch_offset,
            checkpoint.queues_digest,
            checkpoint.record_crc_from,
            checkpoint.last_record_offset,
            checkpoint.commit_log_file_bytes,
            checkpoint.consume_queue_file_bytes,
            boot_id,
        ) = _OWN.unpack(own)
        checkpoint.boot_id = boot_id.rstrip(b"\0").decode("ascii", "replace")
        checkpoint.own = True
        return checkpoint

    def save(self, disk: Disk, path: str) -> None:
        """Replace the file; durable on return."""
        rocketmq = _ROCKETMQ.pack(
            self.physic_msg_timestamp_ms,
            self.logics_msg_timestamp_ms,
            self.index_msg_timestamp_ms,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        own = _OWN.pack(
            self.durable_mark,
            self.dispatch_offset,
            self.queues_digest,
            self.record_crc_from,
            self.last_record_offset,
            self.commit_log_file_bytes,
            self.consume_queue_file_bytes,
            self.boot_id.encode("ascii", "replace")[:64],
        )
        page = bytearray(FILE_BYTES)
        page[: len(rocketmq)] = rocketmq
        checksum = crc32(own, crc32(rocketmq)).to_bytes(4, "big")
        page[_OWN_POSITION : _OWN_POSITION + 12 + len(own)] = _MAGIC + checksum + own
        replace_file(disk, path, bytes(page))
        self.own = True
