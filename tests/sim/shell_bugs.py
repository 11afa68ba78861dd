"""Bugs planted in what surrounds the cores: broker.py, services/, and the store below them. See planted_bugs.py."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from brokerd.broker import Broker
from brokerd.services import acknowledgement
from brokerd.services.acknowledgement import PendingAcknowledgements
from brokerd.services.quorum import QuorumService
from brokerd.store.commit_log import CommitLog
from tests.sim.planted_bugs import PlantedBug
from tests.sim.trio_process import TrioProcess

Patched = AbstractContextManager[Any]


def _all_waiting_are_answered() -> Patched:
    release = PendingAcknowledgements.release

    def releases(self: PendingAcknowledgements, held_offset_bytes: int, now_s: float) -> Any:
        return release(self, 1 << 60, now_s)

    return patch.object(PendingAcknowledgements, "release", releases)


def _next_one_is_answered_too() -> Patched:
    release = PendingAcknowledgements.release

    def releases(self: PendingAcknowledgements, held_offset_bytes: int, now_s: float) -> Any:
        return release(self, held_offset_bytes + 600, now_s)

    return patch.object(PendingAcknowledgements, "release", releases)


def _unproven_is_answered_as_proven() -> Patched:
    return patch.object(acknowledgement, "recoded", lambda frames, code, remark: b"".join(frames))


def _answered_at_once() -> Patched:
    def answers(
        self: Broker, peer: Any, end_offset_bytes: int, frames: list[bytes], *, since_s: float | None = None
    ) -> None:
        peer.write(b"".join(frames))

    return patch.object(Broker, "answer_when_held", answers)


def _flush_does_nothing() -> Patched:
    def flush(self: CommitLog) -> int:
        self.durable_offset = self.end_offset
        return self.durable_offset

    return patch.object(CommitLog, "flush", flush)


def _flush_covers_what_came_meanwhile() -> Patched:
    flush = CommitLog.flush

    def covers(self: CommitLog) -> int:
        flush(self)
        self.durable_offset = self.end_offset
        return self.durable_offset

    return patch.object(CommitLog, "flush", covers)


def _replica_shows_its_end() -> Patched:
    replicated = Broker.replicated

    def shows(self: Broker, *, has_data: bool) -> None:
        replicated(self, has_data=has_data)
        self.store.confirm_offset = self.store.end_offset

    return patch.object(Broker, "replicated", shows)


def _leader_shows_its_end() -> Patched:
    held_changed = Broker.held_changed

    def shows(self: Broker) -> None:
        held_changed(self)
        self.store.confirm_offset = self.store.end_offset

    return patch.object(Broker, "held_changed", shows)


def _no_one_ticks() -> Patched:
    async def run(self: QuorumService) -> None:
        """Never."""

    return patch.object(QuorumService, "run", run)


def _clock_stands_still() -> Patched:
    """As CLOCK_MONOTONIC does while the machine is suspended."""
    paused_at: WeakKeyDictionary[TrioProcess, float] = WeakKeyDictionary()
    missed_s: WeakKeyDictionary[TrioProcess, float] = WeakKeyDictionary()
    monotonic, pause, resume = TrioProcess.monotonic, TrioProcess.pause, TrioProcess.resume

    def stopped(self: TrioProcess) -> float:
        now_s = monotonic(self)
        return min(paused_at.get(self, now_s), now_s) - missed_s.get(self, 0.0)

    def pauses(self: TrioProcess) -> None:
        paused_at[self] = monotonic(self)
        pause(self)

    def resumes(self: TrioProcess) -> None:
        began_s = paused_at.pop(self, None)
        if began_s is not None:
            missed_s[self] = missed_s.get(self, 0.0) + monotonic(self) - began_s
        resume(self)

    every = ExitStack()
    for name, method in {"monotonic": stopped, "pause": pauses, "resume": resumes}.items():
        every.enter_context(patch.object(TrioProcess, name, method))
    return every


SHELL_BUGS = (
    PlantedBug("every waiting send is answered by the first flush", "sync", "sync", _all_waiting_are_answered),
    PlantedBug("the send after the confirmed one is answered too", "sync", "sync", _next_one_is_answered_too),
    PlantedBug("what is unproven is answered as proven", "sync", "sync", _unproven_is_answered_as_proven),
    PlantedBug("sends are answered at once", "sync", "sync", _answered_at_once),
    PlantedBug("a flush does nothing", "single", "sync", _flush_does_nothing),
    PlantedBug("a flush covers what came while it ran", "single", "sync", _flush_covers_what_came_meanwhile),
    PlantedBug("a slave shows its log's end", "sync", "sync", _replica_shows_its_end),
    PlantedBug("a master shows its log's end", "sync", "sync", _leader_shows_its_end),
    PlantedBug("a clock stands still while its machine is suspended", "sync", "sync", _clock_stands_still),
    PlantedBug(
        "an elected leader's clock stands still while its machine is suspended", "dledger", "sync", _clock_stands_still
    ),
    PlantedBug("no one ticks", "dledger", "sync", _no_one_ticks),
)
