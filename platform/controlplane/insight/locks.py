"""One run of a job at a time, wherever workers are: PostgreSQL's advisory locks, held by a connection of their own.

A process that dies lets go, as its connection ends with it. So a run that says it is running while its job's lock is free
has lost its worker.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from mqwire import jobs


class JobLock:
    """A lock that is held."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self._connection = connection

    def is_held(self) -> bool:
        """Ask the server; False when the connection, and with it the lock, is lost."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("select 1")
        except DatabaseError:
            return False
        return True


@contextmanager
def job_lock(job: str) -> Iterator[JobLock | None]:
    """Hold the job's lock for the length of the block; None when another does."""
    connection = connections.create_connection("default")
    try:
        with connection.cursor() as cursor:
            cursor.execute("select pg_try_advisory_lock(%s, %s)", jobs.job_lock_key(jobs.JobLock.RUN, job))
            row = cursor.fetchone()
        yield JobLock(connection) if row is not None and row[0] else None
    finally:
        connection.close()
