"""The Spark jobs' names and locks: what the control plane and the jobs have to agree on, stated once.

A run holds two of PostgreSQL's advisory locks. The worker that started it holds RUN: while that is free, no worker
runs the job. The job's own process holds WORK: it may outlive its worker for a moment, and no second one may write
meanwhile.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class JobName(StrEnum):
    """`python -m spark_etl.jobs.<name>`, in the order in which they feed each other."""

    INGEST = "ingest"
    USAGE_BILLING = "usage_billing"
    LAG_ANALYTICS = "lag_analytics"
    BILLING_CHECK = "billing_check"
    COMPACTION = "compaction"
    """All upkeep of the lake."""
    REPAIR = "repair"
    """What an operator asks for when records are missing; never scheduled."""
    INVOICE = "invoice"
    """Counts an issued invoice's months again; never scheduled."""


class JobLock(IntEnum):
    """The first of an advisory lock's two keys: apart from other locks in this database."""

    RUN = 0x4857
    WORK = 0x48575354


# A job's place is the second key of its locks: append, never reorder.
_PLACES: Final = tuple(JobName)


def job_lock_key(lock: JobLock, job: str) -> tuple[int, int]:
    """The two keys of a job's lock; raises ValueError for what is no job."""
    return lock.value, _PLACES.index(JobName(job))
