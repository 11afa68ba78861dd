"""What can go wrong in the store. The broker turns each into a response code; none carries a message's payload."""

from __future__ import annotations


class StoreError(Exception):
    """Root of everything that the store raises on purpose."""


class StoreLockedError(StoreError):
    """Another process (ours or Apache's) holds the store's lock file. Nothing was touched; don't start."""


class StoreFormatError(StoreError):
    """The directory is not one that we can serve: another file size, or a kind of store that we don't read.

    The message names the file and the configuration key. Nothing was touched.
    """


class MessageIllegalError(StoreError):
    """One message of an append breaks a limit. Nothing of the whole call was stored.

    `index` is its place in the call: leave it out and append the others again. Answer MESSAGE_ILLEGAL (13).
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


class DiskFullError(StoreError):
    """No room, or less than the configured share of it is left: nothing of the call was stored, reads go on.

    Answer SERVICE_NOT_AVAILABLE (14). Passes by itself once files are deleted.
    """


class StoreReadOnlyError(StoreError):
    """The store serves reads, and takes no message until it is opened again."""


class StoreClosedError(StoreReadOnlyError):
    """The store is not open."""


class StoreDamagedError(StoreReadOnlyError):
    """Recovery found a hole in data that was durable. The recovery report says where; nothing was truncated."""


class FlushFailedError(StoreReadOnlyError):
    """fsync reported an error. The kernel may have dropped the pages, so no later fsync can prove anything: latched."""


class AppendFailedError(StoreReadOnlyError):
    """A write failed half-way and could not be undone. What it stored is unproven; latched until recovery."""


class RecordWithoutCrcError(ValueError):
    """A record that is to be appended lacks the CRC of itself that those around it have: another program wrote it, or what says
    where its CRC stands is spoiled.
    """


class LogDamagedError(StoreError):
    """The log holds no whole record at `physical_offset`, where one was: another replica may have it."""

    def __init__(self, physical_offset: int) -> None:
        super().__init__(f"the log holds no whole record at {physical_offset}")
        self.physical_offset = physical_offset


class UnprovenRecordsError(ValueError):
    """Another replica's records fit over the damage, up to `end_offset`; nothing after them says that both logs are the same."""

    def __init__(self, end_offset: int) -> None:
        super().__init__(f"no record after the damage, at {end_offset}, says that both logs are the same")
        self.end_offset = end_offset


class RecordDamagedError(StoreError):
    """The ConsumeQueue names a record that the CommitLog does not hold whole; served by no one, skipped by no one."""

    def __init__(self, topic: str, queue_id: int, queue_offset: int, physical_offset: int) -> None:
        super().__init__(
            f"the message at offset {queue_offset} of {topic}, queue {queue_id}, "
            f"is damaged (CommitLog offset {physical_offset})"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.physical_offset = physical_offset
