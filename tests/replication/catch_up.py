"""An empty slave catches up while live traffic goes on: `./dev catchup --mebibytes 1024`, or by `measure()` from a test.

The master is filled alone. Then a slave with an empty directory is started under a steady load and fetches the log from
its start; it has caught up when its master counts it as in sync.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mqwire.codes import SerializeType
from tests.bench.load import run_sends, send_frames
from tests.daemons import ReplicaGroup
from tests.processes import wait_until
from tests.remoting import create_topic
from tests.replication.replicas import WAIT_S, same_logs, status, wait_leads, wait_level

TOPIC = "catch-up"
QUEUES = 4
FILL_BYTES = 4096
LIVE_BYTES = 1024
LIVE_IN_FLIGHT = 4
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """What was seen. `backlog_bytes` is the log when the slave was started, `fetched_bytes` when it was in sync."""

    backlog_bytes: int
    fetched_bytes: int
    took_s: float  # from the slave's start, that of its process included, until it was in sync
    sent_meanwhile: int
    failed_meanwhile: int
    sent_each_second_alone: float  # by the same live traffic, before the slave was started
    same_logs: bool

    def __str__(self) -> str:
        return (
            f"an empty slave fetched {self.fetched_bytes / MEBIBYTE:.0f} MiB, {self.backlog_bytes / MEBIBYTE:.0f} of them"
            f" backlog, in {self.took_s:.1f} s ({self.fetched_bytes / MEBIBYTE / self.took_s:.0f} MiB/s); meanwhile"
            f" {self.sent_meanwhile} messages were sent, {self.sent_meanwhile / self.took_s:.0f} each second"
            f" ({self.sent_each_second_alone:.0f} without a slave), {self.failed_meanwhile} failed;"
            f" the logs are {'the same' if self.same_logs else 'NOT the same'}"
        )


class _Live:
    """Steady sends until it is stopped."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._frames = send_frames(
            TOPIC, size_bytes=LIVE_BYTES, queues=QUEUES, count=64, serialize_type=SerializeType.JSON
        )
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self.sent = self.failed = 0

    @contextmanager
    def running(self) -> Iterator[_Live]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                result = run_sends(self._address, self._frames, in_flight=LIVE_IN_FLIGHT, seconds=0.25, warm_up_s=0.0)
                self.sent += result.messages
                self.failed += result.responses - result.messages
        except BaseException as error:
            self._failures.append(error)


def measure(folder: Path, backlog_bytes: int) -> CaughtUp:
    """Fills a master, starts an empty slave under load, and returns what was seen once the slave is in sync."""
    conf = {"mappedFileSizeCommitLog": str(128 * MEBIBYTE), "diskMaxUsedSpaceRatio": "99"}
    with ReplicaGroup.start(folder, conf) as group:
        wait_level(group)
        create_topic(group[0].address, TOPIC, queues=QUEUES, namesrv=group.namesrv)
        group[1].kill()
        _empty(group[1].folder / "store")
        _fill(group, backlog_bytes)
        with _Live(group[0].address).running() as live:
            wait_until(lambda: live.sent > 0, timeout_s=WAIT_S, what="live traffic")
            sent, began_s = live.sent, time.monotonic()
            time.sleep(0.5)
            alone = (live.sent - sent) / (time.monotonic() - began_s)
            backlog = status(group[0]).end_offset
            sent, failed, began_s = live.sent, live.failed, time.monotonic()
            group[1].start()
            wait_until(
                lambda: (
                    status(group[1]).end_offset >= backlog and any(one.in_sync for one in status(group[0]).followers)
                ),
                timeout_s=WAIT_S + backlog_bytes / MEBIBYTE,
                what="the empty slave is in sync",
            )
            took_s = time.monotonic() - began_s
            fetched = status(group[1]).end_offset
            sent, failed = live.sent - sent, live.failed - failed
        wait_level(group)
        return CaughtUp(
            backlog_bytes=backlog,
            fetched_bytes=fetched,
            took_s=took_s,
            sent_meanwhile=sent,
            failed_meanwhile=failed,
            sent_each_second_alone=alone,
            same_logs=same_logs(group),
        )


def _fill(group: ReplicaGroup, backlog_bytes: int) -> None:
    wait_leads(group, 0)
    frames = send_frames(TOPIC, size_bytes=FILL_BYTES, queues=QUEUES, count=512, serialize_type=SerializeType.ROCKETMQ)
    while status(group[0]).end_offset < backlog_bytes:
        run_sends(group[0].address, frames, in_flight=128, seconds=0.1, warm_up_s=0.0)


def _empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev catchup", description="An empty slave catches up under live traffic.")
    parser.add_argument("--mebibytes", type=int, default=1024, help="how much the master holds already (1024)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="highwater-catchup-") as folder:
        seen = measure(Path(folder), options.mebibytes * MEBIBYTE)
    print(seen)
    return 0 if seen.same_logs and not seen.failed_meanwhile else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
