"""Answers that peers do not read: all together have a bound, and who has read nothing for longest goes first."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
import trio

from brokerd import peer as peers
from brokerd.peer import PAUSE_STRANGER_BYTES, Peer, Unread

MEBIBYTE = 1024 * 1024


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Unread:
    monkeypatch.setattr(peers, "TOTAL_UNREAD_BYTES", 16 * MEBIBYTE)
    counted = Unread()
    monkeypatch.setattr(peers, "unread", counted)
    return counted


@contextlib.contextmanager
def connected(nursery: trio.Nursery) -> Iterator[tuple[socket.socket, Peer]]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        theirs, _ = listener.accept()
        theirs.setblocking(False)
        peer = Peer(theirs, nursery)
        yield client, peer
        peer.close()


def answer(peer: Peer, size: int) -> None:
    peer.write(bytes(size))
    peer.flush()


@pytest.mark.trio
async def test_who_has_read_nothing_for_longest_goes_when_all_leave_too_much(unread: Unread) -> None:
    with contextlib.ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            (_, silent), (reader, reading), (_, newest) = (stack.enter_context(connected(nursery)) for _ in range(3))
            for peer in (reading, silent):
                answer(peer, 9 * MEBIBYTE)  # of which the kernel holds some
            before = reading.pending_bytes
            reader.setblocking(False)
            with trio.fail_after(10):
                while reading.pending_bytes == before:
                    with contextlib.suppress(BlockingIOError):
                        reader.recv(MEBIBYTE)
                    await trio.lowlevel.checkpoint()
            answer(newest, 16 * MEBIBYTE - unread.total_bytes + 4 * MEBIBYTE)
            assert (silent.closed, reading.closed, newest.closed) == (True, False, False)
            assert unread.total_bytes == reading.pending_bytes + newest.pending_bytes
            nursery.cancel_scope.cancel()
    assert unread.total_bytes == 0


@pytest.mark.trio
async def test_a_stranger_that_reads_nothing_is_soon_read_from_no_more(unread: Unread) -> None:
    async with trio.open_nursery() as nursery:
        with connected(nursery) as (_, peer):
            answer(peer, 8 * MEBIBYTE)
            assert peer.pending_bytes > PAUSE_STRANGER_BYTES
            peer.pending_bytes = PAUSE_STRANGER_BYTES + 1
            with trio.move_on_after(0.01) as waiting:
                await peer.wait_until_read()
            assert waiting.cancelled_caught
            peer.proven = True
            with trio.fail_after(10):
                await peer.wait_until_read()
            nursery.cancel_scope.cancel()
