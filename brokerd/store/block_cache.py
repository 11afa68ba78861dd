"""Recently read blocks of the CommitLog, so that pulls of interleaved queues don't need a system call for each record.

Many queues share the log, so the records of one queue are spread over it, and the other queues' consumers want the records in
between soon after. A block is what one read gives: immutable, since the log only grows, but where damage is written over. The
last one may be short, and is read again when the log has grown. Main thread only, but for `outdated`.
"""

from __future__ import annotations

from brokerd.store.commit_log import CommitLog

BLOCK_SHIFT = 16
BLOCK_BYTES = 1 << BLOCK_SHIFT
BLOCK_MASK = BLOCK_BYTES - 1


class BlockCache:
    def __init__(self, commit_log: CommitLog, blocks_max: int) -> None:
        self.blocks: dict[int, bytes] = {}  # block number -> what the log holds of it; in the order of reading
        self.outdated = False  # the log was written over in another thread: clear() before reading
        self._log = commit_log
        self._blocks_max = blocks_max

    def clear(self) -> None:
        self.outdated = False  # first, as it may be set again meanwhile
        self.blocks.clear()

    def load(self, number: int) -> bytes:
        """Read a block: up to the end of the log or of the file that it starts in; nothing where there is no file."""
        log = self._log
        blocks = self.blocks
        start = number << BLOCK_SHIFT
        size = min(BLOCK_BYTES, log.end_offset - start, log.file_bytes - start % log.file_bytes)
        block = log.read(start, size) if size > 0 else b""
        blocks.pop(number, None)
        if len(blocks) >= self._blocks_max:
            del blocks[next(iter(blocks))]
        blocks[number] = block
        return block
