"""Synchronous clients and the threads that start and stop them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import anyio
import pytest

from highwater._portal import SyncClient
from highwater.errors import ClientStateError


class Starting:
    """An asynchronous client that starts when it may."""

    def __init__(self) -> None:
        self.begun, self.may_start, self.ended = threading.Event(), threading.Event(), threading.Event()

    async def __aenter__(self) -> Self:
        self.begun.set()
        await anyio.to_thread.run_sync(self.may_start.wait)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.ended.set()


def test_a_client_that_is_stopped_while_it_starts_ends_once_it_has_started() -> None:
    """stop() does not wait for that: a signal's handler runs in the very thread that starts it."""
    twin = Starting()
    client = SyncClient(twin)
    outcome: list[BaseException | None] = []

    def start() -> None:
        try:
            client.start()
            outcome.append(None)
        except ClientStateError as error:
            outcome.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    assert twin.begun.wait(10)
    stopping = threading.Thread(target=client.stop)
    stopping.start()
    stopping.join(10)
    waits = stopping.is_alive()
    twin.may_start.set()
    thread.join(10)
    stopping.join(10)
    assert not waits
    assert twin.ended.is_set()
    assert "stopped while it started" in str(outcome[0])


def test_a_client_that_could_not_start_may_be_started_again() -> None:
    class Fails(Starting):
        async def __aenter__(self) -> Self:
            raise ClientStateError("not yet")

    client = SyncClient(Fails())
    for _ in range(2):
        with pytest.raises(ClientStateError, match="not yet"):
            client.start()
